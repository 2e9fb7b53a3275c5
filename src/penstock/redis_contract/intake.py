"""From messages to jobs: take, add, acknowledge. Whatever is repeated after a crash has no second effect."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock import clock
from penstock.delivered_file import ARRIVAL, DeliveredFile
from penstock.errors import (
    Conflict,
    DuplicateId,
    InvalidRequest,
    QueueFull,
    UnknownRag,
    UnsupportedSource,
)
from penstock.job import Status
from penstock.redis_contract import fields, inbox, keys
from penstock.redis_contract.lists import Lists, TakenMessage
from penstock.redis_contract.message import Message, decode, moment_of, read
from penstock.redis_contract.rags import FAILED, Rags
from penstock.redis_contract.refusal import RefusedMessage, letter_of, refused
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission

BATCH = 50
"""Messages taken at once: what one transaction of the queue adds."""

log = logging.getLogger("penstock.gateway")


class Request(NamedTuple):
    """A message that can become a job."""

    taken: TakenMessage
    raw: dict[str, Any]
    message: Message
    submission: Submission
    again: bool = False
    """It begins now, whatever its hash says of an end: the job is new, still open, or was put back."""


class Intake:
    def __init__(self, jobs: Jobs, lists: Lists, rags: Rags) -> None:
        self._jobs = jobs
        self._lists = lists
        self._rags = rags
        self._away_s = jobs.settings.rag_away_s
        self._misplaced: dict[str, str] = {}
        self._held: list[TakenMessage] | None = None
        """Taken and still to be handed over; None: nobody knows, the lists have to be looked at."""

    def forget(self) -> None:
        """What was under way may or may not have happened: look at the lists again."""
        self._held = None

    def step(self) -> list[str]:
        """Hand over what there is, as far as the queue has room. Answers the ids of new jobs."""
        held = self._lists.left() if self._held is None else self._held
        self._held = None
        accepted: list[str] = []
        waiting = self._lists.waiting()
        self._report_misplaced()
        room = self._jobs.room() if held or waiting else 0
        if room:
            more = min(room, BATCH) - len(held)
            # What one tenant has no room for must not keep the others waiting.
            taken = self._lists.take(more) if more > 0 else []
            accepted, held = self._hand_over([*held, *taken])
        self._held = held
        return accepted

    def _report_misplaced(self) -> None:
        """Warn of keys that are no lists, once for each."""
        for key in self._lists.misplaced.keys() - self._misplaced.keys():
            kind = self._lists.misplaced[key]
            log.warning(
                "%s is no list but a %s; nothing can be taken from it, the other lists go on", key, kind
            )
        self._misplaced = self._lists.misplaced

    def expire(self) -> int:
        """Take messages to be refused whose RAG no gateway served for too long; how many."""
        expired = self._lists.expire(away_s=self._away_s)
        if expired:
            self.forget()
        return expired

    def _hand_over(self, held: Sequence[TakenMessage]) -> tuple[list[str], list[TakenMessage]]:
        """The ids of what became jobs, and what the queue had no room for."""
        requests = []
        for taken in held:
            request = self._read(taken)
            if request is not None:
                requests.append(request)
        added, rest = self._add(requests)
        accepted = []
        for request in added:
            shown = _stamped(fields.fresh(request.message))
            file = keys.file_key(request.message.rag_id, request.submission["payload"]["file_path"])
            # Also where the message is gone: if no other gateway has it, the server lost its memory.
            self._lists.accept(request.taken, shown, file=file, again=request.again)
            accepted.append(request.message.job_id)
        return accepted, [request.taken for request in rest]

    def _add(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """All in one transaction; where one of them is refused, each by itself."""
        if not requests:
            return [], []
        try:
            self._jobs.submit_many([request.submission for request in requests])
        except (InvalidRequest, QueueFull):
            return self._add_singly(requests)
        return [request._replace(again=True) for request in requests], []

    def _add_singly(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        added: list[Request] = []
        rest: list[Request] = []
        for request in requests:
            try:
                self._jobs.submit_many([request.submission])
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
        """The request, if the job of this id came by this very message: it was added before a crash, or sent
        twice. Sent once more with a higher retry_count, a job that had failed is put back.
        """
        job = self._jobs.queue.get(request.message.job_id)
        found = msgspec.json.decode(job.metadata).get(fields.MESSAGE) if job is not None else None
        fresh = {"retry_count": 0}
        if job is None or not isinstance(found, dict) or found | fresh != request.raw | fresh:
            self._refuse_twice_used(request, found)
            return None
        later = request.message.retry_count > read(found).retry_count
        if not later or job.status not in (Status.FAILED, Status.CANCELLED):
            return request._replace(again=not job.ended)
        try:
            self._jobs.retry(job.queue_id)
        except Conflict as refusal:
            self._lists.refuse(request.taken, letter_of(request.taken.raw, refusal, request.raw), None, {})
            return None
        return request._replace(again=True)

    # Reading.

    def _read(self, taken: TakenMessage) -> Request | None:
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
            if self._lists.pass_on(taken, _stamped(fields.waiting(message)), away_s=self._away_s):
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
            sent_at=moment_of(message.submitted_at) if place.managed else None,
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

    # Refusing.

    def _refuse_twice_used(self, request: Request, found: Any) -> None:
        """The hash, and perhaps the file, belong to the job that has the id."""
        job_id = request.message.job_id
        refusal = DuplicateId(
            f"the job_id {job_id} was used already, with other content",
            remedy="Give every message a job_id of its own.",
        )
        if not isinstance(found, dict) or found.get("source_path") != request.message.source_path:
            self._record(refused(request.taken.raw, request.raw, refusal))
        self._lists.refuse(request.taken, letter_of(request.taken.raw, refusal, request.raw), None, {})
        log.warning("a message was refused: %s", refusal.message)

    def _refuse(self, taken: TakenMessage, refusal: InvalidRequest, raw: dict[str, Any]) -> None:
        found = refused(taken.raw, raw, refusal)
        job_id = found.message.job_id if found.has_id else None
        # The file before the message: a gateway that is killed in between does both again.
        if job_id is None or self._lists.is_unused(job_id):
            if isinstance(refusal, UnsupportedSource) and found.has_id:
                self._put_aside(found)
            self._record(found)
        shown = _stamped(found.shown) if job_id is not None else {}
        if self._lists.refuse(taken, letter_of(taken.raw, refusal, raw), job_id, shown):
            log.warning("a message was refused: %s (%s)", refusal.message, refusal.code)

    def _record(self, found: RefusedMessage) -> None:
        """Write the error record beside the file, if there is one in an inbox."""
        file = self._rags.delivered(found.message.source_path) if found.names_file else None
        if file is not None:
            inbox.write_beside(file, found.record)

    def _put_aside(self, found: RefusedMessage) -> None:
        """A file of a type nobody reads goes where other failures go, if it is ours to move."""
        message = found.message
        try:
            rag = self._rags.get(message.rag_id)
            place = rag.place(message.source_path, message.filename)
        except InvalidRequest:
            return
        folder = rag.folder(FAILED)
        if folder is not None and place.managed:
            inbox.write_error(folder, message.filename, found.record)
            target = folder / message.filename
            inbox.move(Path(place.read_from), target, part=message.job_id, is_it=lambda _: True)


def _stamped(shown: dict[str, str]) -> dict[str, str]:
    return shown | {"updated_at": clock.format_time(clock.now())}
