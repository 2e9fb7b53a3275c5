"""Settlement of claims: outcomes and new children, then parents, then locks, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import compress
from typing import Any

import msgspec

from penstock import transitions
from penstock.job import CHILDREN, Changes, Job, Settlement, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.rules import dependencies
from penstock.queue.rules.addition import add_children, with_position
from penstock.queue.rules.requeue import RETRYABLE
from penstock.queue.rules.rows import Rows, refuse_unstorable, wake

NAMED_FAILURES = 3
_DONE = Status.DONE
"""A member of an enum costs more to read than a global name."""
MOST_CHUNKS = 2**31 - 1
"""Largest number of chunks accepted from one child."""


class Leftovers(NamedTuple):
    """Work for later transactions: children of these parents to cancel, places of dependencies to resolve."""

    to_stop: Sequence[str] = ()
    to_resolve: Sequence[str] = ()


class Aftermath:
    """Effects of changed rows on others: parents to count, locks to pass on, children to cancel."""

    def __init__(self, rows: Rows, now: datetime) -> None:
        self._rows = rows
        self._now = now
        self._ended: defaultdict[tuple[str, int | None], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._freed: set[str] = set()
        self._awaited: list[str] = []
        self.to_stop: list[str] = []
        self.to_resolve: list[str] = []
        """Places of cascades over dependencies, after the first batch; see ``dependencies.resolve``."""

    def collect(self, before: Job, after: Job) -> None:
        if before.lock_held and not after.lock_held and before.lock_key is not None:
            self._freed.add(before.lock_key)
        if after.ended and not before.ended and after.parent_id is not None:
            failed, chunks = int(after.status is Status.FAILED), chunks_in(after.result_json)
            self.count(after.parent_id, after.parent_run, 1, failed, chunks)
        if after.awaited and after.ended and not before.ended:
            self._awaited.append(after.queue_id)
        if after.waiting and after.waiting_for == CHILDREN:
            if after.children_open == 0:
                self.count(after.queue_id, after.run, 0, 0, 0)
            elif after.cancel_requested:
                self.to_stop.append(after.queue_id)

    def unblock(self, lock_key: str | None) -> None:
        """Pass this lock on later: the row next for this lock is gone."""
        if lock_key is not None:
            self._freed.add(lock_key)

    def apply(self) -> None:
        while self._ended:
            # In id order, so that no two transactions wait for each other.
            parents, self._ended = sorted(self._ended.items(), key=_by_parent), defaultdict(lambda: [0, 0, 0])
            for (parent_id, run), (ended, failed, chunks) in parents:
                self._children_ended(parent_id, run, ended, failed, chunks)
        if self._awaited:
            _, left = dependencies.resolve(
                self._rows, self._awaited, self._now, dependencies.RESOLVED_AT_ONCE
            )
            self.to_resolve, self._awaited = left, []
        if self._freed:
            wake(self._rows, sorted(self._freed), self._now)

    @property
    def leftovers(self) -> Leftovers:
        return Leftovers(self.to_stop, self.to_resolve)

    def count(self, parent_id: str, run: int | None, ended: int, failed: int, chunks: int) -> None:
        """Count ended and failed children of a parent's run, and the chunks they made."""
        counts = self._ended[parent_id, run]
        counts[0] += ended
        counts[1] += failed
        counts[2] += chunks

    def _children_ended(self, parent_id: str, run: int | None, ended: int, failed: int, chunks: int) -> None:
        parent = self._rows.get(parent_id)
        if parent is None or parent.run != run:
            return
        counted = {
            "children_open": parent.children_open - ended,
            "children_failed": parent.children_failed + failed,
            "total_chunks": parent.total_chunks + chunks,
            "updated_at": self._now,
        }
        updated = msgspec.structs.replace(parent, **counted)
        if updated.waiting and updated.waiting_for == CHILDREN and updated.children_open == 0:
            counted |= with_position(self._rows, updated, self._finish(updated))
        self.collect(parent, self._rows.change(parent, counted))

    def _finish(self, parent: Job) -> Changes:
        if not parent.children_failed:
            return transitions.children_ended(parent, self._now, 0, [])
        named = self._rows.children(parent, {Status.FAILED}, NAMED_FAILURES)
        total = self._rows.child_count(parent).total
        return transitions.children_ended(parent, self._now, total, [child.queue_id for child in named])


class _MadeChunks(msgspec.Struct):
    chunks: Any = 0


_read_chunks = msgspec.json.Decoder(_MadeChunks).decode


