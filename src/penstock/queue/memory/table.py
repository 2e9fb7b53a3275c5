"""Rows of a memory queue, with the indexes of the SQL engines, updated on every change."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, count, islice, takewhile
from typing import Generic, TypeAlias, TypeVar

import msgspec

from penstock.errors import DuplicateId
from penstock.queue import transitions
from penstock.queue.job import (
    CHILDREN,
    Changes,
    Class,
    Held,
    Job,
    NewJob,
    Scope,
    Settlement,
    Status,
    begins_to_expire,
    expired,
    kept_until,
)
from penstock.queue.limits import Limit, gated, touches
from penstock.queue.rules.rows import ChildCount, ClaimPosition, Finished, Pause, place_of
from penstock.queue.transitions import dependencies_of


class Table:
    """Rows and indexes of one queue."""

    def __init__(self) -> None:
        self.rows: dict[str, Job] = {}
        self.known_pauses: dict[Scope, Pause] = {}
        self.known_limits: dict[str, Limit] = {}
        self.limit_keys: set[str] = set()
        self.limited_locks: set[str] = set()
        self.live_keys: dict[tuple[str, str, str], str] = {}
        self.lock_holders: dict[str, str] = {}
        self.leased: dict[str, None] = {}
        self.waiting: dict[str, None] = {}
        # A Counter would take twice the time for each change.
        self.backlog_counts: defaultdict[tuple[bool, str], int] = defaultdict(int)
        self._keyed_backlog: defaultdict[str, int] = defaultdict(int)
        self.pending_children = 0
        self.pending_requests: dict[str, None] = {}
        self.tallies: defaultdict[Class, int] = defaultdict(int)
        self._claimable = ClaimableRows(self.rows)
        self._scheduled = LazyHeap(self.rows, lambda job: (job.run_at, job.queue_id))
        self._ended_roots = LazyHeap(self.rows, lambda job: (job.finished_at, job.queue_id))
        self._expiring = LazyHeap(self.rows, lambda job: (kept_until(job), job.queue_id))
        self._flows = _Flows(self.rows)
        self._parked: dict[str, LazyHeap[tuple[int, _Order]]] = {}
        self._front: defaultdict[str, set[str]] = defaultdict(set)
        """Claimable rows with a turn below zero, by lock key."""
        self._paused = LazyHeap(self.rows, claim_order)
        self._dependents = _Dependents()
        self._limited: dict[str, LazyHeap[tuple[int, _Order]]] = {}
        self._admitted: defaultdict[str, set[str]] = defaultdict(set)
        self._children: defaultdict[tuple[str, int | None], dict[str, str]] = defaultdict(dict)
        """Ids of children by parent and run, then by key."""
        self._trees: defaultdict[str, dict[str, None]] = defaultdict(dict)

    # Changes.

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        siblings = self._children.get((parent.queue_id, parent.run), {}) if parent else {}
        ids: set[str] = set()
        keys = set(siblings)
        for item in new:
            if parent is not None and item.idempotency_key in keys:
                continue
            if item.queue_id in self.rows or item.queue_id in ids:
                raise DuplicateId(f"a job with id {item.queue_id} exists already")
            ids.add(item.queue_id)
            keys.add(item.idempotency_key)

    def try_insert(self, job: Job) -> bool:
        if job.parent_id is not None:
            taken = job.idempotency_key in self._children.get((job.parent_id, job.parent_run), ())
        else:
            taken = job.dedupe and (job.tenant_id, job.branch, job.idempotency_key) in self.live_keys
        if not taken and job.queue_id in self.rows:
            raise DuplicateId(f"a job with id {job.queue_id} exists already")
        if not taken:
            self.insert(job)
        return not taken

    def insert(self, job: Job) -> None:
        self.rows[job.queue_id] = job
        self._enter_family(job)
        self._enter(job)
        self._enter_key(job)
        if job.limit_key is not None and job.held is Held.LIMIT:
            self.limit_keys.add(job.limit_key)
        if job.lock_held:
            self._pass_lock(job)

    def change(self, job: Job, changes: Changes) -> Job:
        if job.limit_key is not None:
            changes = gated(job, changes)
        changed = msgspec.structs.replace(job, **changes)
        if job.limit_key is not None and touches(job, changed):
            self.limit_keys.add(job.limit_key)
        self.rows[job.queue_id] = changed
        self._leave(job)
        self._enter(changed)
        if changed.finished_at is not job.finished_at:
            (self._leave_key if job.finished_at is None else self._enter_key)(changed)
        if changed.lock_held is not job.lock_held:
            self._pass_lock(changed)
        return changed

    def change_alike(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change different rows in the same way."""
        if can_take(jobs, changes):
            return self._take_all(jobs, changes)
        if can_end(jobs, changes):
            return self._end_all(jobs, changes)
        return [Table.change(self, job, changes) for job in jobs]

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        if self._parked:
            # Every end has to pass on its lock, which only the general path does.
            return Finished([False] * len(settlements))
        ends = plain_ends(self.rows, settlements)
        for each in ends.groups:
            self.change_alike(each.jobs, transitions.settled(each.jobs[0], each.settlement, now))
        return Finished(ends.over, parents=ends.parents)

    def delete(self, ids: Sequence[str]) -> None:
        for queue_id in ids:
            self._delete(queue_id)

    def _delete(self, queue_id: str) -> None:
        job = self.rows.pop(queue_id)
        self._leave(job)
        if job.finished_at is None:
            self._leave_key(job)
        if job.lock_held and job.lock_key is not None:
            self.lock_holders.pop(job.lock_key, None)
        self._leave_family(job)

    def _enter(self, job: Job) -> None:
        self.tallies[_class_of(job)] += 1
        if job.limit_key is not None:
            self._enter_limit(job.limit_key, job)
        if job.status is Status.PENDING:
            self._enter_pending(job)
        elif job.status is Status.IN_PROGRESS:
            (self.waiting if job.lease_until is None else self.leased)[job.queue_id] = None
        elif job.parent_id is None and job.finished_at is not None:
            self._ended_roots.put(job)
        if job.result_ttl_s is not None and begins_to_expire(None, job):
            self._expiring.put(job)

    def _enter_pending(self, job: Job) -> None:
        self._flows.put(job)
        self._count_pending(job, 1)
        if job.held is None:
            self._claimable.put(job)
            if job.turn < 0 and job.lock_key is not None:
                self._front[job.lock_key].add(job.queue_id)
        elif job.held is Held.TIME:
            if job.run_at is not None:
                self._scheduled.put(job)
        elif job.held is Held.PAUSE:
            self._paused.put(job)
        elif job.held is Held.AFTER:
            self._dependents.put(job)
        elif job.held is Held.LOCK and job.lock_key is not None:
            self._parked.setdefault(job.lock_key, LazyHeap(self.rows, claim_order)).put(job)

    def _count_pending(self, job: Job, number: int) -> None:
        if job.parent_id is None:
            is_function = job.item_type == "function"
            self.backlog_counts[is_function, job.tenant_id] += number
            if not is_function:
                if number > 0:
                    self.pending_requests[job.queue_id] = None
                else:
                    del self.pending_requests[job.queue_id]
            if job.backlog_key is not None:
                self._keyed_backlog[job.backlog_key] += number
        else:
            self.pending_children += number

    def requests_before(self, place: tuple[int, _Order]) -> int:
        """Count claimable requests before a place in the claim order."""
        waiting = map(self.rows.__getitem__, self.pending_requests)
        return sum(job.held is None and claim_order(job) < place for job in waiting)

    def _leave(self, job: Job) -> None:
        """Remove a row from the dictionaries; the heaps skip stale rows themselves."""
        self.tallies[_class_of(job)] -= 1
        if job.limit_key is not None:
            self._leave_limit(job.limit_key, job)
        if job.status is Status.PENDING:
            self._count_pending(job, -1)
            if job.held is Held.LOCK and job.lock_key is not None:
                self._forget_empty(job.lock_key)
            elif job.held is Held.AFTER:
                self._dependents.remove(job)
            elif job.held is None and job.turn < 0 and job.lock_key is not None:
                self._leave_front(job.lock_key, job.queue_id)
        elif job.status is Status.IN_PROGRESS:
            del (self.waiting if job.lease_until is None else self.leased)[job.queue_id]

    def _forget_empty(self, lock_key: str) -> None:
        if self._parked[lock_key].first() is None:
            del self._parked[lock_key]

    def _leave_front(self, lock_key: str, queue_id: str) -> None:
        front = self._front[lock_key]
        front.discard(queue_id)
        if not front:
            del self._front[lock_key]

    def _enter_key(self, job: Job) -> None:
        if job.finished_at is None and job.parent_id is None and job.dedupe:
            self.live_keys[job.tenant_id, job.branch, job.idempotency_key] = job.queue_id

    def _leave_key(self, job: Job) -> None:
        if job.parent_id is None and job.dedupe:
            self.live_keys.pop((job.tenant_id, job.branch, job.idempotency_key), None)

    def _pass_lock(self, job: Job) -> None:
        if job.lock_key is not None and job.lock_held:
            self.lock_holders[job.lock_key] = job.queue_id
        elif job.lock_key is not None:
            self.lock_holders.pop(job.lock_key, None)

    # Changes of a whole batch: as ``change`` for each row, without a look at what such rows do not have.

    def _take_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change claimable rows to leased ones; see ``can_take``."""
        changed: list[Job] = []
        rows, leased, lock_holders, pending = self.rows, self.leased, self.lock_holders, self.backlog_counts
        for job in jobs:
            queue_id = job.queue_id
            after = rows[queue_id] = _replace(job, **changes)
            changed.append(after)
            leased[queue_id] = None
            if job.parent_id is None:
                is_function = job.item_type == "function"
                pending[is_function, job.tenant_id] -= 1
                if not is_function:
                    del self.pending_requests[queue_id]
            else:
                self.pending_children -= 1
            if job.lock_key is not None:
                lock_holders[job.lock_key] = queue_id
        self._count(jobs, _PENDING, _IN_PROGRESS)
        return changed

    def _end_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change leased rows to done ones; see ``can_end``."""
        changed: list[Job] = []
        rows, leased, live_keys, lock_holders = self.rows, self.leased, self.live_keys, self.lock_holders
        for job in jobs:
            after = rows[job.queue_id] = _replace(job, **changes)
            changed.append(after)
            del leased[job.queue_id]
            if job.dedupe and job.parent_id is None:
                live_keys.pop((job.tenant_id, job.branch, job.idempotency_key), None)
            if job.lock_held:
                lock_holders.pop(job.lock_key or "", None)
        self._count(jobs, _IN_PROGRESS, _DONE)
        self._ended_roots.put_all([job for job in changed if job.parent_id is None])
        return changed

    def _count(self, jobs: Sequence[Job], before: Status, after: Status) -> None:
        types = [job.item_type for job in jobs]
        for item_type in set(types):
            number = types.count(item_type)
            self.tallies[before, None, item_type] -= number
            self.tallies[after, None, item_type] += number

    # Parents, children and trees.

    def _enter_family(self, job: Job) -> None:
        if job.parent_id is not None:
            self._children[job.parent_id, job.parent_run][job.idempotency_key] = job.queue_id
        self._trees[job.root_id or job.queue_id][job.queue_id] = None

    def _leave_family(self, job: Job) -> None:
        if job.parent_id is not None:
            siblings = self._children[job.parent_id, job.parent_run]
            del siblings[job.idempotency_key]
            if not siblings:
                del self._children[job.parent_id, job.parent_run]
        root = job.root_id or job.queue_id
        del self._trees[root][job.queue_id]
        if not self._trees[root]:
            del self._trees[root]

    def has_child(self, parent: Job, key: str) -> bool:
        return key in self._children.get((parent.queue_id, parent.run), ())

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        ids = self._children.get((parent.queue_id, parent.run), {})
        found = (self.rows[queue_id] for queue_id in sorted(ids.values()))
        wanted = (
            job
            for job in found
            if job.status in statuses and not (job.status is Status.IN_PROGRESS and job.cancel_requested)
        )
        return list(islice(wanted, limit))

    def child_count(self, parent: Job) -> ChildCount:
        ids = self._children.get((parent.queue_id, parent.run), {})
        statuses = Counter(self.rows[queue_id].status for queue_id in ids.values())
        opened = statuses[Status.PENDING] + statuses[Status.IN_PROGRESS]
        return ChildCount(len(ids), opened, statuses[Status.FAILED])

    def tree(self, root_id: str, limit: int) -> list[str]:
        ids = sorted(self._trees[root_id], key=lambda queue_id: (queue_id == root_id, queue_id))
        return ids[:limit]

    # Pauses and limits, rows held for them, and rows with a slot.

    def pauses(self, *, to_change: bool = False) -> list[Pause]:  # noqa: ARG002 - one transaction at a time
        return list(self.known_pauses.values())

    seen_pauses = pauses

    def may_move(self) -> bool:
        return True

    def set_pause(self, pause: Pause) -> None:
        self.known_pauses[pause.scope] = pause

    def drop_pause(self, scope: Scope) -> None:
        self.known_pauses.pop(scope, None)

    def _enter_limit(self, key: str, job: Job) -> None:
        if job.held is Held.LIMIT:
            self._limited.setdefault(key, LazyHeap(self.rows, claim_order)).put(job)
        if job.limit_at is not None:
            self._admitted[key].add(job.queue_id)

    def _leave_limit(self, key: str, job: Job) -> None:
        if job.held is Held.LIMIT and self._limited[key].first() is None:
            del self._limited[key]
        if job.limit_at is not None:
            self._admitted[key].discard(job.queue_id)
            if not self._admitted[key]:
                del self._admitted[key]

    def limit(self, key: str) -> Limit | None:
        return self.known_limits.get(key)

    def all_limits(self) -> list[Limit]:
        return list(self.known_limits.values())

    def set_limit(self, limit: Limit) -> None:
        self.known_limits[limit.key] = limit

    def drop_limit(self, key: str) -> bool:
        return self.known_limits.pop(key, None) is not None

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        rows = [self.rows[queue_id] for queue_id in self._admitted.get(key, ())]
        unclaimed = sum(
            job.status is Status.PENDING and job.limit_at is not None and job.limit_at <= until
            for job in rows
        )
        return min(len(rows), most), min(unclaimed, most_unclaimed)

    def limited_rows(self, key: str, number: int) -> list[Job]:
        heap = self._limited.get(key)
        return list(islice(heap.ordered(), number)) if heap else []

    def unclaimed_rows(self, key: str, number: int) -> list[Job]:
        rows = (self.rows[queue_id] for queue_id in sorted(self._admitted.get(key, ())))
        return list(islice((job for job in rows if job.status is Status.PENDING), number))

    def limited_keys(self, after: str, number: int) -> list[str]:
        return sorted(key for key in self._limited if key > after)[:number]

    def any_limited(self) -> bool:
        """Check whether rows wait for a limit."""
        return bool(self._limited)

    # Reads.

    def get(self, queue_id: str) -> Job | None:
        return self.rows.get(queue_id)

    peek = get

    def lock_rows(self, ids: Collection[str]) -> None:
        """Do nothing: one transaction at a time."""

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        queue_id = self.live_keys.get((tenant_id, branch, key))
        return self.rows[queue_id] if queue_id is not None else None

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        if tenant_id is not None:
            return min(self.backlog_counts.get((functions, tenant_id), 0), cap)
        return min(sum(n for (kind, _), n in self.backlog_counts.items() if kind is functions), cap)

    def keyed_backlog(self, key: str, cap: int) -> int:
        return min(self._keyed_backlog.get(key, 0), cap)

    def due_results(self, now: datetime, limit: int) -> list[str]:
        due = takewhile(lambda job: expired(job, now), self._expiring.ordered())
        return [job.queue_id for job in islice(due, limit)]

    def drop_due_results(self, ids: Sequence[str], now: datetime) -> None:
        """Do nothing: a row without a result is not in the order."""

    def claimable(self) -> Iterator[Job]:
        """Iterate over the claimable rows in claim order. Do not change rows while reading."""
        return self._claimable.ordered()

    def first_claimable(self, number: int) -> list[Job]:
        return self._claimable.first(number)

    def upcoming(self, item_type: str | None, now: datetime) -> Iterator[Job]:
        """Yield due rows, then claimable rows in claim order. Do not change rows while reading."""
        for job in chain(self.due(now), self.claimable()):
            holder = self.lock_holders.get(job.lock_key) if job.lock_key is not None else None
            if item_type in (None, job.item_type) and holder in (None, job.queue_id):
                yield job

    def lock_holder(self, lock_key: str) -> str | None:
        return self.lock_holders.get(lock_key)

    def priority_heads(self) -> Iterator[Job]:
        return self._claimable.heads()

    def head_turn(self, priority: int) -> int | None:
        return self._claimable.head_turn(priority)

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        return self._flows.last_turn(tenant_id, priority)

    def first_parked(self, lock_keys: Collection[str]) -> list[Job]:
        heaps = [self._parked.get(key) for key in lock_keys if key not in self.lock_holders]
        parked = [heap.first() for heap in heaps if heap]
        return [job for job in parked if job is not None and not self._is_behind_front(job)]

    def parked_rows(self, scope: Scope, limit: int) -> list[Job]:
        parked = chain.from_iterable(self._parked[key].ordered() for key in sorted(self._parked))
        return list(islice((job for job in parked if scope.covers(job.tenant_id, job.collection)), limit))

    def _is_behind_front(self, parked: Job) -> bool:
        """Check whether a claimable row of the same lock with a turn below zero comes first."""
        front = self._front.get(parked.lock_key or "", ())
        return any(claim_order(self.rows[queue_id]) < claim_order(parked) for queue_id in front)

    def parked_before(self, job: Job) -> bool:
        """Check whether a parked row of the same lock and priority comes first."""
        if job.lock_key is None or job.lock_held or job.lock_key not in self._parked:
            return False
        ahead = takewhile(
            lambda parked: parked.priority >= job.priority, self._parked[job.lock_key].ordered()
        )
        return any(parked.priority == job.priority and _order(parked) < _order(job) for parked in ahead)

    def due(self, now: datetime, limit: int | None = None) -> list[Job]:
        if not self._scheduled:
            return []
        ordered = self._scheduled.ordered()
        due = takewhile(lambda job: job.run_at is not None and job.run_at <= now, ordered)
        return list(islice(due, limit))

    def next_in_line(self) -> Iterator[Job]:
        """Yield the first row of each priority and of each held reason."""
        yield from self.priority_heads()
        firsts = [self._paused.first(), self._scheduled.first()]
        firsts += [heap.first() for heap in islice(self._parked.values(), 1)]
        yield from (job for job in firsts if job is not None)

    def busy(self, now: datetime, *, documents: bool) -> bool:
        """Check whether a job runs, waits for a document (with ``documents``), is due or in back-off."""
        waiting = self.waiting if documents else ()
        if self.leased or any(self.rows[queue_id].waiting_for != CHILDREN for queue_id in waiting):
            return True
        later = self._scheduled.ordered()
        return any(job.retry_count or job.limit_at or (job.run_at and job.run_at <= now) for job in later)

    def expired(self, now: datetime) -> list[Job]:
        """List rows past their lease. Few rows run at a time, so a scan is cheaper than an index."""
        leased = ((self.rows[queue_id].lease_until, queue_id) for queue_id in self.leased)
        late = sorted((until, queue_id) for until, queue_id in leased if until is not None and until < now)
        return [self.rows[queue_id] for _, queue_id in late]

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        rows = self._paused.ordered()
        return list(islice((job for job in rows if after is None or place_of(job).key > after.key), limit))

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        rows = (job for job in self.claimable() if after is None or place_of(job).key > after.key)
        return list(islice(rows, limit))

    def dependents(self, queue_id: str, after: str, limit: int) -> list[Job]:
        return [self.rows[each] for each in self._dependents.of(queue_id, after, limit)]

    def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        return {queue_id: self.rows[queue_id].status for queue_id in ids if queue_id in self.rows}

    def awaited_rows(self, after: str, limit: int) -> list[str]:
        return self._dependents.awaited(after, limit)

    def idle_locks(self, limit: int) -> list[str]:
        claimable = {job.lock_key for job in self.claimable()}
        idle = (key for key in sorted(self._parked) if key not in claimable and key not in self.lock_holders)
        return list(islice(idle, limit))

    def doubtful_parents(self, limit: int) -> list[Job]:
        waiting = (self.rows[queue_id] for queue_id in sorted(self.waiting))
        doubtful = (job for job in waiting if job.waiting_for == CHILDREN and self._doubtful(job))
        return list(islice(doubtful, limit))

    def _doubtful(self, job: Job) -> bool:
        count = self.child_count(job)
        counted = (job.children_open, job.children_failed) == (count.open, count.failed)
        return job.cancel_requested or not counted or not job.children_open

    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> list[Job]:
        meant = (
            job for job in self._ended_roots.ordered() if item_type is None or job.item_type == item_type
        )
        old = (job for job in meant if self._prunable(job, ended_before))
        return list(islice(old, limit))

    def _prunable(self, root: Job, ended_before: Mapping[Status, datetime]) -> bool:
        before = ended_before.get(root.status)
        if before is None or root.finished_at is None or root.finished_at >= before:
            return False
        return all(self.rows[queue_id].ended for queue_id in self._trees[root.queue_id])

    def values(self) -> Iterator[Job]:
        return iter(self.rows.values())


