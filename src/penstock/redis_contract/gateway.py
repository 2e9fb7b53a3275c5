"""The gateway: takes messages, mirrors jobs, sends heartbeats and takes over from dead gateways."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.errors import (
    Conflict,
    DiskFull,
    DuplicateId,
    InvalidRequest,
    InvalidText,
    PenstockError,
    QueueFull,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UnknownRag,
    UnsupportedSource,
)
from penstock.queue.job import Status
from penstock.queue.payloads import ARRIVAL, DeliveredFile
from penstock.redis_contract import lists, messages, rags
from penstock.redis_contract.lists import Broker, Lists, TakenMessage, with_update_time
from penstock.redis_contract.messages import (
    ErrorReport,
    Message,
    decode,
    describe_error,
    parse_time,
    read,
    read_oversized,
)
from penstock.redis_contract.mirror import Mirror, TenantErasure
from penstock.redis_contract.rags import FAILED, Rags
from penstock.redis_contract.reindex_series import ReindexSeries
from penstock.service.collections import Collections
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.vocabulary import how_many

log = logging.getLogger("penstock.gateway")
_BATCH = 50
"""Messages taken at once and added in one transaction of the queue."""
_BEAT_S = 2.0
_POLL_S = 0.2
_IDLE_ROUNDS = 5
"""Idle rounds after which jobs are read less often."""
_LONGEST_PAUSE_S = 5.0
_WARN_EVERY_S = 60.0
"""Seconds between warnings while the gateway waits for a server that never answered."""
TAKE_OVER_S = 2.0
ADOPT_S = 60.0
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no character. An id or a path with one in it cannot be used."""
_PLACEHOLDERS = {"job_id": "x", "rag_id": "-", "source_path": "/", "source_type": "txt", "filename": "-"}