def chunks_in(result_json: str | None) -> int:
    """Number of chunks in the result of a child; 0 where the result has no such number."""
    if result_json is None or '"chunks"' not in result_json:
        return 0
    try:
        chunks = _read_chunks(result_json).chunks
    except msgspec.DecodeError:
        return 0
    if isinstance(chunks, bool) or not isinstance(chunks, int | float):
        return 0
    return int(chunks) if 0 <= chunks <= MOST_CHUNKS and chunks % 1 == 0 else 0


def settle(
    rows: Rows, settlements: Sequence[Settlement], now: datetime
) -> tuple[list[Status | None], Leftovers]:
    """Settle claims. Returns the new statuses (None: claim lost), and work left."""
    expanding = [settlement for settlement in settlements if settlement.children]
    if expanding:
        # Before any row is locked: a resume locks pauses first, too.
        rows.pauses()
    for settlement in expanding:
        if parent := _held(rows, settlement):
            refuse_unstorable(settlement.children)
            rows.refuse_taken(settlement.children, parent)
    aftermath = Aftermath(rows, now)
    over = _finish_plain(rows, settlements, now, aftermath)
    answers: list[Status | None] = [Status.DONE] * len(settlements)
    if not all(over):
        settled = list(zip(over, settlements, strict=True))
        rows.lock_rows([each.queue_id for plain, each in settled if not plain])
        answers = [
            Status.DONE if plain else _settle_one(rows, each, now, aftermath) for plain, each in settled
        ]
    aftermath.apply()
    return answers, aftermath.leftovers


def _finish_plain(
    rows: Rows, settlements: Sequence[Settlement], now: datetime, aftermath: Aftermath
) -> Sequence[bool]:
    """End plain claims by the fast path of the engine. Returns for each settlement whether it is over."""
    done = [each.status is _DONE for each in settlements]
    # Two settlements of one job must be applied in order: only the general path does that.
    if True not in done or not each_once(settlements):
        return [False] * len(settlements)
    finished = rows.finish(list(compress(settlements, done)), now)
    for key in finished.freed:
        aftermath.unblock(key)
    for parent_id, run, result in finished.parents:
        aftermath.count(parent_id, run, 1, 0, chunks_in(result))
    if len(finished.over) == len(settlements):
        return finished.over
    over = iter(finished.over)
    return [is_done and next(over) for is_done in done]


def each_once(settlements: Sequence[Settlement]) -> bool:
    return len({each.queue_id for each in settlements}) == len(settlements)


def _settle_one(rows: Rows, settlement: Settlement, now: datetime, aftermath: Aftermath) -> Status | None:
    job = _held(rows, settlement)
    if job is None:
        return None
    counted = job
    if settlement.children:
        fresh = add_children(rows, job, settlement.children, now)
        counted = msgspec.structs.replace(job, children_open=job.children_open + fresh)
    changes = transitions.settled(counted, settlement, now)
    changes.setdefault("children_open", counted.children_open)
    after = rows.change(job, with_position(rows, counted, changes))
    aftermath.collect(job, after)
    return after.status


def _held(rows: Rows, settlement: Settlement) -> Job | None:
    """Return the job, if the claim is still valid."""
    job = rows.get(settlement.queue_id)
    if (
        job is None
        or job.status is not Status.IN_PROGRESS
        or job.claim_number != settlement.claim_number
        or (job.lease_until is None and settlement.keep_lease)
    ):
        return None
    return job


class RepairCounts(NamedTuple):
    """Result of ``reconcile``."""

    rows: int
    leftovers: Leftovers
    to_return: list[str]
    """Parents with children to requeue."""


def reconcile(rows: Rows, now: datetime, limit: int) -> RepairCounts:
    repaired = wake(rows, rows.idle_locks(limit), now)
    aftermath = Aftermath(rows, now)
    to_return: list[str] = []
    for parent in rows.doubtful_parents(limit):
        count = rows.child_count(parent)
        counted = parent
        if (parent.children_open, parent.children_failed) != (count.open, count.failed):
            counted = rows.change(parent, {"children_open": count.open, "children_failed": count.failed})
            repaired += 1
        if not count.open and not parent.cancel_requested and rows.children(parent, RETRYABLE, 1):
            # The parent waits for no child: a requeue was interrupted before it reached the children.
            to_return.append(parent.queue_id)
        else:
            aftermath.collect(parent, counted)
    aftermath.apply()
    return RepairCounts(repaired + len(to_return), aftermath.leftovers, to_return)


def _by_parent(entry: tuple[tuple[str, int | None], list[int]]) -> tuple[str, int]:
    parent_id, run = entry[0]
    return parent_id, run or 0
