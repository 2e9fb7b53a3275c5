"""Addition of jobs: duplicates of live rows, backpressure, turns, and dependencies between rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from graphlib import CycleError, TopologicalSorter

import msgspec

from penstock.errors import (
    DependencyCycle,
    DuplicateId,
    InvalidRequest,
    OtherDependencies,
    QueueFull,
    UnknownDependency,
)
from penstock.queue import transitions
from penstock.queue.job import (
    ENDED,
    RETURNED,
    SUSPECT,
    AddResult,
    Changes,
    Held,
    Job,
    NewJob,
    QueueLimits,
    Status,
)
from penstock.queue.rules.rows import Pause, PauseState, Rows, freed, is_kept, refuse_unstorable, wake
from penstock.queue.transitions import (
    Dependencies,
    cancelled_with,
    dependencies_of,
    encoded,
    held_back,
    verdict,
)

_MICROSECOND = timedelta(microseconds=1)
COUNT_CAP = 1_000_000
"""Largest number of pending jobs that the error of a full queue reports."""


def add(rows: Rows, new: Sequence[NewJob], limits: QueueLimits, now: datetime) -> list[AddResult]:
    refuse_unstorable(new)
    # A list, as a generator costs a call for each job.
    waiting = True in [item.after != () for item in new]
    if waiting:
        new = normalized(new)
        # Before other rows: the end of a job locks its own row first, too.
        rows.lock_rows({queue_id for item in new for queue_id in item.after})
    rows.refuse_taken(new)
    if waiting:
        new = _checked(rows, new)
    _refuse_when_full(rows, new, limits)
    turns = _Turns(rows)
    times = _creation_times(new, now)
    added = [_add_one(rows, turns, item, moment) for item, moment in zip(new, times, strict=True)]
    return _await(rows, new, added, now) if waiting else added


def _await(rows: Rows, new: Sequence[NewJob], added: Sequence[AddResult], now: datetime) -> list[AddResult]:
    """Mark the awaited rows; rows waiting for a failed one end at once."""
    ids = sorted({queue_id for item in new for queue_id in item.after})
    _await_rows(rows, ids)
    ended = [queue_id for queue_id in ids if (job := rows.get(queue_id)) is not None and job.ended]
    changed, _ = resolve(rows, ended, now, RESOLVED_AT_ONCE)
    statuses = {after.queue_id: after.status for _, after in changed}
    return [msgspec.structs.replace(each, status=statuses.get(each.queue_id, each.status)) for each in added]


class _Turns:
    """Turn numbers for the rows of one transaction. Each flow is read once."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._heads: dict[int, int | None] = {}
        self._lasts: dict[tuple[str, int], int | None] = {}

    def next(self, tenant_id: str, priority: int) -> int:
        flow = (tenant_id, priority)
        if priority not in self._heads:
            self._heads[priority] = self._rows.head_turn(priority)
        if flow not in self._lasts:
            self._lasts[flow] = self._rows.last_turn(tenant_id, priority)
        return transitions.next_turn(self._heads[priority], self._lasts[flow])

    def record(self, job: Job) -> None:
        head = self._heads.get(job.priority)
        last = self._lasts.get((job.tenant_id, job.priority))
        if job.held is None and job.turn >= 0:
            self._heads[job.priority] = job.turn if head is None else min(head, job.turn)
        self._lasts[job.tenant_id, job.priority] = job.turn if last is None else max(last, job.turn)

    def forget(self) -> None:
        self._heads.clear()
        self._lasts.clear()


def with_turn(rows: Rows, job: Job, changes: Changes) -> Changes:
    """Add a new turn to changes with ``turn`` None."""
    if changes.get("turn", 0) is not None:
        return changes
    priority = changes.get("priority", job.priority)
    return changes | {"turn": _Turns(rows).next(job.tenant_id, priority)}


def with_position(rows: Rows, job: Job, changes: Changes) -> Changes:
    """Add the position of a new run to changes: after the tenant's other rows, or held like a new row."""
    if changes.get("turn", 0) is not None:
        return changes
    after = msgspec.structs.replace(job, **changes | {"turn": 0})
    if _held_during_resume(after, rows.pauses()).held is Held.PAUSE:
        return changes | {"held": Held.PAUSE, "turn": 0}
    return with_turn(rows, job, changes)


