"""Every use case about jobs, once. A door parses, calls one method here, and renders the answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack, cast

import msgspec

from penstock import items, vocabulary
from penstock.config import Settings
from penstock.errors import (
    AmbiguousId,
    CannotCancel,
    CannotRetry,
    InvalidRequest,
    InvalidTime,
    JobNotFound,
    LiveTwin,
    StoreReadOnly,
    UnknownItemType,
    UnknownOperation,
    UnknownStatus,
)
from penstock.job import (
    ENDED,
    AddResult,
    Held,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RequeueResult,
    Scope,
    Status,
)
from penstock.queue.protocol import CASCADE_BATCH, Queue
from penstock.service import explanations
from penstock.service.requests import Submission, new_jobs
from penstock.service.responses import CancelAnswer, Details, HistoryEntry, Receipt, RetryAnswer, Stats

MAX_PAGE = 1000
_UNKNOWN = {"held": InvalidRequest, "item_type": UnknownItemType, "op": UnknownOperation}
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class JobFilter(TypedDict, total=False):
    """Which jobs are meant; all given fields must match. ``status`` takes any door's word, or several."""

    status: str | Collection[str] | None
    item_type: str | None
    op: str | None
    tenant_id: str | None
    collection: str | None
    branch: str | None
    held: str | None
    parent_id: str | None
    top_level: bool | None
    after: str | None
    newest_first: bool
    limit: int


