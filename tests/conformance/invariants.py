"""Invariants of the rows of every queue, checked from the jobs alone; results of calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.queue.job import CHILDREN, ENDED, SUSPECT, Held, Job, Status
from penstock.queue.protocol import Queue
from penstock.queue.transitions import WaitDecision, dependencies_of, verdict


def breaches(jobs: Sequence[Job], *, cut_trees: frozenset[str] = frozenset()) -> list[str]:
    """Every broken promise, in words. ``cut_trees``: roots of which a prune has taken some children."""
    return [
        *_broken_rows(jobs),
        *_broken_counts(jobs, cut_trees),
        *_shared_locks(jobs),
        *_forgotten_locks(jobs),
        *_shared_keys(jobs),
        *_forgotten_dependencies(jobs),
    ]


def _broken_rows(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        for name, true in _facts(job):
            if not true:
                yield f"{job.queue_id}: {name}"


def _facts(job: Job) -> Iterator[tuple[str, bool]]:
    pending = job.status is Status.PENDING
    running = job.status is Status.IN_PROGRESS
    yield "ended without a time, or a time without an end", job.ended is (job.finished_at is not None)
    yield "leased though not in progress", running or job.lease_until is None
    yield "in progress with neither lease nor anything to wait for", not running or _occupied(job)
    yield "waits for children that have all ended", not _waits_in_vain(job)
    yield "held though not pending", pending or job.held is None
    yield "scheduled without a time, or a time without being scheduled", _scheduled(job)
    yield "parked for a lock that it does not want or already has", job.held is not Held.LOCK or _wants(job)
    yield "waits for no limit, or has a slot too", job.held is not Held.LIMIT or _wants_slot(job)
    yield "can be claimed without a slot", not (pending and job.held is None and _wants_slot(job))
    yield "has a slot that it does not use", job.limit_at is None or _uses_slot(job)
    yield "waits for its lock in a slot", not (job.limit_at is not None and _wants(job))
    yield "turn below the suspects", job.turn >= SUSPECT
    yield "more retries than allowed", job.retry_count <= job.max_retries
    yield "failed without a message", job.status is not Status.FAILED or bool(job.error_message)
    yield "ended and still holds its lock", not (job.ended and job.lock_held)
    yield "in progress without its lock", not (running and _wants(job))


def _occupied(job: Job) -> bool:
    return job.lease_until is not None or job.waiting_for is not None


def _waits_in_vain(job: Job) -> bool:
    return job.waiting and job.waiting_for == CHILDREN and job.children_open == 0


def _scheduled(job: Job) -> bool:
    if job.held is Held.AFTER:
        return True
    return (job.held is Held.TIME) is (job.run_at is not None)


def _wants(job: Job) -> bool:
    return job.lock_key is not None and not job.lock_held


def _wants_slot(job: Job) -> bool:
    return job.limit_key is not None and job.limit_at is None


def _uses_slot(job: Job) -> bool:
    waits = job.status is Status.PENDING and job.held in (None, Held.TIME)
    return job.limit_key is not None and (waits or job.lease_until is not None)


def _broken_counts(jobs: Sequence[Job], cut_trees: frozenset[str]) -> Iterator[str]:
    opened: Counter[tuple[str | None, int | None]] = Counter()
    failed: Counter[tuple[str | None, int | None]] = Counter()
    for job in jobs:
        opened[job.parent_id, job.parent_run] += job.status not in ENDED
        failed[job.parent_id, job.parent_run] += job.status is Status.FAILED
    for job in jobs:
        counted = (opened[job.queue_id, job.run], failed[job.queue_id, job.run])
        if (job.children_open, job.children_failed) != counted and job.root_id not in cut_trees:
            yield f"{job.queue_id}: counts {job.children_open, job.children_failed}, has {counted}"


def _shared_locks(jobs: Sequence[Job]) -> Iterator[str]:
    holders = Counter(job.lock_key for job in jobs if job.lock_held)
    yield from (f"lock {key} has {count} holders" for key, count in holders.items() if count > 1)


def _forgotten_locks(jobs: Sequence[Job]) -> Iterator[str]:
    taken = {job.lock_key for job in jobs if job.lock_held}
    about = (None, Held.LIMIT)
    next_ones = {job.lock_key for job in jobs if job.status is Status.PENDING and job.held in about}
    for job in jobs:
        if job.held is Held.LOCK and job.lock_key not in taken | next_ones:
            yield f"{job.queue_id}: parked for {job.lock_key}, which nobody holds or is about to take"


def _shared_keys(jobs: Sequence[Job]) -> Iterator[str]:
    owners: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for job in jobs:
        if job.dedupe and job.parent_id is None and not job.ended:
            owners[job.tenant_id, job.branch, job.idempotency_key].append(job.queue_id)
    yield from (f"{key} is live in {ids}" for key, ids in owners.items() if len(ids) > 1)


def _forgotten_dependencies(jobs: Sequence[Job]) -> Iterator[str]:
    statuses = {job.queue_id: job.status for job in jobs}
    awaited = {job.queue_id for job in jobs if job.awaited}
    for job in jobs:
        if job.held is not Held.AFTER:
            continue
        found = dependencies_of(job)
        if verdict(found, statuses) != WaitDecision(waits=True):
            yield f"{job.queue_id}: held for {found.after}, of which none is live or one failed"
        live = {each for each in found.after if each in statuses and statuses[each] not in ENDED}
        yield from (f"{job.queue_id}: waits for {each}, which does not know" for each in live - awaited)


def differences(found: Sequence[Job], expected: Sequence[Job]) -> list[str]:
    """Every different value of two lists of jobs, in words."""
    here = {job.queue_id: msgspec.structs.asdict(job) for job in found}
    there = {job.queue_id: msgspec.structs.asdict(job) for job in expected}
    lines = [f"  {name} is only in the engine" for name in here.keys() - there.keys()]
    lines += [f"  {name} is only in the reference" for name in there.keys() - here.keys()]
    for name in sorted(here.keys() & there.keys()):
        for field, value in here[name].items():
            if value != there[name][field]:
                lines.append(f"  {name}.{field} = {value!r}, reference {there[name][field]!r}")
    return lines


class Refusal(NamedTuple):
    """Result of a call with a Penstock error."""

    error: str
    message: str


def outcome(queue: Queue, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call, or its refusal."""
    try:
        return getattr(queue, method)(*args, **kwargs)
    except PenstockError as error:
        return Refusal(type(error).__name__, str(error))