def _creation_times(new: Sequence[NewJob], now: datetime) -> list[datetime]:
    """Return creation times of new rows: a microsecond later after each id out of order.

    A resume releases rows by created_at and id, and callers may choose ids without order.
    """
    found, moment = [], now
    for number, item in enumerate(new):
        if number and item.queue_id < new[number - 1].queue_id:
            moment += _MICROSECOND
        found.append(moment)
    return found


def _add_one(rows: Rows, turns: _Turns, new: NewJob, now: datetime) -> AddResult:
    turn = turns.next(new.tenant_id, new.priority)
    added = transitions.added(new, now, turn)
    if new.after:
        added = _waiting(rows, added, new)
    job = _held_during_resume(added, rows.pauses())
    # As NewJob.plain, without a call for each job.
    whole = new.after or new.limit_key or new.backlog_key or new.result_ttl_s
    if _try_insert_whole(rows, job) if whole else rows.try_insert(job):
        turns.record(job)
        return AddResult(job.queue_id, Status.PENDING)
    existing = rows.live(new.tenant_id, new.branch, new.idempotency_key)
    if existing is None:
        raise AssertionError(f"insert of {new.idempotency_key} met a live row that is not there")
    if rows.get(new.queue_id) is not None:
        raise DuplicateId(f"a job with id {new.queue_id} exists already")
    changes = _raised(existing, transitions.coalesced(existing, new, now), rows.pauses())
    rows.change(existing, with_turn(rows, existing, changes))
    if "priority" in changes and existing.held is Held.LOCK and existing.lock_key is not None:
        # The row may now come before the row that was woken for this lock.
        wake(rows, [existing.lock_key], now)
    if changes.keys() & {"turn", "priority", "held"}:
        turns.forget()
    run = changes.get("run", existing.run + 1 if existing.status is Status.IN_PROGRESS else existing.run)
    return AddResult(existing.queue_id, existing.status, run, dedupe_hit=True)


def _try_insert_whole(rows: Rows, job: Job) -> bool:
    """Try to insert a row with columns missing from plain inserts."""
    if job.dedupe and rows.live(job.tenant_id, job.branch, job.idempotency_key) is not None:
        return False
    _insert_whole(rows, job)
    return True


def _insert_whole(rows: Rows, job: Job) -> None:
    if rows.get(job.queue_id) is not None:
        raise DuplicateId(f"a job with id {job.queue_id} exists already")
    rows.insert(job)


def restore(rows: Rows, jobs: Sequence[Job]) -> list[str | None]:
    """Insert whole rows. Returns for each the id of a conflicting row, or None."""
    refuse_unstorable(jobs)
    rows.lock_rows([job.queue_id for job in jobs])
    for job in jobs:
        # Before the first insertion: an engine may read the twins at once, and keep the rows until the end.
        _obstacle(rows, job)
    turns = _Turns(rows)
    return [_restore_one(rows, turns, job) for job in jobs]


def _restore_one(rows: Rows, turns: _Turns, job: Job) -> str | None:
    obstacle = _obstacle(rows, job)
    if obstacle is not None:
        return obstacle
    if job.status is Status.PENDING and job.turn >= 0:
        job = msgspec.structs.replace(job, turn=turns.next(job.tenant_id, job.priority))
        if job.held is None:
            job = _held_during_resume(job, rows.pauses())
        turns.record(job)
    rows.insert(job)
    return None


def _obstacle(rows: Rows, job: Job) -> str | None:
    """The id of the row conflicting with an insertion."""
    if rows.get(job.queue_id) is not None:
        return job.queue_id
    if job.lock_held and job.lock_key is not None and (holder := rows.lock_holder(job.lock_key)):
        return holder
    if job.ended or job.parent_id is not None or not job.dedupe:
        return None
    twin = rows.live(job.tenant_id, job.branch, job.idempotency_key)
    return None if twin is None else twin.queue_id


