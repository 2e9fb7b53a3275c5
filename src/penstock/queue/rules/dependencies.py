"""Dependencies between rows: new rows with dependencies, and the effects of an ended row on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from graphlib import CycleError, TopologicalSorter

import msgspec

from penstock import transitions
from penstock.dependencies import Dependencies, cancelled_with, dependencies_of, encoded, held_back, verdict
from penstock.errors import DependencyCycle, InvalidRequest, OtherDependencies, UnknownDependency
from penstock.job import ENDED, RETURNED, SUSPECT, Changes, Held, Job, NewJob, Status
from penstock.queue.rules.pauses import held_during_resume
from penstock.queue.rules.rows import Rows

SEPARATOR = "\0"
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


def final_ids(rows: Rows, new: Sequence[NewJob]) -> dict[str, str]:
    """The rows behind new ids: the new rows, or the live rows with the same key."""
    found = {}
    for item in new:
        twin = rows.live(item.tenant_id, item.branch, item.idempotency_key) if item.dedupe else None
        found[item.queue_id] = item.queue_id if twin is None else twin.queue_id
    return found


def checked(rows: Rows, new: Sequence[NewJob]) -> Sequence[NewJob]:
    """Replace ids of duplicates; refuse unknown jobs, and other dependencies than those of a live row."""
    final = final_ids(rows, new)
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


def await_rows(rows: Rows, ids: Iterable[str]) -> None:
    """Mark these rows as awaited, ended ones too: a requeued row is awaited again."""
    for queue_id in ids:
        job = rows.get(queue_id)
        if job is not None and not job.awaited:
            rows.change(job, {"awaited": True})


def released(rows: Rows, job: Job, now: datetime) -> Job:
    """The row after the end of the last dependency: held until the start time, or claimable."""
    if job.run_at is not None and job.run_at > now:
        return rows.change(job, {"held": Held.TIME, "turn": min(job.turn, RETURNED), "updated_at": now})
    free = msgspec.structs.replace(job, held=None, run_at=None)
    kept = held_during_resume(free, rows.pauses())
    changes: Changes = {"held": kept.held, "run_at": None, "updated_at": now}
    if kept.held is None and job.turn >= 0:
        changes["turn"] = transitions.next_turn(
            rows.head_turn(job.priority), rows.last_turn(job.tenant_id, job.priority)
        )
    return rows.change(job, changes)


def waiting(rows: Rows, job: Job, new: NewJob) -> Job:
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
    await_rows(rows, live)
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
    ended, _, last = place.partition(SEPARATOR)
    batch = rows.dependents(ended, last, limit)
    statuses = rows.statuses(sorted({each for job in batch for each in dependencies_of(job).after}))
    changed = []
    for job in batch:
        found = verdict(dependencies_of(job), statuses)
        if found.failed is not None:
            settlement = cancelled_with(job, found.failed, statuses[found.failed])
            changed.append((job, rows.change(job, transitions.settled(job, settlement, now))))
        elif not found.waits:
            changed.append((job, released(rows, job, now)))
    return changed, len(batch), [f"{ended}{SEPARATOR}{batch[-1].queue_id}"] if len(batch) == limit else []


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