class Gateway:
    """Connects one Redis server with one queue. Several may run at once, on one host or many."""

    def __init__(
        self,
        broker: Broker,
        jobs: Jobs,
        documents: Documents,
        rags: Rags,
        *,
        group: str,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """``check`` raises if the server cannot serve the contract; called when Redis first answers."""
        self.name = f"{group}.{_host()}-{os.getpid()}-{clock.new_task_id()[:8]}"
        self.where = broker.label
        self.serves = sorted(rags.by_id)
        self._broker = broker
        self._check = check
        self._jobs = jobs
        self._documents = documents
        self._lists = Lists(broker, gateway=self.name, group=group, rag_ids=self.serves)
        series = ReindexSeries(jobs, Collections(documents.catalog, jobs), self._lists)
        self._intake = Intake(jobs, self._lists, rags, series)
        self._mirror = Mirror(jobs, documents, self._lists, rags, series)
        self._erasure = TenantErasure(jobs, self._lists, rags)
        self._stop = threading.Event()
        self._started_at = clock.format_time(clock.now())
        self._workers = 0
        self._next_take_over = 0.0
        self._next_adoption = 0.0
        self._reconciled = False

    def stop(self) -> None:
        self._stop.set()

    def run(self, on_connected: Callable[[], object] = lambda: None) -> None:
        """Run until a signal or ``stop``. ``on_connected`` is called once Redis has answered."""
        with self._signals():
            if not self._wait_for_redis():
                return
            on_connected()
            beat_thread = threading.Thread(target=self._beat_until_stopped, name="beat", daemon=True)
            beat_thread.start()
            self._loop()
        self._stop.set()
        beat_thread.join(timeout=2 * _BEAT_S)
        self.leave()

    def _wait_for_redis(self) -> bool:
        """Wait until Redis answers. False: the gateway was stopped first.

        After a power cut the gateway may start before Redis, so a missing server is no error.
        """
        pause, warned_at = _POLL_S, None
        while not self._stop.is_set():
            try:
                self._check()
                self.beat()
            except (StoreUnavailable, StoreReadOnly, DiskFull) as error:
                now = clock.elapsed_s()
                if warned_at is None or now - warned_at >= _WARN_EVERY_S:
                    log.warning("%s (%s); waiting for it. %s", error.message, error.code, error.remedy)
                    warned_at = now
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return True
        return False

    def _loop(self) -> None:
        pause, idle = _POLL_S, 0
        while not self._stop.is_set():
            try:
                # Idle jobs are read once a second; new messages are taken at once.
                active = self.run_round(mirror=idle < _IDLE_ROUNDS or not idle % _IDLE_ROUNDS)
            except (StoreError, InvalidText) as error:
                # Redis or the queue may be unreachable for a while; nothing is lost, as both are durable.
                told = (error.message, error.code, pause, error.remedy)
                log.warning("%s (%s); trying again in %.1f s. %s", *told)
                self._intake.forget()
                self._next_take_over = self._next_adoption = 0.0
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            pause, idle = _POLL_S, 0 if active else idle + 1
            if not active:
                self._stop.wait(_POLL_S)

    def run_round(self, *, mirror: bool = True) -> bool:
        """Do all due work once. True: there may be more to do at once."""
        now = clock.elapsed_s()
        if now >= self._next_take_over:
            self._take_over(adopt=now >= self._next_adoption)
            self._correct()
            if now >= self._next_adoption:
                self._next_adoption = now + ADOPT_S
            self._next_take_over = now + TAKE_OVER_S
        accepted = self._intake.hand_over()
        self._mirror.add(accepted)
        return (mirror and self._mirror.update()) or bool(accepted)

    def _take_over(self, *, adopt: bool) -> None:
        messages, jobs = self._lists.take_over()
        if messages or jobs:
            taken = (how_many(messages, "message"), how_many(jobs, "job"))
            log.info("took over %s and %s from a dead gateway", *taken)
            self._intake.forget()
        if adopt:
            self._mirror.adopt()
            self._erasure.erase_deleted()
        if (messages or jobs or adopt) and self._mirror.reload():
            self._reconciled = False
        if not self._reconciled:
            self._mirror.add(self._mirror.find_unreported())
            self._reconciled = True
        self._count_workers()

    def _count_workers(self) -> None:
        """Count living workers, and report a change at once: a person may be waiting for one to start."""
        queue, heartbeat_s = self._jobs.queue, self._jobs.settings.heartbeat_s
        now = queue.now()
        living = sum(worker.takes_jobs and worker.alive(now, heartbeat_s) for worker in queue.workers())
        if living != self._workers:
            self._workers = living
            self.beat()

    def _correct(self) -> None:
        expired = self._intake.expire()
        if expired:
            log.warning("%s expired: no gateway served the RAG", how_many(expired, "message"))
        corrected = self._lists.recheck()
        if corrected:
            log.info("%d hashes were overwritten by their producers and corrected", corrected)

    # Heartbeats.

    def beat(self) -> None:
        self._lists.beat(self._beat_fields())

    def leave(self) -> None:
        """Announce the end of this gateway; others then take over at once."""
        try:
            self._lists.beat(self._beat_fields(), leaving=True)
        except StoreError as error:
            log.warning("%s", error.message)

    def _beat_fields(self) -> dict[str, Any]:
        return {
            "host": _host(),
            "pid": os.getpid(),
            "started_at": self._started_at,
            "workers": self._workers,
            "rags": self.serves,
            **self._mirror.counts(),
        }

    def _beat_until_stopped(self) -> None:
        """Send heartbeats from their own thread: a gateway busy with a large file is not dead.

        An idle gateway writes nothing else, so that only this tells of a server that cannot be written.
        """
        warned_at: float | None = None
        while not self._stop.wait(_BEAT_S):
            try:
                self.beat()
            except StoreError as error:
                now = clock.elapsed_s()
                if warned_at is None or now - warned_at >= _WARN_EVERY_S:
                    log.warning("no heartbeat: %s (%s). %s", error.message, error.code, error.remedy)
                    warned_at = now
            else:
                warned_at = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # SIGINT stays ignored if it was at the start, as in the background of a script.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        numbers = (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        self._broker.close()


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60] or "host"