def add_children(rows: Rows, parent: Job, children: Sequence[NewJob], now: datetime) -> int:
    """Add the children missing in the parent's run. Returns the count; a repeated expansion adds none."""
    turns = _Turns(rows)
    return sum(
        _add_child(rows, turns, parent, child, moment)
        for child, moment in zip(children, _creation_times(children, now), strict=True)
    )


def _add_child(rows: Rows, turns: _Turns, parent: Job, new: NewJob, now: datetime) -> bool:
    turn = turns.next(new.tenant_id, new.priority)
    job = _held_during_resume(transitions.added(new, now, turn, parent), rows.pauses())
    if new.plain:
        inserted = rows.try_insert(job)
    else:
        inserted = not rows.has_child(parent, job.idempotency_key)
        if inserted:
            _insert_whole(rows, job)
    if inserted:
        turns.record(job)
    return inserted


def _refuse_when_full(rows: Rows, new: Sequence[NewJob], limits: QueueLimits) -> None:
    functions = [item for item in new if item.item_type == "function"]
    indexing = [item for item in new if item.item_type != "function"]
    _fits(rows, functions, limits.functions, functions=True)
    _fits(rows, indexing, limits.indexing, functions=False)
    if limits.per_tenant is not None:
        for tenant_id in sorted(Counter(item.tenant_id for item in indexing)):
            own = [item for item in indexing if item.tenant_id == tenant_id]
            _fits(rows, own, limits.per_tenant, functions=False, tenant_id=tenant_id)
    if limits.by_key:
        for key in sorted(limits.by_key.keys() & {item.backlog_key or "" for item in new}):
            own = [item for item in new if item.backlog_key == key]
            if _pending_if_full(rows, own, limits.by_key[key], partial(rows.keyed_backlog, key)) is not None:
                raise QueueFull(rows.keyed_backlog(key, COUNT_CAP), function=key)


def _fits(
    rows: Rows, new: Sequence[NewJob], limit: int | None, *, functions: bool, tenant_id: str | None = None
) -> None:
    if limit is None or not new:
        return

    def count(cap: int) -> int:
        return rows.backlog(functions=functions, tenant_id=tenant_id, cap=cap)

    pending = _pending_if_full(rows, new, limit, count)
    if pending is not None:
        # Counted up to the limit only.
        raise QueueFull(count(COUNT_CAP) if pending > limit else pending)


def _pending_if_full(
    rows: Rows, new: Sequence[NewJob], limit: int, count: Callable[[int], int]
) -> int | None:
    """The number of pending rows, up to one above the limit, if the new rows do not fit; else None."""
    pending = count(limit + 1)
    full = pending + len(new) > limit and pending + _count_fresh(rows, new) > max(limit, pending)
    return pending if full else None


def _count_fresh(rows: Rows, new: Sequence[NewJob]) -> int:
    """Count the new rows; duplicates of live rows are accepted even when the queue is full."""
    fresh = 0
    seen: set[tuple[str, str, str]] = set()
    for item in new:
        key = (item.tenant_id, item.branch, item.idempotency_key)
        if not item.dedupe or (key not in seen and rows.live(*key) is None):
            fresh += 1
        seen.add(key)
    return fresh


def _held_during_resume(job: Job, pauses: Collection[Pause]) -> Job:
    """Hold a new row back while a resume of the scope still has to release older rows."""
    if not pauses or job.held is not None:
        return job
    parked = msgspec.structs.replace(job, held=Held.PAUSE, turn=0)
    resumes = [pause for pause in pauses if pause.phase is not PauseState.PAUSED]
    return parked if is_kept(parked, resumes) else job


def _raised(job: Job, changes: Changes, pauses: Collection[Pause]) -> Changes:
    """Release a held row if a resume has passed the position of the new priority."""
    if job.held is not Held.PAUSE or "priority" not in changes:
        return changes
    if is_kept(msgspec.structs.replace(job, priority=changes["priority"]), pauses):
        return changes
    return changes | freed(job)


_SEPARATOR = "\0"
"""Between an ended row and the last row that was looked at; no id has this character."""

