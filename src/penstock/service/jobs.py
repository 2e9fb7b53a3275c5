"""Use cases about jobs. A door parses, calls one method here, and renders the result."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack, cast

import msgspec

from penstock import clock, traces, vocabulary
from penstock.config import Settings
from penstock.errors import (
    OUTAGES,
    AmbiguousId,
    CannotCancel,
    CannotRetry,
    InvalidName,
    InvalidRequest,
    InvalidTime,
    JobNotFound,
    LiveTwin,
    UnknownItemType,
    UnknownOperation,
    UnknownStatus,
)
from penstock.queue import payloads
from penstock.queue.job import (
    ENDED,
    SAME_METADATA,
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
    expired,
)
from penstock.queue.protocol import CASCADE_BATCH, POSITION_CAP, CountedAddition, Queue, living_workers
from penstock.queue.transitions import HookCall, hook_jobs
from penstock.service import why
from penstock.service.paths import real_path
from penstock.service.requests import (
    CancelAnswer,
    Details,
    HistoryEntry,
    Receipt,
    RetryAnswer,
    Stats,
    Submission,
    new_jobs,
    refuse_unknown,
)
from penstock.store_outage import read_outage
from penstock.strict_json import encode_payload

MAX_PAGE = 1000
_UNKNOWN = {"held": InvalidRequest, "item_type": UnknownItemType, "op": UnknownOperation}
_PATH_FIELDS: Mapping[str, tuple[str, ...]] = {
    "file": ("file_path",),
    "folder": ("folder_path",),
    "project": ("project_root",),
    "library": ("source_path",),
    "rename": ("old_path", "new_path"),
    "delete_document": ("document_id",),
}
"""Fields of payloads that are paths, or may be one."""
_REMOVING = frozenset({("rename", "update"), ("library", "update")})
"""Jobs that remove what was there before them, beside those with operation ``delete``."""
_ID = r"[A-Za-z0-9._:-]{1,128}"


class JobFilter(TypedDict, total=False):
    """Filters for jobs; all given fields must match. ``status`` takes any door's word, or several."""

    status: str | Collection[str] | None
    item_type: str | None
    op: str | None
    tenant_id: str | None
    collection: str | None
    branch: str | None
    held: str | None
    parent_id: str | None
    error: str | None
    reason: str | None
    q: str | None
    top_level: bool | None
    after: str | None
    newest_first: bool
    by_priority: bool
    limit: int