class Jobs:
    """The jobs of one queue, as one door sees them: the door decides default priorities and status words."""

    def __init__(self, queue: Queue, settings: Settings, *, door: items.Source = "library") -> None:
        self.queue = queue
        self.settings = settings
        self.door: items.Source = door

    def submit(self, *, connection: Any = None, **submission: Unpack[Submission]) -> Receipt:
        """Put one job into the queue; it is kept once this returns.

            receipt = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/a.pdf"})
            app.submit(item_type="function", op="run", payload={"function_name": "mail"}, delay=60)

        A live job that is the same request answers for this one (``dedupe_hit``). ``force=True`` makes it a
        job of its own that also ignores "unchanged"; ``dedupe=False`` and ``rebuild=True`` are the two parts.
        ``run_at`` (a datetime with a zone, or ISO text) or ``delay`` (seconds or timedelta) say not before
        when. ``key`` says which calls of a function are one. ``connection``, on SQL engines, adds the row in
        the caller's own transaction: it exists when the caller commits, and is always a row of its own.

        Raises a subclass of ``InvalidRequest``, or ``QueueFull``; then nothing was written.
        """
        return self._submit(submission, connection, counted=True)

    def _submit(self, submission: Submission, connection: Any, *, counted: bool) -> Receipt:
        """``counted``: say how many jobs are ahead, which takes longer than adding one."""
        joins = connection is not None
        (new,) = self._new([submission], joins=joins)
        (added,) = self.queue.add([new], limits=self._limits(), connection=connection)
        later = not added.dedupe_hit and new.run_at is not None and new.run_at > self.queue.now()
        asked = counted and connection is None and not later
        receipt = self._receipt(added, self.queue.position(added.queue_id) if asked else None)
        return msgspec.structs.replace(receipt, run_at=new.run_at) if later else receipt

    def submit_many(
        self, submissions: Sequence[Submission], *, connection: Any = None, limited: bool = True
    ) -> list[Receipt]:
        """Put many jobs into the queue in one transaction: all, or none. Not ``limited``: however many wait.

        app.submit_many([{"item_type": "file", "op": "ingest", "payload": {"file_path": p}} for p in paths])
        """
        if not submissions:
            return []
        joins = connection is not None
        new = self._new(submissions, joins=joins)
        limits = self._limits() if limited else QueueLimits()
        added = self.queue.add(new, limits=limits, connection=connection)
        return [self._receipt(answer, None) for answer in added]

    def _new(self, submissions: Sequence[Submission], *, joins: bool) -> list[NewJob]:
        new = new_jobs(submissions, self.settings, door=self.door, joins=joins, now=self.queue.now)
        for job in new:
            if job.item_type in items.APPLICATIONS_ONLY and not self._has_handler(job.item_type, job.op):
                raise items.no_handler(job.item_type, job.op)
        return new

    def _has_handler(self, _item_type: str, _op: str) -> bool:
        """Whether the application behind this door registered a handler; a plain door has none."""
        return False

    def room(self) -> int:
        """How many more indexing jobs the queue takes now, for doors that hold back instead of failing."""
        limit = self.settings.max_queue
        return limit - self.queue.backlog(functions=False, cap=limit)

    def _limits(self) -> QueueLimits:
        return QueueLimits(
            indexing=self.settings.max_queue,
            per_tenant=self.settings.max_queue_per_tenant,
            functions=self.settings.max_function_queue,
        )

    def _receipt(self, added: AddResult, position: Position | None) -> Receipt:
        message = "Job queued"
        if added.dedupe_hit:
            message = f"Duplicate: job {added.queue_id} already {self._word(added.status)}"
        return Receipt(
            job_id=added.queue_id,
            status=added.status,
            message=message,
            run=added.run,
            dedupe_hit=added.dedupe_hit,
            queue_position=position.ahead if position else None,
            queue_length=position.length if position else None,
        )

    def job(self, id_or_prefix: str) -> Job:
        """One job, by its id or by any prefix that only one id has.

        Raises ``JobNotFound`` or ``AmbiguousId``.
        """
        if not isinstance(id_or_prefix, str) or not _ID.fullmatch(id_or_prefix):
            raise JobNotFound(f"no job has the id {str(id_or_prefix)[:80]!a}")
        exact = self.queue.get(id_or_prefix)
        if exact is not None:
            return exact
        found = self.queue.find(JobQuery(prefix=id_or_prefix, limit=6))
        if not found:
            raise JobNotFound(f"no job has the id or prefix {id_or_prefix!r}")
        if len(found) > 1:
            named = ", ".join(job.queue_id for job in found[:5]) + (", …" if len(found) > 5 else "")
            raise AmbiguousId(f"{id_or_prefix!r} is the beginning of several ids: {named}")
        return found[0]

    def jobs(self, **filters: Unpack[JobFilter]) -> list[Job]:
        """Jobs that match, newest id first, at most ``limit`` (50) of them.

            app.jobs(status="failed", tenant_id="me")

        ``after`` is the last id of the page before.
        """
        return self.queue.find(_query(filters))

    def details(self, id_or_prefix: str) -> Details:
        """One job with its place in the queue, the reason why it is not running, and its history."""
        job = self.job(id_or_prefix)
        position = self.queue.position(job.queue_id) if job.status is Status.PENDING else None
        return Details(
            job=job,
            reason=explanations.reason(self.queue, job, position),
            queue_position=position.ahead if position else None,
            queue_length=position.length if position else None,
            history=explanations.history(job),
        )

    def history(self, id_or_prefix: str) -> list[HistoryEntry]:
        """What happened to a job, in the order of time. Departures from the plain path are kept up to 20."""
        return explanations.history(self.job(id_or_prefix))

    def cancel(self, id_or_prefix: str) -> CancelAnswer:
        """Stop a job and the jobs it expanded into. Raises ``CannotCancel`` when it has ended.

        A pending job is cancelled at once; a running one is asked to stop at its next checkpoint.
        """
        job_id = self.job(id_or_prefix).queue_id
        (answer,) = self.queue.cancel([job_id])
        if answer.was is None:
            raise JobNotFound(f"job {job_id} has been removed")
        if answer.refused:
            raise CannotCancel(f"Cannot cancel job with status: {self._word(answer.was)}")
        # Children are stopped after the answer was made; the last of them may have ended the job.
        after = self.queue.get(job_id)
        if after is None or after.status is Status.CANCELLED:
            return CancelAnswer(job_id, "cancelled", "Job cancelled")
        return CancelAnswer(job_id, "cancel_requested", "Worker will stop at next checkpoint")

    def retry(self, id_or_prefix: str) -> Job:
        """Put a failed or cancelled job back, with all its retries; of a parent, the children that failed.

        Raises ``CannotRetry`` when it has not ended badly, ``LiveTwin`` when a live job does the same or
        holds the lock of a parent that would wait again.
        """
        job_id = self.job(id_or_prefix).queue_id
        (answer,) = self.queue.requeue([job_id])
        if answer.was is None:
            raise JobNotFound(f"job {job_id} has been removed")
        if answer.twin is not None:
            raise LiveTwin(
                f"job {answer.twin} is live and does the same, or holds a lock that is needed",
                twin=answer.twin,
            )
        if answer.refused:
            raise CannotRetry(f"Cannot retry job with status: {self._word(answer.was)}")
        return self.job(job_id)

    def retry_failed(self, **filters: Unpack[JobFilter]) -> RetryAnswer:
        """Put back every failed job that matches. Those with a live twin stay, and are named.

        app.retry_failed(tenant_id="me")
        """
        retried, twins = 0, dict[str, str]()
        # Parents first: putting one back takes its failed children along.
        for top_level in (True, False):
            for answer in self._requeue_failed(filters, top_level=top_level):
                retried += not answer.refused
                if answer.twin is not None:
                    twins[answer.queue_id] = answer.twin
        return RetryAnswer(retried, twins)

    def _requeue_failed(self, filters: JobFilter, *, top_level: bool) -> Iterator[RequeueResult]:
        query = msgspec.structs.replace(
            _query(filters),
            statuses=frozenset({Status.FAILED}),
            top_level=top_level,
            newest_first=False,
            limit=CASCADE_BATCH,
        )
        while found := self.queue.find(query):
            ids = [job.queue_id for job in found]
            yield from self.queue.requeue(ids)
            query = msgspec.structs.replace(query, after=ids[-1])

    def pause(self, *, tenant_id: str | None = None, collection: str | None = None) -> Scope:
        """Stop claiming from a tenant, a collection, or a tenant's collection; what runs goes on.

        app.pause(tenant_id="me")
        app.pause(tenant_id="*")  # everything
        """
        scope = _scope(tenant_id, collection)
        self.queue.pause(scope)
        return scope

    def resume(self, *, tenant_id: str | None = None, collection: str | None = None) -> int:
        """Undo a pause of exactly this scope; its jobs run in the order in which they were submitted.

        Answers how many held jobs this call released, some thousand at most; workers release the others.
        """
        return self.queue.resume(_scope(tenant_id, collection))

    def paused(self) -> list[Scope]:
        """Every scope that is paused."""
        return sorted(self.queue.paused())

    def stats(self) -> Stats:
        """How many jobs stand where, how long the oldest has waited, what is paused, and who works."""
        by_status = dict.fromkeys((status.value for status in Status), 0)
        by_held = dict.fromkeys((reason.value for reason in Held), 0)
        by_item_type: dict[str, dict[str, int]] = {}
        counts, exact = self.queue.tally()
        for (status, held, item_type), number in counts.items():
            by_status[status.value] += number
            of_type = by_item_type.setdefault(item_type, {})
            of_type[status.value] = of_type.get(status.value, 0) + number
            if held is not None:
                by_held[held.value] += number
        oldest = self.queue.oldest()
        return Stats(
            by_status=by_status,
            exact=exact,
            by_held=by_held,
            by_item_type=dict(sorted(by_item_type.items())),
            oldest_pending_at=oldest,
            oldest_pending_age_s=(self.queue.now() - oldest).total_seconds() if oldest else None,
            paused=self.paused(),
            workers=self.queue.workers(),
            warnings=self._warnings(),
        )

    def _warnings(self) -> list[str]:
        try:
            return self.queue.check()
        except StoreReadOnly as error:
            return [str(error)]

    def purge(
        self, *, status: str | Collection[str] = ("done", "cancelled"), older_than: timedelta = timedelta(0)
    ) -> int:
        """Remove jobs that ended longer ago than ``older_than``, their children with them. Answers how many.

        app.purge(status="done", older_than=timedelta(days=7))
        """
        wanted = _statuses(status)
        if not wanted or not wanted <= ENDED:
            raise InvalidRequest(
                "purge removes only jobs that have ended", remedy="Use done, failed or cancelled."
            )
        if older_than < timedelta(0):
            raise InvalidTime("older_than: expected a duration that is not negative", remedy="Use 0 for all.")
        before = self.queue.now() - older_than
        removed = 0
        while gone := self.queue.prune(dict.fromkeys(wanted, before)):
            removed += gone
        return removed

    def _word(self, status: Status) -> str:
        spoken = self.door if self.door in vocabulary.DOORS else "job"
        return vocabulary.speak(status, cast("vocabulary.Door", spoken))


