"""Indexes of a memory queue: rows held for others or for limits, and the turns of each tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from itertools import islice

from penstock.dependencies import dependencies_of
from penstock.job import Held, Job, Scope, Status
from penstock.limits import Limit
from penstock.queue.memory.lazy_heap import LazyHeap, Order, backwards, claim_order
from penstock.queue.rules.pauses import Pause

FEW = 64


class Dependents:
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


class HeldTable:
    """The part of a table about pauses and limits: which there are, rows held for them, rows with a slot."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Job] = {}
        self.known_pauses: dict[Scope, Pause] = {}
        self.known_limits: dict[str, Limit] = {}
        self.limit_keys: set[str] = set()
        self.limited_locks: set[str] = set()
        self._limited: dict[str, LazyHeap[tuple[int, Order]]] = {}
        self._admitted: defaultdict[str, set[str]] = defaultdict(set)

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


class Flows:
    """Largest turns of the pending rows of each tenant and priority."""

    def __init__(self, rows: Mapping[str, Job]) -> None:
        self._rows = rows
        self._last: dict[tuple[str, int], LazyHeap[int]] = {}
        self._room = FEW

    def put(self, job: Job) -> None:
        flow = self._last.get((job.tenant_id, job.priority))
        if flow is None:
            if len(self._last) > self._room:
                # Remove tenants without rows; only here, so that leaving costs nothing.
                self._last = {key: flow for key, flow in self._last.items() if flow.first()}
                self._room = 2 * len(self._last) + FEW
            flow = self._last[job.tenant_id, job.priority] = LazyHeap(self._rows, backwards)
        flow.put(job)

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        flow = self._last.get((tenant_id, priority))
        last = flow.first() if flow else None
        return last.turn if last else None
