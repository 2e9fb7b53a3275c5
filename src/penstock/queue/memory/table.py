"""Rows of a memory queue, with the indexes of the SQL engines, updated on every change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice, takewhile

import msgspec

from penstock import transitions
from penstock.errors import DuplicateId
from penstock.job import CHILDREN, Changes, Held, Job, NewJob, Scope, Settlement, Status
from penstock.limits import gated, touches
from penstock.queue.memory.batch_changes import BatchTable, can_end, can_take, plain_ends
from penstock.queue.memory.claimable_rows import ClaimableRows
from penstock.queue.memory.family_rows import FamilyTable
from penstock.queue.memory.held_rows import Dependents, Flows, HeldTable
from penstock.queue.memory.lazy_heap import LazyHeap, Order, claim_order, order, place
from penstock.queue.rules.next_jobs import NextJob
from penstock.queue.rules.pauses import ClaimPosition, RowPosition
from penstock.queue.rules.rows import Finished
from penstock.results import begins_to_expire, expired, kept_until
from penstock.row_counts import Class, class_of


class Table(HeldTable, FamilyTable, BatchTable):
    """Rows and indexes of one queue."""

    def __init__(self) -> None:
        super().__init__()
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
        self._flows = Flows(self.rows)
        self._parked: dict[str, LazyHeap[tuple[int, Order]]] = {}
        self._front: defaultdict[str, set[str]] = defaultdict(set)
        """Claimable rows with a turn below zero, by lock key."""
        self._paused = LazyHeap(self.rows, claim_order)
        self._dependents = Dependents()

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
        for settlement, jobs in ends.groups:
            self.change_alike(jobs, transitions.settled(jobs[0], settlement, now))
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
        self.tallies[class_of(job)] += 1
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

    def requests_before(self, place: tuple[int, Order]) -> int:
        """Count claimable requests before a place in the claim order."""
        waiting = map(self.rows.__getitem__, self.pending_requests)
        return sum(job.held is None and claim_order(job) < place for job in waiting)

    def _leave(self, job: Job) -> None:
        """Remove a row from the dictionaries; the heaps skip stale rows themselves."""
        self.tallies[class_of(job)] -= 1
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

    def upcoming(self, item_type: str | None, now: datetime) -> Iterator[NextJob]:
        """Yield due rows, then claimable rows in claim order. Do not change rows while reading."""
        for job in chain(self.due(now), self.claimable()):
            holder = self.lock_holders.get(job.lock_key) if job.lock_key is not None else None
            if item_type in (None, job.item_type) and holder in (None, job.queue_id):
                yield NextJob(job.queue_id, job.lock_key, job.tenant_id, job.collection)

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
        return any(parked.priority == job.priority and order(parked) < order(job) for parked in ahead)

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
        return list(islice((job for job in rows if after is None or place(job) > after.key), limit))

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> list[RowPosition]:
        rows = (job for job in self.claimable() if after is None or place(job) > after.key)
        return [
            RowPosition(job.queue_id, job.tenant_id, job.collection, job.priority, job.turn, job.created_at)
            for job in islice(rows, limit)
        ]

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
