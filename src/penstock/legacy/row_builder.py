"""The job made from a row of another queue, with the same id at each import."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from penstock.clock import format_time
from penstock.config import Settings
from penstock.errors import InvalidName, InvalidRequest
from penstock.legacy.rows import (
    LegacyRow,
    PartOf,
    Planned,
    PlannedJob,
    RowOutcome,
    RowReport,
    Unmappable,
    derived_id,
    refusal_reason,
    storable_text,
)
from penstock.named_tuple import NamedTuple
from penstock.queue import payloads, transitions
from penstock.queue.job import Job, NewJob, Status, failure_reason
from penstock.service.requests import Submission, new_jobs

ORIGIN = "imported"
"""Key in a job's metadata: kind, source, table and id of the row that it came from."""
SUBMITTED_BY = "import"
FAILED_BEFORE = "ERR_FAILED_BEFORE"
"""Error code of a job that failed in the queue it was imported from, unless that queue had one."""
FILE_GONE = "ERR_FILE_NOT_FOUND"
SHORTEST_KEPT_ID = 8
"""Shorter ids, such as numbers, are those of rows and not of jobs: another source may have them, too."""

RowMapping: TypeAlias = Callable[[LegacyRow], Planned]


class PreparedRow(NamedTuple):
    """A row with the resulting job, and the same as a new request."""

    row: LegacyRow
    planned: PlannedJob
    job: Job
    new: NewJob


class RowBuilder:
    """Makes jobs of the rows of one source."""

    def __init__(
        self, kind: str, source: str, mapping: RowMapping, settings: Settings, now: datetime
    ) -> None:
        self.kind = kind
        self.source = source
        self._mapping = mapping
        self._settings = settings
        self._now = now

    def prepared(self, row: LegacyRow) -> PreparedRow | PartOf | RowReport:
        """Map a row; a report for a refused one."""
        try:
            if row.fault is not None:
                raise Unmappable(row.fault)
            planned = self._mapping(row)
            return planned if isinstance(planned, PartOf) else self.build(row, planned)
        except (Unmappable, InvalidRequest) as error:
            return RowReport(row.table, row.row_id, RowOutcome.REFUSED, None, refusal_reason(error))

    def build(self, row: LegacyRow, planned: PlannedJob, *, keep_id: bool = True) -> PreparedRow:
        """Make the job of a row. ``keep_id``: under the id that the row has, where it can be one."""
        kept = planned.job_id if keep_id and _is_job_id(planned.job_id) else None
        queue_id = kept or derived_id(self.kind, self.source, row, planned.created_at)
        (new,) = new_jobs(
            [self._submission(row, planned, queue_id)],
            self._settings,
            door="library",
            now=lambda: self._now,
        )
        new = msgspec.structs.replace(new, submitted_by=SUBMITTED_BY)
        return PreparedRow(row, planned, self._job(new, planned), new)

    def _submission(self, row: LegacyRow, planned: PlannedJob, queue_id: str) -> Submission:
        origin: dict[str, Any] = {
            "kind": self.kind,
            "source": self.source,
            "table": row.table,
            "id": storable_text(row.row_id),
        }
        if planned.created_at is not None:
            origin["created_at"] = format_time(planned.created_at)
        if planned.extra:
            origin["columns"] = dict(planned.extra)
        given = Submission(
            item_type=planned.item_type,
            op=planned.op,
            payload=planned.payload,
            job_id=queue_id,
            metadata={ORIGIN: origin},
            dedupe=planned.dedupe,
            rebuild=planned.rebuild,
            tenant_id=planned.tenant_id,
            collection=planned.collection,
            priority=planned.priority,
            max_retries=planned.max_retries,
            timeout_s=planned.timeout_s,
            run_at=planned.run_at,
        )
        if planned.branch is not None:
            given["branch"] = planned.branch
        return given

    def _job(self, new: NewJob, planned: PlannedJob) -> Job:
        job = transitions.added(new, self._now, 0)
        message = None if planned.error_message is None else storable_text(planned.error_message)
        changes: dict[str, Any] = {
            "created_at": min(planned.created_at or self._now, self._now),
            "retry_count": min(max(planned.retry_count, 0), job.max_retries),
            "started_at": planned.started_at,
            "error_message": message,
            "error_code": planned.error_code and storable_text(planned.error_code),
            "total_chunks": max(planned.total_chunks, 0),
        }
        status = planned.status
        if status is Status.PENDING and planned.path is not None and not os.path.lexists(planned.path):
            status, changes["error_code"] = Status.FAILED, FILE_GONE
            changes["error_message"] = f"{planned.path} no longer exists"
        if status is not Status.PENDING:
            # Retention counts from now on: a job that failed long ago is not deleted at once.
            changes |= {"status": status, "finished_at": self._now, "held": None, "run_at": None, "turn": 0}
        if status is Status.FAILED:
            code = changes["error_code"] = changes["error_code"] or FAILED_BEFORE
            changes["error_reason"] = failure_reason(code, changes["error_message"])
            changes["last_error_at"] = self._now
        elif status is not Status.PENDING:
            changes |= {"error_message": None, "error_code": None}
        return msgspec.structs.replace(job, **changes)


def _is_job_id(found: str | None) -> bool:
    if found is None or len(found) < SHORTEST_KEPT_ID:
        return False
    try:
        payloads.validate_name("job_id", found)
    except InvalidName:
        return False
    return True