K = TypeVar("K")

_SLACK = 64
"""Number of stale entries that are not worth removing."""


class LazyHeap(Generic[K]):
    """Rows ordered by key, smallest first. An entry is valid while the table holds the same object.

    A changed row is another object, so nothing has to be removed: a stale entry is skipped at the top. Most
    rows come in order; they are in a sorted run, which costs next to nothing, the others in a heap. Rows
    are sorted only when they are read.
    """

    def __init__(self, rows: Mapping[str, Job], key: Callable[[Job], K]) -> None:
        self._rows = rows
        self._key = key
        self._fresh: list[Job] = []
        self._fresh_room = _SLACK
        self._run: list[tuple[K, int, Job]] = []
        self._head = 0
        self._heap: list[tuple[K, int, Job]] = []
        self._room = _SLACK
        self._numbers = count()

    def put(self, job: Job) -> None:
        self._fresh.append(job)
        if len(self._fresh) > self._fresh_room:
            self._drop_stale()

    def put_all(self, jobs: Sequence[Job]) -> None:
        self._fresh.extend(jobs)
        if len(self._fresh) > self._fresh_room:
            self._drop_stale()

    def _drop_stale(self) -> None:
        self._fresh = [job for job in self._fresh if self._rows.get(job.queue_id) is job]
        # Room for as many again, so that each row is checked only a few times.
        self._fresh_room = 2 * len(self._fresh) + _SLACK

    def __bool__(self) -> bool:
        """False only for an empty heap; all entries may be stale."""
        return bool(self._fresh or self._run or self._heap)

    def first(self) -> Job | None:
        self._settle()
        heads = self._run[self._head : self._head + 1] + self._heap[:1]
        return min(heads)[2] if heads else None

    def smallest(self, number: int) -> list[Job]:
        """Return the first rows in order, at most this number."""
        if not self._fresh and not self._run and not self._heap:
            return []
        self._settle()
        if self._heap:
            return list(islice(self.ordered(), number))
        rows, run, position = self._rows, self._run, self._head
        found: list[Job] = []
        while len(found) < number and position < len(run):
            part = run[position : position + number - len(found)]
            found += [job for _, _, job in part if rows.get(job.queue_id) is job]
            position += len(part)
        return found

    def ordered(self) -> Iterator[Job]:
        """Yield all rows in order. Do not change rows while reading."""
        self._settle()
        if not self._heap:
            return (entry[2] for entry in self._running())
        return (entry[2] for entry in heapq.merge(self._running(), self._popped()))

    def _running(self) -> Iterator[tuple[K, int, Job]]:
        rows, run = self._rows, self._run
        for position in range(self._head, len(run)):
            entry = run[position]
            if rows.get(entry[2].queue_id) is entry[2]:
                yield entry

    def _popped(self) -> Iterator[tuple[K, int, Job]]:
        taken: list[tuple[K, int, Job]] = []
        try:
            while self._heap:
                entry = heapq.heappop(self._heap)
                if self._lives(entry):
                    taken.append(entry)
                    yield entry
        finally:
            for entry in taken:
                heapq.heappush(self._heap, entry)

    def _lives(self, entry: tuple[K, int, Job]) -> bool:
        return self._rows.get(entry[2].queue_id) is entry[2]

    def _settle(self) -> None:
        """Sort fresh rows in, and drop stale entries at the heads of run and heap."""
        if self._fresh:
            self._place_fresh()
        rows, run, head, end = self._rows, self._run, self._head, len(self._run)
        # As _lives, without a call for each entry: all rows of a batch are stale at once.
        while head < end and rows.get((job := run[head][2]).queue_id) is not job:
            head += 1
        if head == end:
            self._run, head = [], 0
        self._head = head
        while self._heap and not self._lives(self._heap[0]):
            heapq.heappop(self._heap)

    def _place_fresh(self) -> None:
        # The number decides between equal keys, because jobs have no order.
        entries = [(self._key(job), next(self._numbers), job) for job in self._fresh]
        self._fresh = []
        for entry in entries:
            if not self._run or entry > self._run[-1]:
                self._run.append(entry)
            else:
                heapq.heappush(self._heap, entry)
        if len(self._run) + len(self._heap) > self._room or len(self._heap) > _SLACK + len(self._run) // 8:
            entries = self._run[self._head :] + self._heap
            self._run = sorted(entry for entry in entries if self._lives(entry))
            self._head, self._heap = 0, []
            self._room = 2 * len(self._run) + _SLACK