RESOLVED_AT_ONCE = 1_000
"""Rows that one transaction releases or cancels after the end of others."""


def normalized(new: Sequence[NewJob]) -> Sequence[NewJob]:
    """Check the dependencies among new rows. A later duplicate in one call is replaced by the first.

    Cycles are possible only here: every other row existed before those that wait for it.
    """
    first: dict[tuple[str, str, str], str] = {}
    same = {
        item.queue_id: first.setdefault((item.tenant_id, item.branch, item.idempotency_key), item.queue_id)
        for item in new
        if item.dedupe
    }
    renamed = [
        msgspec.structs.replace(item, after=tuple(dict.fromkeys(same.get(each, each) for each in item.after)))
        for item in new
    ]
    graph: dict[str, set[str]] = {}
    for item in renamed:
        graph.setdefault(same.get(item.queue_id, item.queue_id), set()).update(item.after)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = " after ".join(reversed(error.args[1]))
        raise DependencyCycle(f"these jobs would wait for each other: {path}") from None
    return renamed


def refuse_joined(new: Sequence[NewJob]) -> None:
    """Refuse rows not allowed in the transaction of a caller.

    Both kinds would lock other rows until the caller commits, and the workers that hold them would wait.
    """
    if any(item.dedupe for item in new):
        raise InvalidRequest("a job that joins a transaction must have dedupe=False")
    if any(item.after for item in new):
        raise InvalidRequest(
            "a job that joins a transaction cannot wait for other jobs",
            remedy="Leave out connection= or after=.",
        )


def _final_ids(rows: Rows, new: Sequence[NewJob]) -> dict[str, str]:
    """The rows behind new ids: the new rows, or the live rows with the same key."""
    found = {}
    for item in new:
        twin = rows.live(item.tenant_id, item.branch, item.idempotency_key) if item.dedupe else None
        found[item.queue_id] = item.queue_id if twin is None else twin.queue_id
    return found


def _checked(rows: Rows, new: Sequence[NewJob]) -> Sequence[NewJob]:
    """Replace ids of duplicates; refuse unknown jobs, and other dependencies than those of a live row."""
    final = _final_ids(rows, new)
    known: dict[str, NewJob] = {}
    found = []
    for item in new:
        after = tuple(dict.fromkeys(final.get(each, each) for each in item.after))
        for queue_id in after:
            if queue_id not in final and rows.get(queue_id) is None:
                raise refused("unknown", item.queue_id, queue_id)
        own = final[item.queue_id]
        if item.after and own != item.queue_id:
            _refuse_other(item, own, after, _stored(rows.get(own)))
        key = f"{item.tenant_id}\0{item.branch}\0{item.idempotency_key}"
        if item.after and item.dedupe and key in known:
            _refuse_other(item, known[key].queue_id, after, known[key].after)
        found.append(msgspec.structs.replace(item, after=after))
        if item.dedupe:
            known.setdefault(key, found[-1])
    return found


def _stored(job: Job | None) -> tuple[str, ...]:
    return () if job is None else dependencies_of(job).after


def _refuse_other(item: NewJob, live: str, after: Iterable[str], stored: Iterable[str]) -> None:
    if not set(after) <= set(stored):
        raise refused("other", item.queue_id, live)


def refused(kind: str, queue_id: str, other: str) -> InvalidRequest:
    """The error of a dependency on an unknown job, or of others than those of the live row."""
    if kind == "unknown":
        return UnknownDependency(
            f"job {queue_id} cannot wait for {other}: no job has this id, or not any more"
        )
    return OtherDependencies(
        f"job {other} has the same key as {queue_id} and does not wait for the same jobs"
    )


def _await_rows(rows: Rows, ids: Iterable[str]) -> None:
    """Mark these rows as awaited, ended ones too: a requeued row is awaited again."""
    for queue_id in ids:
        job = rows.get(queue_id)
        if job is not None and not job.awaited:
            rows.change(job, {"awaited": True})