class Jobs:
    """The jobs of one queue, as one door sees them: the door decides default priorities and status words."""

    def __init__(self, queue: Queue, settings: Settings, *, door: payloads.Source = "library") -> None:
        self.queue = queue
        self.settings = settings
        self.door: payloads.Source = door

    def submit(
        self, *, connection: Any = None, exact: bool = False, **submission: Unpack[Submission]
    ) -> Receipt:
        """Add one job to the queue; the job is stored once this returns.

            receipt = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/a.pdf"})
            app.submit(item_type="function", op="run", payload={"function_name": "mail"}, delay=60)

        If the same request is pending or running, that job is returned (``dedupe_hit``). ``force=True`` adds
        a new job that also indexes unchanged files; ``dedupe=False`` and ``rebuild=True`` are its two parts.
        ``run_at`` (a datetime with a zone, or ISO text) or ``delay`` (seconds or timedelta) give the earliest
        start. ``after``: ids of jobs that have to end first; if one fails or is cancelled, this one is
        cancelled, or runs with ``on_dependency_failure="run"``. ``webhook``: URL that the end is sent to.

        Calls of a function with the same ``key`` are one job. ``connection``, on SQL engines, adds the
        row in the caller's own transaction: it exists when the caller commits, and never dedupes.
        Paths are stored as ``index`` stores them, with links followed; ``exact`` leaves them as given.

        Raises a subclass of ``InvalidRequest``, or ``QueueFull``; then nothing was written.
        """
        given = submission if exact else _with_real_paths(submission)
        return self._submit(given, connection, counted=True)

    def _submit(self, submission: Submission, connection: Any, *, counted: bool) -> Receipt:
        """Add one job; ``counted`` adds the queue position, which costs more than the job itself."""
        joins = connection is not None
        (new,) = self._new([submission], joins=joins)
        if counted and not joins:
            ((added, position),) = self.add_counted([new], self._limits())
            return self.placed(self.receipt_of(new, added, position))
        (added,) = self.add_all([new], self._limits(), connection)
        return self.receipt_of(new, added, None)

    def submit_many(
        self,
        submissions: Sequence[Submission],
        *,
        connection: Any = None,
        limited: bool = True,
        exact: bool = False,
    ) -> list[Receipt]:
        """Add many jobs in one transaction: all, or none. ``limited=False`` ignores the queue limits.

        app.submit_many([{"item_type": "file", "op": "ingest", "payload": {"file_path": p}} for p in paths])
        """
        if not submissions:
            return []
        joins = connection is not None
        given = submissions if exact else list(map(_with_real_paths, submissions))
        new = self._new(given, joins=joins)
        limits = self._limits() if limited else QueueLimits()
        return [self._receipt(answer, None) for answer in self.add_all(new, limits, connection)]

    def add_all(self, new: Sequence[NewJob], limits: QueueLimits, connection: Any = None) -> list[AddResult]:
        """Add checked rows together with their hooks; return the results of the rows."""
        with traces.enqueued(new) as rows:
            hooks = [hook for each in rows for hook in hook_jobs(each, clock.new_ids)]
            return self.queue.add([*rows, *hooks], limits=limits, connection=connection)[: len(new)]

    def add_counted(self, new: Sequence[NewJob], limits: QueueLimits) -> list[CountedAddition]:
        """Add checked rows as ``add_all`` does; return their positions as well."""
        with traces.enqueued(new) as rows:
            hooks = [hook for each in rows for hook in hook_jobs(each, clock.new_ids)]
            return self.queue.add_counted([*rows, *hooks], limits=limits)[: len(new)]

    def _new(self, submissions: Sequence[Submission], *, joins: bool, own: bool = False) -> list[NewJob]:
        return new_jobs(submissions, self.settings, door=self.door, joins=joins, own=own, now=self.queue.now)

    def _without_old_result(self, job: Job) -> Job:
        """The job without an expired result. Upkeep removes the result from the store a little later."""
        if job.result_ttl_s is None or job.result_json is None or not expired(job, self.queue.now()):
            return job
        return msgspec.structs.replace(job, result_json=None)

    def call_submission(self, call: Mapping[str, Any]) -> Submission:
        """Build the submission of a function call. The payload is not checked: functions are unknown here."""
        body = {"function_name": call["name"], "payload": call.get("payload")}
        if call.get("entity") is not None:
            body["entity_type"], body["entity_id"] = call["entity"]
        return Submission(
            item_type="function",
            op="run",
            payload=body,
            tenant_id=call.get("tenant_id"),
            collection=call.get("collection"),
            priority=call.get("priority"),
            key=call.get("key"),
            metadata=call.get("metadata"),
            max_retries=call.get("max_retries"),
            timeout_s=call.get("timeout"),
            webhook=call.get("webhook"),
            on_success=self.hook_call(call.get("on_success")),
            on_failure=self.hook_call(call.get("on_failure")),
        )

    def hook_call(self, name: Any) -> HookCall | None:
        """The call of a hook function after a job, with the defaults of the settings."""
        if name is None:
            return None
        function = getattr(name, "name", name)
        if not isinstance(function, str) or not 1 <= len(function) <= 255:
            raise InvalidName(
                f"function name must be text of 1 to 255 characters, got {str(function)[:80]!a}"
            )
        return HookCall(function, self.settings.max_retries, self.settings.job_timeout_s)

    def room(self) -> int:
        """Number of indexing jobs the queue still accepts, for doors which wait instead of failing."""
        limit = self.settings.max_queue
        return limit - self.queue.backlog(functions=False, cap=limit)

    def _limits(self) -> QueueLimits:
        return QueueLimits(
            indexing=self.settings.max_queue,
            per_tenant=self.settings.max_queue_per_tenant,
            functions=self.settings.max_function_queue,
        )

    def receipt_of(self, new: NewJob, added: AddResult, position: Position | None) -> Receipt:
        """The receipt of a submission, with the position or a later start."""
        receipt = self._receipt(added, position)
        if not added.dedupe_hit and new.run_at is not None and new.run_at > self.queue.now():
            return msgspec.structs.replace(receipt, run_at=new.run_at)
        return receipt

    def placed(self, receipt: Receipt) -> Receipt:
        """The receipt with position and length. A job that does not wait has nobody ahead.

        Reads only for one that runs already, has ended at once, or was not counted when it was added.
        """
        if receipt.queue_position is not None:
            return receipt
        position = self.queue.position(receipt.job_id) if receipt.status is Status.PENDING else None
        length = position.length if position else self.queue.backlog(functions=False, cap=POSITION_CAP)
        return msgspec.structs.replace(
            receipt, queue_position=position.ahead if position else 0, queue_length=length
        )

    def _receipt(self, added: AddResult, position: Position | None) -> Receipt:
        message = "Job queued"
        if added.dedupe_hit:
            message = f"Duplicate: job {added.queue_id} already {self.word(added.status)}"
        elif added.status is not Status.PENDING:
            # Only a job that waits for one that failed or was cancelled ends when it is added.
            job = self.queue.get(added.queue_id)
            cause = job.error_message if job is not None else "a job that it waits for failed"
            message = f"Job {self.word(added.status)}: {cause}"
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
        """Find one job by id or by a unique prefix of an id.

        Raises ``JobNotFound`` or ``AmbiguousId``.
        """
        if not isinstance(id_or_prefix, str) or not re.fullmatch(_ID, id_or_prefix):
            raise JobNotFound(f"no job has the id {str(id_or_prefix)[:80]!a}")
        exact = self.queue.get(id_or_prefix)
        if exact is not None:
            return self._without_old_result(exact)
        found = self.queue.find(JobQuery(prefix=id_or_prefix, limit=6))
        if not found:
            raise JobNotFound(f"no job has the id or prefix {id_or_prefix!r}")
        if len(found) > 1:
            named = ", ".join(job.queue_id for job in found[:5]) + (", …" if len(found) > 5 else "")
            raise AmbiguousId(f"{id_or_prefix!r} is the beginning of several ids: {named}")
        return self._without_old_result(found[0])

    def jobs(self, **filters: Unpack[JobFilter]) -> list[Job]:
        """Find matching jobs, newest id first, at most ``limit`` (50).

            app.jobs(status="failed", tenant_id="me")

        ``after`` is the last id of the previous page.
        """
        return self.queue.find(job_query(filters))

    def details(self, id_or_prefix: str) -> Details:
        """Find one job with queue position, history and the reason why it is waiting."""
        job = self.job(id_or_prefix)
        position = self.queue.position(job.queue_id) if job.status is Status.PENDING else None
        return Details(
            job=job,
            reason=why.reason(self.queue, job, position, self.settings.heartbeat_s),
            queue_position=position.ahead if position else None,
            queue_length=position.length if position else None,
            history=why.history(job),
        )

    def history(self, id_or_prefix: str) -> list[HistoryEntry]:
        """Events of a job, oldest first; besides submit, start and end the last 20 are kept."""
        return why.history(self.job(id_or_prefix))

    def cancel(self, id_or_prefix: str) -> CancelAnswer:
        """Cancel a job and the child jobs. Raises ``CannotCancel`` for an ended job.

        A pending job is cancelled at once; a running job stops at its next checkpoint.
        """
        job_id = self.job(id_or_prefix).queue_id
        (answer,) = self.queue.cancel([job_id])
        if answer.was is None:
            raise JobNotFound(f"job {job_id} has been removed")
        if answer.refused:
            raise CannotCancel(f"Cannot cancel job with status: {self.word(answer.was)}")
        # Children are cancelled after the job; the last of them may have ended it.
        after = self.queue.get(job_id)
        if after is None or after.status is Status.CANCELLED:
            return CancelAnswer(job_id, "cancelled", "Job cancelled")
        return CancelAnswer(job_id, "cancel_requested", "Worker will stop at next checkpoint")

    def retry(self, id_or_prefix: str) -> Job:
        """Retry a failed or cancelled job with all retries; for a parent, the failed children.

        It is a new request for the job's documents: what was removed before the call is indexed again. A job
        that removes or renames keeps its time, so that it leaves what was asked for since.
        Raises ``CannotRetry`` for a job in another status. Raises ``LiveTwin`` when a live job has the same
        key, or holds the lock of a parent that would wait again.
        """
        job = self.job(id_or_prefix)
        job_id = job.queue_id
        (answer,) = self.requeue([job], metadata=self._asked_again(job))
        if answer.was is None:
            raise JobNotFound(f"job {job_id} has been removed")
        if answer.twin is not None:
            raise LiveTwin(
                f"job {answer.twin} is live and does the same, or holds a lock that is needed",
                twin=answer.twin,
            )
        if answer.refused:
            # One that is done does not end once more; the remedy of the others is to wait.
            remedy = (
                "The job did its work: submit it again to do it once more."
                if answer.was is Status.DONE
                else None
            )
            raise CannotRetry(f"Cannot retry job with status: {self.word(answer.was)}", remedy=remedy)
        return self.job(job_id)

    def _asked_again(self, job: Job) -> dict[str, str]:
        """The metadata of a job before and after a new request for it."""
        removing = job.op == "delete" or (job.item_type, job.op) in _REMOVING
        if removing or job.item_type == "function":
            return {}
        metadata = msgspec.json.decode(job.metadata)
        metadata[payloads.ASKED_AT] = clock.format_time(self.queue.now())
        return {job.metadata: encode_payload(metadata, max_bytes=None)}

    def requeue(
        self, jobs: Sequence[Job], *, metadata: Mapping[str, str] = SAME_METADATA
    ) -> list[RequeueResult]:
        """Put a batch of jobs back into the queue with their hooks.

        Their requests stay as old as they are, unless ``metadata`` has other times: a retry of many jobs
        names none of them, and must not bring back what was removed since.
        """
        answers = self.queue.requeue([job.queue_id for job in jobs], metadata=metadata)
        # They will end once more, and the hooks of the last end are over.
        again = [job for job, one in zip(jobs, answers, strict=True) if not (one.refused or job.parent_id)]
        if hooks := [hook for job in again for hook in hook_jobs(job, clock.new_ids)]:
            self.queue.add(hooks)
        return answers

    def retry_failed(self, **filters: Unpack[JobFilter]) -> RetryAnswer:
        """Retry every matching failed job, except those whose key a live job has.

        Unlike with ``retry``, documents that were removed since stay removed.

        app.retry_failed(tenant_id="me")
        """
        retried, twins = 0, dict[str, str]()
        # Parents first: a parent takes its failed children along.
        for top_level in (True, False):
            for answer in self._requeue_failed(filters, top_level=top_level):
                retried += not answer.refused
                if answer.twin is not None:
                    twins[answer.queue_id] = answer.twin
        return RetryAnswer(retried, twins)

    def _requeue_failed(self, filters: JobFilter, *, top_level: bool) -> Iterator[RequeueResult]:
        query = msgspec.structs.replace(
            job_query(filters),
            statuses=frozenset({Status.FAILED}),
            top_level=top_level,
            newest_first=False,
            limit=CASCADE_BATCH,
        )
        while found := self.queue.find(query):
            yield from self.requeue(found)
            query = msgspec.structs.replace(query, after=found[-1].queue_id)

    def pause(self, *, tenant_id: str | None = None, collection: str | None = None) -> Scope:
        """Pause a tenant, a collection, or a tenant's collection; running jobs continue.

        app.pause(tenant_id="me")
        app.pause(tenant_id="*")  # everything
        """
        scope = _scope(tenant_id, collection)
        self.queue.pause(scope)
        return scope

    def resume(self, *, tenant_id: str | None = None, collection: str | None = None) -> int:
        """Resume exactly this paused scope; jobs run in the order of submission.

        Returns the number of held jobs released by this call, some thousand at most; workers release the
        others.
        """
        return self.queue.resume(_scope(tenant_id, collection))

    def paused(self) -> list[Scope]:
        """All paused scopes."""
        return sorted(self.queue.paused())

    def stats(self) -> Stats:
        """Job counts by status, age of the oldest pending job, pauses, living workers and warnings."""
        by_status = dict.fromkeys((status.value for status in Status), 0)
        by_held = dict.fromkeys((reason.value for reason in Held), 0)
        by_item_type: dict[str, dict[str, int]] = {}
        tally = self.queue.tally()
        for (status, held, item_type), number in tally.counts.items():
            by_status[status.value] += number
            of_type = by_item_type.setdefault(item_type, {})
            of_type[status.value] = of_type.get(status.value, 0) + number
            if held is not None:
                by_held[held.value] += number
        oldest = self.queue.oldest()
        return Stats(
            by_status=by_status,
            exact=tally.exact,
            by_held=by_held,
            by_item_type=dict(sorted(by_item_type.items())),
            oldest_pending_at=oldest,
            oldest_pending_age_s=(self.queue.now() - oldest).total_seconds() if oldest else None,
            paused=self.paused(),
            workers=living_workers(self.queue, self.settings.heartbeat_s),
            warnings=self._warnings(),
        )

    def _warnings(self) -> list[str]:
        outage = read_outage(self.settings.state_dir, self.settings.store, clock.now())
        waiting = [outage.text] if outage is not None else []
        try:
            return waiting + self.queue.check()
        except OUTAGES as error:
            return [*waiting, f"{error}. {error.remedy}"]

    def purge(
        self, *, status: str | Collection[str] = ("done", "cancelled"), older_than: timedelta = timedelta(0)
    ) -> int:
        """Remove jobs ended longer ago than ``older_than``, with their children; return their number.

        app.purge(status="done", older_than=timedelta(days=7))
        """
        wanted = _statuses_of(status)
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

    def word(self, status: Status) -> str:
        """The door's word for a status."""
        door = self.door if self.door in vocabulary.DOORS else "job"
        return vocabulary.speak(status, cast("vocabulary.Door", door))