_Order: TypeAlias = tuple[int, datetime, str]
"""Claim order within one priority: turn, created_at, queue_id."""


def _order(job: Job) -> _Order:
    return (job.turn, job.created_at, job.queue_id)


def claim_order(job: Job) -> tuple[int, _Order]:
    """Return the sort key of the claim order over all priorities."""
    return (-job.priority, _order(job))


def _backwards(job: Job) -> int:
    return -job.turn


_replace = msgspec.structs.replace
# A member of an enum costs more to read than a global name.
_PENDING, _IN_PROGRESS, _DONE = Status.PENDING, Status.IN_PROGRESS, Status.DONE


class _Alike(msgspec.Struct, frozen=True):
    """Jobs that end in the same way, and the settlement of the first."""

    settlement: Settlement
    jobs: list[Job]


class _PlainEnds(msgspec.Struct, frozen=True):
    """The plain claims among some settlements; see ``Finished``."""

    over: list[bool]
    groups: list[_Alike]
    parents: list[tuple[str, int | None, str | None]]


def plain_ends(rows: Mapping[str, Job], settlements: Sequence[Settlement]) -> _PlainEnds:
    """Find the valid claims whose end as done needs nothing of the general path."""
    over: list[bool] = []
    groups: list[_Alike] = []
    parents: list[tuple[str, int | None, str | None]] = []
    alike: list[Job] = []
    values: tuple[int, str | None] | None = None
    for each in settlements:
        job = rows.get(each.queue_id)
        if (
            job is None
            or job.status is not _IN_PROGRESS
            or job.claim_number != each.claim_number
            or job.followup_json is not None
            or job.children_open
            or job.awaited
            or job.limit_key is not None
            or each.children
        ):
            over.append(False)
            continue
        over.append(True)
        # Claims equal in these values end alike, see ``transitions.settled``.
        if values != (job.lost_count, each.result_json):
            values, alike = (job.lost_count, each.result_json), []
            groups.append(_Alike(each, alike))
        alike.append(job)
        if job.parent_id is not None:
            parents.append((job.parent_id, job.parent_run, each.result_json))
    return _PlainEnds(over, groups, parents)