class Intake:
    """Takes messages, adds jobs as far as the queue has room, and acknowledges.

    Repeating a step after a crash has no second effect.
    """

    def __init__(self, jobs: Jobs, lists: Lists, rags: Rags, series: ReindexSeries) -> None:
        self._jobs = jobs
        self._lists = lists
        self._rags = rags
        self._series = series
        self._away_s = jobs.settings.rag_away_s
        self._misplaced: dict[str, str] = {}
        self._held: list[TakenMessage] | None = None
        """Messages taken and not yet handed over; None: unknown, the lists in Redis must be read."""

    def forget(self) -> None:
        """Read the lists again in the next round: a failed call may or may not have taken effect."""
        self._held = None

    def hand_over(self) -> list[str]:
        """Turn messages into jobs, as far as the queue has room. Returns the ids of the new jobs."""
        held = self._lists.list_taken() if self._held is None else self._held
        self._held = None
        accepted: list[str] = []
        waiting = self._lists.has_messages()
        self._report_misplaced()
        room = self._jobs.room() if held or waiting else 0
        if room:
            more = min(room, _BATCH) - len(held)
            # Messages of a tenant without room must not block those of other tenants.
            taken = self._lists.take(more) if more > 0 else []
            accepted, held = self._hand_over_batch([*held, *taken])
        self._held = held
        return accepted

    def _report_misplaced(self) -> None:
        """Warn once about each key of another type than list."""
        for key in self._lists.misplaced.keys() - self._misplaced.keys():
            kind = self._lists.misplaced[key]
            log.warning("%s is a %s, not a list: no messages are taken from it", key, kind)
        self._misplaced = self._lists.misplaced

    def expire(self) -> int:
        """Take messages of RAGs without a gateway for too long, to refuse them. Returns the count."""
        expired = self._lists.expire(away_s=self._away_s)
        if expired:
            self.forget()
        return expired

    def _hand_over_batch(self, held: Sequence[TakenMessage]) -> tuple[list[str], list[TakenMessage]]:
        """Add jobs for messages. Returns the job ids, and the messages for which the queue had no room."""
        requests = []
        for taken in held:
            request = self._read(taken)
            if request is not None:
                requests.append(request)
        self._join_series([request for request in requests if request.message.options.reindex])
        added, rest = self._add(requests)
        accepted = []
        for request in added:
            shown = with_update_time(messages.initial_fields(request.message))
            file = lists.file_key(request.message.rag_id, request.submission["payload"]["file_path"])
            # Also if the message is gone: unless another gateway has it, the server lost its data.
            self._lists.accept(request.taken, shown, file=file, again=request.again)
            accepted.append(request.message.job_id)
        return accepted, [request.taken for request in rest]

    def _join_series(self, requests: Sequence[_Request]) -> None:
        """Store with each reindex the beginning of its series."""
        default = self._jobs.settings.tenant_id
        sent = [
            (
                request.submission.get("tenant_id") or default,
                request.submission.get("collection") or request.message.rag_id,
                parse_time(request.message.submitted_at),
            )
            for request in requests
        ]
        for request, begun_at in zip(requests, self._series.beginnings(sent), strict=True):
            request.submission["metadata"] = {
                **(request.submission.get("metadata") or {}),
                messages.SERIES: begun_at,
            }

    def _add(self, requests: list[_Request]) -> tuple[list[_Request], list[_Request]]:
        """Add all requests in one transaction; if one of them is refused, one by one."""
        if not requests:
            return [], []
        try:
            self._jobs.submit_many([request.submission for request in requests], exact=True)
        except (InvalidRequest, QueueFull):
            return self._add_singly(requests)
        return [msgspec.structs.replace(request, again=True) for request in requests], []

    def _add_singly(self, requests: list[_Request]) -> tuple[list[_Request], list[_Request]]:
        added: list[_Request] = []
        rest: list[_Request] = []
        for request in requests:
            try:
                self._jobs.submit_many([request.submission], exact=True)
            except QueueFull:
                rest.append(request)
            except DuplicateId:
                known = self._known(request)
                if known is not None:
                    added.append(known)
            except InvalidRequest as refusal:
                self._refuse(request.taken, refusal, request.raw)
            else:
                added.append(msgspec.structs.replace(request, again=True))
        return added, rest

    def _known(self, request: _Request) -> _Request | None:
        """Return the request if the job with this id was made from the same message, else refuse it.

        The same message arrives again after a crash, or if it was sent twice. With a higher retry_count it
        requeues a failed job.
        """
        job = self._jobs.queue.get(request.message.job_id)
        found = msgspec.json.decode(job.metadata).get(messages.MESSAGE) if job is not None else None
        fresh = {"retry_count": 0}
        if job is None or not isinstance(found, dict) or found | fresh != request.raw | fresh:
            self._refuse_reused_id(request, found)
            return None
        later = request.message.retry_count > read(found).retry_count
        if not later or job.status not in (Status.FAILED, Status.CANCELLED):
            return msgspec.structs.replace(request, again=not job.ended)
        try:
            self._jobs.retry(job.queue_id)
        except Conflict as refusal:
            self._lists.refuse(request.taken, _dead_letter(request.taken.raw, refusal, request.raw), None, {})
            return None
        return msgspec.structs.replace(request, again=True)

    # Messages.

    def _read(self, taken: TakenMessage) -> _Request | None:
        oversized = read_oversized(taken.raw)
        if oversized is not None:
            refusal = oversized.refusal()
            letter = oversized.letter(refusal, clock.format_time(clock.now()))
            self._refuse(taken, refusal, oversized.fields(), letter)
            return None
        raw: dict[str, Any] = {}
        try:
            raw = decode(taken.raw)
            message = read(raw)
        except InvalidRequest as refusal:
            self._refuse(taken, refusal, raw)
            return None
        try:
            submission = self._submission(message, raw, taken.priority)
        except UnknownRag as refusal:
            if self._lists.pass_on(
                taken, with_update_time(messages.waiting_fields(message)), away_s=self._away_s
            ):
                log.info("a message for %s is left to a gateway that serves it", message.rag_id)
            else:
                self._refuse(taken, refusal, raw)
            return None
        except InvalidRequest as refusal:
            self._refuse(taken, refusal, raw)
            return None
        return _Request(taken, raw, message, submission)

    def _submission(self, message: Message, raw: dict[str, Any], priority: int) -> Submission:
        rag = self._rags.get(message.rag_id)
        place = rag.place(message.source_path, message.filename)
        options = message.options
        arrival = DeliveredFile(
            read_from=place.read_from,
            source_type=None if options.skip_validation else message.source_type,
            tags=message.tags,
            about=message.metadata,
            keep=options.preserve_metadata,
            sent_at=parse_time(message.submitted_at) if place.managed else None,
        )
        metadata = {
            ARRIVAL: msgspec.to_builtins(arrival),
            messages.MANAGED: place.managed,
            messages.MESSAGE: raw,
        }
        return Submission(
            item_type="file",
            op="ingest",
            payload={"file_path": place.known_as},
            tenant_id=rag.tenant_id,
            collection=rag.collection,
            priority=priority,
            dedupe=False,
            rebuild=options.reindex,
            max_retries=message.retries_left,
            metadata=metadata,
            job_id=message.job_id,
        )

    # Refusals.

    def _refuse_reused_id(self, request: _Request, found: Any) -> None:
        """Refuse a message with a used id. The hash, and perhaps the file, belong to another job."""
        job_id = request.message.job_id
        refusal = DuplicateId(
            f"the job_id {job_id} was used already, with other content",
            remedy="Give every message a different job_id.",
        )
        if not isinstance(found, dict) or found.get("source_path") != request.message.source_path:
            self._record(_describe_refusal(request.taken.raw, request.raw, refusal))
        self._lists.refuse(request.taken, _dead_letter(request.taken.raw, refusal, request.raw), None, {})
        log.warning("a message was refused: %s", refusal.message)

    def _refuse(
        self,
        taken: TakenMessage,
        refusal: InvalidRequest,
        raw: dict[str, Any],
        letter: dict[str, Any] | None = None,
    ) -> None:
        found = _describe_refusal(taken.raw, raw, refusal)
        job_id = found.message.job_id if found.has_id else None
        # The file before the message: after a kill in between, both steps are repeated.
        if job_id is None or self._lists.is_unused(job_id):
            if isinstance(refusal, UnsupportedSource) and found.has_id:
                self._move_to_failed(found)
            self._record(found)
        shown = with_update_time(found.shown) if job_id is not None else {}
        letter = letter or _dead_letter(taken.raw, refusal, raw)
        if self._lists.refuse(taken, letter, job_id, shown):
            log.warning("a message was refused: %s (%s)", refusal.message, refusal.code)

    def _record(self, found: _RefusedMessage) -> None:
        """Write the error record beside the file, if there is one in an inbox."""
        file = self._rags.delivered(found.message.source_path) if found.names_file else None
        if file is not None:
            rags.write_record_beside(file, found.record)

    def _move_to_failed(self, found: _RefusedMessage) -> None:
        """Move a file of an unsupported type from the inbox to the failed folder."""
        message = found.message
        try:
            rag = self._rags.get(message.rag_id)
            place = rag.place(message.source_path, message.filename)
        except InvalidRequest:
            return
        folder = rag.folder(FAILED)
        if folder is not None and place.managed:
            rags.write_error_file(folder, message.filename, found.record)
            target = folder / message.filename
            rags.move(Path(place.read_from), target, part=message.job_id, is_same_file=lambda _: True)


