"""A heap with lazy deletion: stale entries are skipped when they reach the top."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count, islice
from typing import Generic, TypeAlias, TypeVar

from penstock.job import Job

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


Order: TypeAlias = tuple[int, datetime, str]
"""Claim order within one priority: turn, created_at, queue_id."""


def order(job: Job) -> Order:
    return (job.turn, job.created_at, job.queue_id)


def claim_order(job: Job) -> tuple[int, Order]:
    """Return the sort key of the claim order over all priorities."""
    return (-job.priority, order(job))


def place(job: Job) -> tuple[int, int, datetime, str]:
    return (-job.priority, job.turn, job.created_at, job.queue_id)


def backwards(job: Job) -> int:
    return -job.turn