def _scope(tenant_id: str | None, collection: str | None) -> Scope:
    if tenant_id is None and collection is None:
        raise InvalidRequest(
            "name a tenant or a collection",
            remedy="Give a tenant, a collection or both; tenant * is everything.",
        )
    names = Scope(tenant_id or payloads.EVERY, collection or payloads.EVERY)
    if names.tenant_id != payloads.EVERY:
        payloads.validate_name("tenant_id", names.tenant_id)
    if names.collection != payloads.EVERY:
        payloads.validate_name("collection", names.collection)
    return names


def _with_real_paths(submission: Submission) -> Submission:
    """The submission with the paths of its payload as ``index`` stores them; others stay for the check."""
    fields: tuple[str, ...] = ()
    payload: object = None
    if isinstance(submission, dict):  # anything else is refused later
        fields = _PATH_FIELDS.get(submission.get("item_type", ""), ())
        payload = submission.get("payload")
    if not fields or not isinstance(payload, dict | Mapping):
        return submission
    real = {field: path for field in fields if (path := _real(payload.get(field))) is not None}
    return {**submission, "payload": {**payload, **real}} if real else submission


def _real(path: object) -> str | None:
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    try:
        return real_path(path)
    except (OSError, ValueError):  # no path of any disk
        return None


def job_query(filters: JobFilter) -> JobQuery:
    """Check filters, and bring them into the form of the queue."""
    refuse_unknown("jobs", filters, JobFilter)
    limit = filters.get("limit", 50)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"limit: expected a whole number from 1 to {MAX_PAGE}, got {str(limit)[:80]!r}")
    held = _one_of(tuple(Held), "held", filters.get("held"))
    return JobQuery(
        statuses=_statuses_of(filters.get("status")),
        item_type=_one_of(payloads.ITEM_TYPES, "item_type", filters.get("item_type")),
        op=_one_of(payloads.OPERATIONS, "op", filters.get("op")),
        tenant_id=_name("tenant_id", filters.get("tenant_id")),
        collection=_name("collection", filters.get("collection")),
        branch=_name("branch", filters.get("branch")),
        held=Held(held) if held else None,
        parent_id=_name("job_id", filters.get("parent_id")),
        error_code=filters.get("error"),
        error_reason=filters.get("reason"),
        text=filters.get("q"),
        top_level=filters.get("top_level"),
        **_position(filters),
        limit=limit,
    )