class _Request(msgspec.Struct, frozen=True):
    """A valid message, with the submission for the job."""

    taken: TakenMessage
    raw: dict[str, Any]
    message: Message
    submission: Submission
    again: bool = False
    """The job is new, still open or requeued, so an end that its hash reports is out of date."""


class _RefusedMessage(msgspec.Struct, frozen=True):
    """A refused message: the readable fields, with placeholders for the others."""

    message: Message
    report: ErrorReport
    shown: dict[str, str]
    """The fields of its hash."""
    record: dict[str, Any]
    """The error record that is written beside its file."""
    has_id: bool
    names_file: bool


def _describe_refusal(raw: bytes, decoded: dict[str, Any], refusal: PenstockError) -> _RefusedMessage:
    valid = _valid_fields(decoded or _salvage(raw))
    has_id, names_file = "job_id" in valid, "source_path" in valid
    message = read(_PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())} | valid)
    report = describe_error(
        refusal.code,
        refusal.message,
        source_type=message.source_type,
        filename=message.filename,
        path=message.source_path,
    )
    shown = messages.refused_fields(message, report, clock.now())
    record = messages.error_record(shown, report, _traceback(refusal))
    given = {name: record[name] if name in valid else None for name in ("job_id", "rag_id", "filename")}
    return _RefusedMessage(message, report, shown, record | given, has_id, names_file)


