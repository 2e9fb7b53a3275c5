"""Intake: take messages, add jobs, acknowledge. Repeating a step after a crash has no second effect."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.errors import (
    Conflict,
    DuplicateId,
    InvalidRequest,
    QueueFull,
    UnknownRag,
    UnsupportedSource,
)
from penstock.named_tuple import NamedTuple
from penstock.queue.job import Status
from penstock.queue.payloads import ARRIVAL, DeliveredFile
from penstock.redis_contract import fields, inbox, keys
from penstock.redis_contract.lists import Lists, TakenMessage
from penstock.redis_contract.message import Message, decode, parse_time, read
from penstock.redis_contract.oversized import read_oversized
from penstock.redis_contract.rags import FAILED, Rags
from penstock.redis_contract.refusal import RefusedMessage, dead_letter, describe_refusal
from penstock.redis_contract.reindex_series import ReindexSeries
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission

BATCH = 50
"""Messages taken at once and added in one transaction of the queue."""

log = logging.getLogger("penstock.gateway")


class Request(NamedTuple):
    """A valid message, with the submission for the job."""

    taken: TakenMessage
    raw: dict[str, Any]
    message: Message
    submission: Submission
    again: bool = False
    """The job is new, still open or requeued, so an end that its hash reports is out of date."""


class Intake:
    """Turns messages into jobs, as far as the queue has room."""

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
            more = min(room, BATCH) - len(held)
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
            shown = _with_update_time(fields.initial_fields(request.message))
            file = keys.file_key(request.message.rag_id, request.submission["payload"]["file_path"])
            # Also if the message is gone: unless another gateway has it, the server lost its data.
            self._lists.accept(request.taken, shown, file=file, again=request.again)
            accepted.append(request.message.job_id)
        return accepted, [request.taken for request in rest]

    def _join_series(self, requests: Sequence[Request]) -> None:
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
                fields.SERIES: begun_at,
            }

    def _add(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """Add all requests in one transaction; if one of them is refused, one by one."""
        if not requests:
            return [], []
        try:
            self._jobs.submit_many([request.submission for request in requests], exact=True)
        except (InvalidRequest, QueueFull):
            return self._add_singly(requests)
        return [request._replace(again=True) for request in requests], []

    def _add_singly(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        added: list[Request] = []
        rest: list[Request] = []
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
                added.append(request._replace(again=True))
        return added, rest

    def _known(self, request: Request) -> Request | None:
        """Return the request if the job with this id was made from the same message, else refuse it.

        The same message arrives again after a crash, or if it was sent twice. With a higher retry_count it
        requeues a failed job.
        """
        job = self._jobs.queue.get(request.message.job_id)
        found = msgspec.json.decode(job.metadata).get(fields.MESSAGE) if job is not None else None
        fresh = {"retry_count": 0}
        if job is None or not isinstance(found, dict) or found | fresh != request.raw | fresh:
            self._refuse_reused_id(request, found)
            return None
        later = request.message.retry_count > read(found).retry_count
        if not later or job.status not in (Status.FAILED, Status.CANCELLED):
            return request._replace(again=not job.ended)
        try:
            self._jobs.retry(job.queue_id)
        except Conflict as refusal:
            self._lists.refuse(request.taken, dead_letter(request.taken.raw, refusal, request.raw), None, {})
            return None
        return request._replace(again=True)

    # Messages.

    def _read(self, taken: TakenMessage) -> Request | None:
        oversized = read_oversized(taken.raw)
        if oversized is not None:
            refusal = oversized.refusal()
            self._refuse(taken, refusal, oversized.fields(), oversized.letter(refusal))
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
                taken, _with_update_time(fields.waiting_fields(message)), away_s=self._away_s
            ):
                log.info("a message for %s is left to a gateway that serves it", message.rag_id)
            else:
                self._refuse(taken, refusal, raw)
            return None
        except InvalidRequest as refusal:
            self._refuse(taken, refusal, raw)
            return None
        return Request(taken, raw, message, submission)

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
            fields.MANAGED: place.managed,
            fields.MESSAGE: raw,
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

    def _refuse_reused_id(self, request: Request, found: Any) -> None:
        """Refuse a message with a used id. The hash, and perhaps the file, belong to another job."""
        job_id = request.message.job_id
        refusal = DuplicateId(
            f"the job_id {job_id} was used already, with other content",
            remedy="Give every message a different job_id.",
        )
        if not isinstance(found, dict) or found.get("source_path") != request.message.source_path:
            self._record(describe_refusal(request.taken.raw, request.raw, refusal))
        self._lists.refuse(request.taken, dead_letter(request.taken.raw, refusal, request.raw), None, {})
        log.warning("a message was refused: %s", refusal.message)

    def _refuse(
        self,
        taken: TakenMessage,
        refusal: InvalidRequest,
        raw: dict[str, Any],
        letter: dict[str, Any] | None = None,
    ) -> None:
        found = describe_refusal(taken.raw, raw, refusal)
        job_id = found.message.job_id if found.has_id else None
        # The file before the message: after a kill in between, both steps are repeated.
        if job_id is None or self._lists.is_unused(job_id):
            if isinstance(refusal, UnsupportedSource) and found.has_id:
                self._move_to_failed(found)
            self._record(found)
        shown = _with_update_time(found.shown) if job_id is not None else {}
        letter = letter or dead_letter(taken.raw, refusal, raw)
        if self._lists.refuse(taken, letter, job_id, shown):
            log.warning("a message was refused: %s (%s)", refusal.message, refusal.code)

    def _record(self, found: RefusedMessage) -> None:
        """Write the error record beside the file, if there is one in an inbox."""
        file = self._rags.delivered(found.message.source_path) if found.names_file else None
        if file is not None:
            inbox.write_record_beside(file, found.record)

    def _move_to_failed(self, found: RefusedMessage) -> None:
        """Move a file of an unsupported type from the inbox to the failed folder."""
        message = found.message
        try:
            rag = self._rags.get(message.rag_id)
            place = rag.place(message.source_path, message.filename)
        except InvalidRequest:
            return
        folder = rag.folder(FAILED)
        if folder is not None and place.managed:
            inbox.write_error_file(folder, message.filename, found.record)
            target = folder / message.filename
            inbox.move(Path(place.read_from), target, part=message.job_id, is_same_file=lambda _: True)


def _with_update_time(shown: dict[str, str]) -> dict[str, str]:
    return shown | {"updated_at": clock.format_time(clock.now())}