def _released(rows: Rows, job: Job, now: datetime) -> Job:
    """The row after the end of the last dependency: held until the start time, or claimable."""
    if job.run_at is not None and job.run_at > now:
        return rows.change(job, {"held": Held.TIME, "turn": min(job.turn, RETURNED), "updated_at": now})
    free = msgspec.structs.replace(job, held=None, run_at=None)
    kept = _held_during_resume(free, rows.pauses())
    changes: Changes = {"held": kept.held, "run_at": None, "updated_at": now}
    if kept.held is None and job.turn >= 0:
        changes["turn"] = transitions.next_turn(
            rows.head_turn(job.priority), rows.last_turn(job.tenant_id, job.priority)
        )
    return rows.change(job, changes)


def _waiting(rows: Rows, job: Job, new: NewJob) -> Job:
    """The new row with dependencies; claimable if all of them have ended well.

    A row that is not there yet is one of the same call.
    """
    job = msgspec.structs.replace(job, after_json=encoded(Dependencies(new.after, new.run_after_failure)))
    found = {queue_id: rows.get(queue_id) for queue_id in new.after}
    statuses = {queue_id: Status.PENDING if row is None else row.status for queue_id, row in found.items()}
    decided = verdict(dependencies_of(job), statuses)
    if not decided.waits and decided.failed is None:
        return job
    return msgspec.structs.replace(job, **held_back(0))


def requeue_changes(rows: Rows, job: Job) -> Changes:
    """The changes of a requeued row: live dependencies are awaited again."""
    if job.after_json is None:
        return {}
    found = dependencies_of(job)
    rows.lock_rows(found.after)
    awaited = [job for job in map(rows.get, found.after) if job is not None and job.status not in ENDED]
    if not awaited:
        return {}
    live = tuple(job.queue_id for job in awaited)
    _await_rows(rows, live)
    # Without the others: the end of a live one must not cancel this job for one that failed before.
    left = msgspec.structs.replace(found, after=live)
    return held_back(SUSPECT if job.lost_count else 0) | {"after_json": encoded(left)}


def resolve(
    rows: Rows, places: Sequence[str], now: datetime, limit: int
) -> tuple[list[tuple[Job, Job]], list[str]]:
    """Release or cancel the rows that wait for ended ones, and those that wait for the cancelled ones.

    A place is an ended row, and the last row looked at before. Returns the changed rows, before and after,
    and the places to continue from after ``limit`` rows.
    """
    left, changed = list(places), []
    while left and limit > 0:
        pairs, seen, rest = _resolve_one(rows, left[0], now, limit)
        limit -= max(seen, 1)
        changed += pairs
        left = [*rest, *left[1:], *(after.queue_id for _, after in pairs if after.ended and after.awaited)]
    return changed, left


def _resolve_one(
    rows: Rows, place: str, now: datetime, limit: int
) -> tuple[list[tuple[Job, Job]], int, list[str]]:
    ended, _, last = place.partition(_SEPARATOR)
    batch = rows.dependents(ended, last, limit)
    statuses = rows.statuses(sorted({each for job in batch for each in dependencies_of(job).after}))
    changed = []
    for job in batch:
        found = verdict(dependencies_of(job), statuses)
        if found.failed is not None:
            settlement = cancelled_with(job, found.failed, statuses[found.failed])
            changed.append((job, rows.change(job, transitions.settled(job, settlement, now))))
        elif not found.waits:
            changed.append((job, _released(rows, job, now)))
    return changed, len(batch), [f"{ended}{_SEPARATOR}{batch[-1].queue_id}"] if len(batch) == limit else []


def resolve_step(rows: Rows, place: str, now: datetime, limit: int) -> tuple[bool, list[str]]:
    """Run one batch of a cascade. Returns True (this place is done) and the places to continue from."""
    _, left = resolve(rows, [place], now, limit)
    return True, left


def unresolved(rows: Rows, after: str, limit: int) -> tuple[list[str], str]:
    """Ended rows with rows still held for them: a crash came before their cascade.

    Reads one batch. Returns their ids, and the id to continue from, empty at the end.
    """
    batch = rows.awaited_rows(after, limit)
    statuses = rows.statuses(batch)
    ended = [each for each in batch if each not in statuses or statuses[each] in ENDED]
    return ended, batch[-1] if len(batch) == limit else ""
