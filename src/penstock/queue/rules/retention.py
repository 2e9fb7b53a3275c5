"""Deletion: ended trees after their retention, single rows of a deleted tenant, results after their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from penstock.job import Job, Status
from penstock.queue.rules.rows import Rows, wake
from penstock.results import expired


class Prunable(Protocol):
    """Methods of rows for ``prune``."""

    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> Sequence[Job]:
        """List top-level rows (of one item type, or all) ended before the time of their status.

        Oldest end first, without a live descendant.
        """

    def tree(self, root_id: str, limit: int) -> list[str]:
        """List the ids of a tree, descendants first and the root last."""

    def delete(self, ids: Sequence[str]) -> None: ...


def prune(rows: Prunable, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int) -> int:
    """Delete ended trees. Descendants first, so a later batch continues in the middle of a tree."""
    gone = 0
    for root in rows.ended_trees(ended_before, item_type, limit):
        ids = rows.tree(root.queue_id, limit - gone)
        rows.delete(ids)
        gone += len(ids)
        if gone >= limit:
            break
    return gone


class Deletable(Rows, Protocol):
    """Methods of rows for ``purge``."""

    def delete(self, ids: Sequence[str]) -> None: ...


def expire_results(rows: Rows, ids: Sequence[str], now: datetime) -> None:
    """Remove expired results."""
    rows.lock_rows(ids)
    for queue_id in ids:
        job = rows.get(queue_id)
        # The row may have been requeued since, and have another result.
        if job is not None and job.result_json is not None and expired(job, now):
            rows.change(job, {"result_json": None})
    rows.drop_due_results(ids, now)


def purge(rows: Deletable, jobs: Sequence[Job], now: datetime) -> int:
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
