"""Settlement of claims, and the other ends of jobs: requeue, cancellation, repair after a crash, deletion.

A settlement is one transaction: outcomes and new children, then parents, then locks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import Any

import msgspec

from penstock.queue import transitions
from penstock.queue.job import (
    CHILDREN,
    SAME_METADATA,
    CancelResult,
    Changes,
    Job,
    RequeueResult,
    Settlement,
    Status,
    expired,
)
from penstock.queue.rules import addition
from penstock.queue.rules.addition import add_children, requeue_changes, with_position
from penstock.queue.rules.rows import Rows, refuse_unstorable, wake

NAMED_FAILURES = 3
_DONE = Status.DONE
"""A member of an enum costs more to read than a global name."""
MOST_CHUNKS = 2**31 - 1
"""Largest number of chunks accepted from one child."""


class Leftovers(msgspec.Struct, frozen=True):
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
        """Places of cascades over dependencies, after the first batch; see ``addition.resolve``."""

    def collect(self, before: Job, after: Job) -> None:
        if before.lock_held and not after.lock_held and before.lock_key is not None:
            self._freed.add(before.lock_key)
        if after.ended and not before.ended and after.parent_id is not None:
            failed, chunks = int(after.status is Status.FAILED), _chunks_in(after.result_json)
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
            _, left = addition.resolve(self._rows, self._awaited, self._now, addition.RESOLVED_AT_ONCE)
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


def _chunks_in(result_json: str | None) -> int:
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
        aftermath.count(parent_id, run, 1, 0, _chunks_in(result))
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


class _RepairCounts(msgspec.Struct, frozen=True):
    """Result of ``reconcile``."""

    rows: int
    leftovers: Leftovers
    to_return: list[str]
    """Parents with children to requeue."""


def reconcile(rows: Rows, now: datetime, limit: int) -> _RepairCounts:
    repaired = wake(rows, rows.idle_locks(limit), now)
    aftermath = Aftermath(rows, now)
    to_return: list[str] = []
    for parent in rows.doubtful_parents(limit):
        count = rows.child_count(parent)
        counted = parent
        if (parent.children_open, parent.children_failed) != (count.open, count.failed):
            counted = rows.change(parent, {"children_open": count.open, "children_failed": count.failed})
            repaired += 1
        if not count.open and not parent.cancel_requested and rows.children(parent, _RETRYABLE, 1):
            # The parent waits for no child: a requeue was interrupted before it reached the children.
            to_return.append(parent.queue_id)
        else:
            aftermath.collect(parent, counted)
    aftermath.apply()
    return _RepairCounts(repaired + len(to_return), aftermath.leftovers, to_return)


def _by_parent(entry: tuple[tuple[str, int | None], list[int]]) -> tuple[str, int]:
    parent_id, run = entry[0]
    return parent_id, run or 0


_RETRYABLE = frozenset({Status.FAILED, Status.CANCELLED})


def requeue(
    rows: Rows,
    ids: list[str],
    now: datetime,
    *,
    keep_retries: bool = False,
    metadata: Mapping[str, str] = SAME_METADATA,
) -> tuple[list[RequeueResult], list[str]]:
    """Requeue jobs. Returns a result for each, and the parents with children to requeue."""
    answers, parents = [], []
    # Before any row is locked: a resume locks pauses first, too.
    rows.pauses()
    rows.lock_rows(ids)
    for queue_id in ids:
        answer, job = _requeue_one(rows, queue_id, now, keep_retries, metadata)
        answers.append(answer)
        if job is not None and job.status is Status.IN_PROGRESS:
            parents.append(queue_id)
    return answers, parents


def return_children(rows: Rows, parent_id: str, now: datetime, limit: int) -> tuple[bool, list[str]]:
    """Requeue one batch of children. Returns whether the batch was the last, and parents with children to
    requeue.

    Refused children would be found again. If all of a batch are refused, reconcile continues later.
    """
    parent = rows.peek(parent_id)
    if parent is None or parent.ended:
        return True, []
    batch = rows.children(parent, _RETRYABLE, limit)
    answers, parents = requeue(rows, [child.queue_id for child in batch], now)
    return len(batch) < limit or all(answer.refused for answer in answers), parents


def _requeue_one(
    rows: Rows, queue_id: str, now: datetime, keep_retries: bool, metadata: Mapping[str, str]
) -> tuple[RequeueResult, Job | None]:
    job = rows.get(queue_id)
    if job is None or job.status not in _RETRYABLE:
        status = job.status if job else None
        return RequeueResult(queue_id, status, status), None
    was_waiting = job.waiting_for == CHILDREN and (
        job.children_open > 0 or bool(rows.children(job, _RETRYABLE, 1))
    )
    obstacle = _obstacle(rows, job, reopened=was_waiting)
    if obstacle is not None:
        return RequeueResult(queue_id, job.status, job.status, obstacle), None
    if was_waiting:
        changes = transitions.reopened(job, now)
    else:
        changes = transitions.requeued(job, now, keep_retries=keep_retries)
        changes |= requeue_changes(rows, job)
    if job.metadata in metadata:
        changes["metadata"] = metadata[job.metadata]
    after = rows.change(job, with_position(rows, job, changes))
    _reopen_parent(rows, job, now)
    return RequeueResult(queue_id, job.status, after.status), after


def _obstacle(rows: Rows, job: Job, *, reopened: bool) -> str | None:
    """Return the id of a live row in the way of a requeue, or None.

    A row that holds the lock of a row to be re-opened: the job itself (``reopened``) or an ancestor. Or a row
    with the key of the job, or of the root of the failed tree that it would re-open.
    """
    top = job
    while True:
        holder = rows.lock_holder(top.lock_key) if reopened and top.lock_key is not None else None
        if holder is not None:
            return holder
        if top.parent_id is None:
            break
        parent = rows.get(top.parent_id)
        if parent is None or not _reopens(parent, top):
            return None
        top, reopened = parent, True
    live = rows.live(top.tenant_id, top.branch, top.idempotency_key) if top.dedupe else None
    return live.queue_id if live else None


def _reopens(parent: Job, child: Job) -> bool:
    return parent.status is Status.FAILED and parent.run == child.parent_run


def _reopen_parent(rows: Rows, child: Job, now: datetime) -> None:
    """Count the child as open again, up to the root."""
    parent = rows.get(child.parent_id) if child.parent_id is not None else None
    if parent is None or parent.run != child.parent_run:
        return
    changes: Changes = transitions.reopened(parent, now) if _reopens(parent, child) else {"updated_at": now}
    changes["children_open"] = parent.children_open + 1
    if child.status is Status.FAILED:
        changes["children_failed"] = parent.children_failed - 1
    rows.change(parent, changes)
    if _reopens(parent, child):
        _reopen_parent(rows, parent, now)


_CANCELLABLE = frozenset({Status.PENDING, Status.IN_PROGRESS})


def cancel(rows: Rows, ids: list[str], now: datetime) -> tuple[list[CancelResult], Leftovers]:
    """Cancel jobs; their children are left to ``stop_children``. Returns a result for each, and work left."""
    aftermath = Aftermath(rows, now)
    answers = []
    rows.lock_rows(ids)
    for queue_id in ids:
        job = rows.get(queue_id)
        after = _cancel_one(rows, job, now, aftermath) if job is not None and not job.ended else job
        answers.append(CancelResult(queue_id, job.status if job else None, after.status if after else None))
    aftermath.apply()
    return answers, aftermath.leftovers


def stop_children(rows: Rows, parent_id: str, now: datetime, limit: int) -> tuple[bool, list[str]]:
    """Cancel one batch of children. Returns whether it was the last, and parents left to cancel."""
    # Children before their parent, as in every transaction, so that no two wait for each other.
    parent = rows.peek(parent_id)
    if parent is None or parent.ended:
        return True, []
    aftermath = Aftermath(rows, now)
    batch = [child.queue_id for child in rows.children(parent, _CANCELLABLE, limit)]
    rows.lock_rows(batch)
    for queue_id in batch:
        child = rows.get(queue_id)
        if child is not None and not child.ended:
            _cancel_one(rows, child, now, aftermath)
    aftermath.apply()
    return len(batch) < limit, [queue_id for queue_id in aftermath.to_stop if queue_id != parent_id]


def _cancel_one(rows: Rows, job: Job, now: datetime, aftermath: Aftermath) -> Job:
    after = rows.change(job, transitions.cancelled(job, now))
    aftermath.collect(job, after)
    if job.status is Status.PENDING and not job.lock_held:
        # The row may have been woken for this lock.
        aftermath.unblock(job.lock_key)
    return after


def prune(rows: Rows, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int) -> int:
    """Delete ended trees. Descendants first, so a later batch continues in the middle of a tree."""
    gone = 0
    for root in rows.ended_trees(ended_before, item_type, limit):
        ids = rows.tree(root.queue_id, limit - gone)
        rows.delete(ids)
        gone += len(ids)
        if gone >= limit:
            break
    return gone


def expire_results(rows: Rows, ids: Sequence[str], now: datetime) -> None:
    """Remove expired results."""
    rows.lock_rows(ids)
    for queue_id in ids:
        job = rows.get(queue_id)
        # The row may have been requeued since, and have another result.
        if job is not None and job.result_json is not None and expired(job, now):
            rows.change(job, {"result_json": None})
    rows.drop_due_results(ids, now)


def purge(rows: Rows, jobs: Sequence[Job], now: datetime) -> int:
    """Delete these rows, except rows changed since they were read; their locks and slots are passed on."""
    rows.lock_rows([job.queue_id for job in jobs])
    found = [(seen, rows.get(seen.queue_id)) for seen in jobs]
    meant = [job for seen, job in found if job is not None and job.updated_at == seen.updated_at]
    freed = {job.lock_key for job in meant if job.lock_held and job.lock_key is not None}
    rows.limit_keys.update(job.limit_key for job in meant if job.limit_key is not None)
    rows.delete([job.queue_id for job in meant])
    if freed:
        wake(rows, freed, now)
    return len(meant)
