"""Indexes of a memory queue: the children of each run of a parent, and the rows of each tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import islice

from penstock.job import Job, Status
from penstock.queue.rules.rows import ChildCount


class FamilyTable:
    """The part of a table about parents, children and trees."""

    rows: dict[str, Job]

    def __init__(self) -> None:
        super().__init__()
        self._children: defaultdict[tuple[str, int | None], dict[str, str]] = defaultdict(dict)
        """Ids of children by parent and run, then by key."""
        self._trees: defaultdict[str, dict[str, None]] = defaultdict(dict)

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