def _position(filters: JobFilter) -> dict[str, Any]:
    """Order of the jobs, and the place after which a page begins: an id, in order of priority `5.ID`."""
    after, by_priority = filters.get("after"), filters.get("by_priority", False)
    found: dict[str, Any] = {"newest_first": filters.get("newest_first", True), "by_priority": by_priority}
    if after is not None and by_priority:
        priority, _, after = after.partition(".")
        if not priority.isdecimal() or len(priority) > 2 or not after:
            raise InvalidRequest("cursor: not one of a list in order of priority", remedy="Use next.")
        found["after_priority"] = int(priority)
    return found | {"after": _name("job_id", after)}


def cursor_after(job: Job, *, by_priority: bool) -> str:
    """The place of a job in a list, for ``after``."""
    return f"{job.priority}.{job.queue_id}" if by_priority else job.queue_id


def _statuses_of(words: str | Collection[str] | None) -> frozenset[Status]:
    """The statuses for these words, as used by any interface."""
    if words is None:
        return frozenset()
    return frozenset(_status(word) for word in ([words] if isinstance(words, str) else words))


def _status(word: str) -> Status:
    canonical = vocabulary.understand(word)
    if canonical not in set(Status):
        raise UnknownStatus(f"{word!r} is a status of tasks, not of jobs")
    return Status(canonical)


def _one_of(known: tuple[str, ...], field: str, word: str | None) -> str | None:
    # A filter that can match nothing is a typing mistake, not an empty result.
    if word is not None and word not in known:
        raise _UNKNOWN[field](f"{field}: expected one of {', '.join(known)}, got {str(word)[:80]!a}")
    return word


def _name(field: payloads.NameKind, value: str | None) -> str | None:
    return None if value is None else payloads.validate_name(field, value)
