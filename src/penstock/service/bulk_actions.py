"""Retries and cancels of all matching jobs, and failed jobs grouped by reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.rules.publication import remedy_for
from penstock.errors import CountChanged
from penstock.queue.job import BUCKETS, CancelResult, FailureGroup, Job, JobQuery, RequeueResult
from penstock.queue.protocol import CASCADE_BATCH
from penstock.service.job_views import JobRecords
from penstock.service.jobs import JobFilter, Jobs, job_query
from penstock.vocabulary import how_many

Act: TypeAlias = Literal["retry", "cancel"]
_BUDGET_S = 10.0
"""Time after which an act stops between two batches and says that there is more."""
_MOST_SKIPPED = 100
_MOST_GROUPS = 100
_SHOWN = frozenset(("collection", "item_type", "parent_id", "q", "tenant_id"))
"""Filters of a page of failures that its groups repeat."""
_STATUSES: dict[Act, tuple[str, ...]] = {"retry": ("failed",), "cancel": ("pending", "running")}
"""Statuses of a filter that names none."""


class SkippedJob(msgspec.Struct, frozen=True):
    """A job left unchanged."""

    job_id: str
    reason: str


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of matching and changed jobs. ``skipped``: the first 100; ``more``: repeat for the others."""

    matched: int
    changed: int
    skipped: list[SkippedJob]
    more: bool


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs with one reason. ``message``: of the newest job; ``filter`` lists them all.

    ``buckets`` of ``bucket_s`` seconds each, the last one ends now.
    """

    reason: str
    error_code: str
    message: str
    remedy: str | None
    count: int
    first_at: datetime
    last_at: datetime
    bucket_s: int
    buckets: list[int]
    filter: dict[str, Any]


class FailurePage(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons, most frequent first. ``truncated``: there are others, or more failed jobs than were read."""

    total: int
    groups: list[FailureRecord]
    truncated: bool


class BulkActions:
    """Acts on many jobs of one door."""

    def __init__(self, jobs: Jobs, records: JobRecords) -> None:
        self._jobs = jobs
        self._records = records

    def run(
        self,
        act: Act,
        tenants: Sequence[str | None],
        filters: JobFilter,
        *,
        expect: int | None,
        dry_run: bool = False,
    ) -> BulkResult:
        """Act on all matching jobs of these tenants, if they are as many as expected.

        Raises ``CountChanged`` otherwise; then nothing has changed.
        """
        narrowed: JobFilter = {**filters, "status": filters.get("status") or _STATUSES[act]}
        matched = self._records.count(tenants, narrowed) or 0
        if dry_run:
            return BulkResult(matched=matched, changed=0, skipped=[], more=False)
        if expect != matched:
            raise CountChanged(f"{how_many(matched, 'job')} found now, {expect:,} expected", matched=matched)
        progress = _BulkProgress(matched, clock.elapsed_s() + _BUDGET_S)
        for tenant in tenants:
            self._run_for(act, job_query({**narrowed, "tenant_id": tenant}), progress)
        return progress.result()

    def _run_for(self, act: Act, query: JobQuery, progress: _BulkProgress) -> None:
        # Children first: a child that is retried opens its parent again, and the last one cancelled ends it.
        levels = (False, True) if query.top_level is None else (query.top_level,)
        for top_level in levels:
            query = msgspec.structs.replace(
                query,
                top_level=top_level,
                newest_first=False,
                by_priority=False,
                after=None,
                limit=CASCADE_BATCH,
            )
            while not progress.over and (found := self._jobs.queue.find(query)):
                progress.add(len(found), self._apply(act, found))
                query = msgspec.structs.replace(query, after=found[-1].queue_id)

    def _apply(self, act: Act, found: Sequence[Job]) -> list[SkippedJob]:
        """Change a batch of jobs; return the unchanged ones."""
        answers: Sequence[CancelResult | RequeueResult]
        if act == "retry":
            answers = self._jobs.requeue(found)
        else:
            answers = self._jobs.queue.cancel([job.queue_id for job in found])
        return [SkippedJob(one.queue_id, self._refusal(act, one)) for one in answers if one.refused]

    def _refusal(self, act: Act, answer: CancelResult | RequeueResult) -> str:
        if answer.was is None:
            return "The job has been removed."
        if isinstance(answer, RequeueResult) and answer.twin is not None:
            return f"Job {answer.twin} is live and does the same, or holds a lock that is needed."
        return f"Cannot {act} job with status: {self._jobs.word(answer.was)}"

    def failures(self, tenants: Sequence[str | None], filters: JobFilter) -> FailurePage:
        """Failed jobs of these tenants by reason. Child jobs count; parents failed because of them do not."""
        queue, now = self._jobs.queue, self._jobs.queue.now()
        found = [
            queue.failures(job_query({**filters, "tenant_id": tenant}), limit=_MOST_GROUPS + 1, now=now)
            for tenant in tenants
        ]
        merged: dict[str, list[tuple[FailureGroup, timedelta]]] = {}
        for groups in found:
            for group in groups.groups:
                merged.setdefault(group.reason, []).append((group, groups.step))
        records = [self._record(parts, filters) for parts in merged.values()]
        records.sort(key=lambda record: (-record.count, record.reason))
        return FailurePage(
            total=sum(groups.total for groups in found),
            groups=records[:_MOST_GROUPS],
            truncated=len(records) > _MOST_GROUPS or not all(groups.exact for groups in found),
        )

    def _record(self, parts: list[tuple[FailureGroup, timedelta]], filters: JobFilter) -> FailureRecord:
        """One reason, of one tenant or of several, whose buckets may differ in length."""
        step = max(step for _, step in parts)
        buckets = [0] * BUCKETS
        for group, own in parts:
            for place, number in enumerate(reversed(group.buckets)):
                buckets[BUCKETS - 1 - min(int(place * own / step), BUCKETS - 1)] += number
        newest = max((group for group, _ in parts), key=lambda group: group.last_at)
        job = self._jobs.queue.get(newest.newest)
        code = newest.reason.rpartition("-")[0]
        named = {name: value for name, value in filters.items() if value is not None and name in _SHOWN}
        return FailureRecord(
            reason=newest.reason,
            error_code=code,
            message=(job.error_message if job is not None else None) or "",
            remedy=remedy_for(code) or None,
            count=sum(group.number for group, _ in parts),
            first_at=min(group.first_at for group, _ in parts),
            last_at=newest.last_at,
            bucket_s=int(step.total_seconds()),
            buckets=buckets,
            filter={**named, "status": "failed", "reason": newest.reason, "children": True},
        )


class _BulkProgress:
    """Progress of an act over batches."""

    def __init__(self, matched: int, until: float) -> None:
        self._matched = matched
        self._until = until
        self._seen = self._refused = 0
        self._skipped: list[SkippedJob] = []
        self._late = False

    @property
    def over(self) -> bool:
        """True after all matching jobs, or after the time."""
        return self._late or self._seen >= self._matched

    def add(self, seen: int, refused: list[SkippedJob]) -> None:
        self._seen += seen
        self._refused += len(refused)
        self._skipped += refused[: _MOST_SKIPPED - len(self._skipped)]
        self._late = clock.elapsed_s() > self._until

    def result(self) -> BulkResult:
        more = self._late and self._seen < self._matched
        # A parent changes with its children, before its own turn.
        reached = self._seen if more else self._matched
        return BulkResult(
            matched=self._matched, changed=max(reached - self._refused, 0), skipped=self._skipped, more=more
        )