def _traceback(refusal: PenstockError) -> str:
    """Format the traceback of a refusal; the current stack for an error never raised."""
    if refusal.__traceback__ is not None:
        return "".join(traceback.format_exception(refusal))
    head = "Traceback (most recent call last):\n"
    return "".join([head, *traceback.format_stack(), *traceback.format_exception_only(refusal)])


def _valid_fields(decoded: dict[str, Any]) -> dict[str, Any]:
    """Select the valid fields, each checked alone."""
    valid = {}
    probe = _PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())}
    for name, value in decoded.items():
        try:
            read(probe | {name: value})
        except InvalidRequest:
            continue
        if not (name in ("job_id", "source_path", "rag_id") and _UNREADABLE in value):
            valid[name] = value
    return valid


def _salvage(raw: bytes) -> dict[str, Any]:
    """Decode a message with invalid UTF-8 or lone surrogates; empty if there is no JSON object."""
    text = raw.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        whole = json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return decode(whole.decode("utf-16", "replace").encode())
    except (ValueError, RecursionError, InvalidRequest, msgspec.MsgspecError):
        return {}


def _dead_letter(raw: bytes, refusal: PenstockError, decoded: dict[str, Any]) -> dict[str, Any]:
    """Build a dead letter: the reason and the original message, as text if not JSON."""
    return {
        "code": refusal.code,
        "reason": refusal.message,
        "remedy": refusal.remedy,
        "at": clock.format_time(clock.now()),
        "message": decoded or raw.decode("utf-8", "backslashreplace"),
    }