def _query(filters: JobFilter) -> JobQuery:
    unknown = sorted(set(filters) - JobFilter.__optional_keys__)
    if unknown:
        raise InvalidRequest(f"unknown filter {unknown[0]!r}")
    limit = filters.get("limit", 50)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"limit: expected a whole number from 1 to {MAX_PAGE}, got {str(limit)[:80]!r}")
    held = _one_of(tuple(Held), "held", filters.get("held"))
    return JobQuery(
        statuses=_statuses(filters.get("status")),
        item_type=_one_of(items.ITEM_TYPES, "item_type", filters.get("item_type")),
        op=_one_of(items.OPERATIONS, "op", filters.get("op")),
        tenant_id=_name("tenant_id", filters.get("tenant_id")),
        collection=_name("collection", filters.get("collection")),
        branch=_name("branch", filters.get("branch")),
        held=Held(held) if held else None,
        parent_id=_name("job_id", filters.get("parent_id")),
        top_level=filters.get("top_level"),
        after=_name("job_id", filters.get("after")),
        newest_first=filters.get("newest_first", True),
        limit=limit,
    )


def _statuses(words: str | Collection[str] | None) -> frozenset[Status]:
    if words is None:
        return frozenset()
    return frozenset(_status(word) for word in ([words] if isinstance(words, str) else words))


def _status(word: str) -> Status:
    canonical = vocabulary.understand(word)
    if canonical not in set(Status):
        raise UnknownStatus(f"{word!r} is a status of tasks, not of jobs")
    return Status(canonical)


def _one_of(known: tuple[str, ...], field: str, word: str | None) -> str | None:
    # A filter that can match nothing is a typing mistake, not an empty answer.
    if word is not None and word not in known:
        raise _UNKNOWN[field](f"{field}: expected one of {', '.join(known)}, got {str(word)[:80]!a}")
    return word


def _name(kind: items.NameKind, value: str | None) -> str | None:
    return None if value is None else items.validate_name(kind, value)


def _scope(tenant_id: str | None, collection: str | None) -> Scope:
    if tenant_id is None and collection is None:
        raise InvalidRequest(
            "name a tenant or a collection",
            remedy="Give a tenant, a collection or both; tenant * is everything.",
        )
    names = Scope(tenant_id or items.EVERY, collection or items.EVERY)
    if names.tenant_id != items.EVERY:
        items.validate_name("tenant_id", names.tenant_id)
    if names.collection != items.EVERY:
        items.validate_name("collection", names.collection)
    return names