def can_take(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes claim claimable rows without a limit, a backlog key or a place in front."""
    if changes.get("status") is not _IN_PROGRESS:
        return False
    for job in jobs:
        if job.status is not _PENDING or job.held or job.turn < 0 or job.limit_key or job.backlog_key:
            return False
    return True


def can_end(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes end leased rows as done, without a limit or a result that expires."""
    if changes.get("status") is not _DONE:
        return False
    # A list, as a generator costs a call for each job.
    return not [job for job in jobs if not job.lease_until or job.limit_key or job.result_ttl_s]


class ClaimableRows:
    """Heaps in claim order: for each priority the rows with a turn below zero, then those with a number.

    Only the heaps in use exist, as each claim looks at all of them.
    """

    def __init__(self, rows: Mapping[str, Job]) -> None:
        self._rows = rows
        self._heaps: dict[tuple[int, bool], LazyHeap[_Order]] = {}

    def put(self, job: Job) -> None:
        place = -job.priority, job.turn >= 0
        heap = self._heaps.get(place)
        if heap is None:
            heap = self._heaps[place] = LazyHeap(self._rows, _order)
            self._heaps = dict(sorted(self._heaps.items()))
        heap.put(job)

    def first(self, number: int) -> list[Job]:
        """Return the first rows, at most this number."""
        found: list[Job] = []
        for heap in self._heaps.values():
            found += heap.smallest(number - len(found))
            if len(found) == number:
                break
        return found

    def ordered(self) -> Iterator[Job]:
        """Yield all rows in order. Do not change rows while reading."""
        for heap in self._heaps.values():
            yield from heap.ordered()

    def heads(self) -> Iterator[Job]:
        """Yield the first row of each priority."""
        seen: int | None = None
        for (priority, _), heap in self._heaps.items():
            head = heap.first() if priority != seen else None
            if head is not None:
                seen = priority
                yield head

    def head_turn(self, priority: int) -> int | None:
        """Return the smallest number among the turns of a priority."""
        heap = self._heaps.get((-priority, True))
        head = heap.first() if heap else None
        return head.turn if head else None


_FEW = 64


class _Dependents:
    """Rows held until others have ended, by each of those."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, job: Job) -> None:
        for queue_id in dependencies_of(job).after:
            self._waiting[queue_id].add(job.queue_id)

    def remove(self, job: Job) -> None:
        for queue_id in dependencies_of(job).after:
            self._waiting[queue_id].discard(job.queue_id)
            if not self._waiting[queue_id]:
                del self._waiting[queue_id]

    def of(self, queue_id: str, after: str, limit: int) -> list[str]:
        """Ids of the rows held for this one, from the first one after ``after``."""
        return sorted(each for each in self._waiting.get(queue_id, ()) if each > after)[:limit]

    def awaited(self, after: str, limit: int) -> list[str]:
        """Ids of the rows awaited by others."""
        return sorted(each for each in self._waiting if each > after)[:limit]


class _Flows:
    """Largest turns of the pending rows of each tenant and priority."""

    def __init__(self, rows: Mapping[str, Job]) -> None:
        self._rows = rows
        self._last: dict[tuple[str, int], LazyHeap[int]] = {}
        self._room = _FEW

    def put(self, job: Job) -> None:
        flow = self._last.get((job.tenant_id, job.priority))
        if flow is None:
            if len(self._last) > self._room:
                # Remove tenants without rows; only here, so that leaving costs nothing.
                self._last = {key: flow for key, flow in self._last.items() if flow.first()}
                self._room = 2 * len(self._last) + _FEW
            flow = self._last[job.tenant_id, job.priority] = LazyHeap(self._rows, _backwards)
        flow.put(job)

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        flow = self._last.get((tenant_id, priority))
        last = flow.first() if flow else None
        return last.turn if last else None


def _class_of(job: Job) -> Class:
    return job.status, job.held, job.item_type
