"""Results of service calls: frozen values which every door renders."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from penstock.job import Job, Scope, Status, WorkerReport
from penstock.vocabulary import WORDS_OF_JOBS

JobWord = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(WORDS_OF_JOBS)})]
"""The word for a job's status in an answer of the server. Other interfaces have their own words."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission.

    ``run`` is the run of the job for this submission: pass it to ``wait``. ``queue_position`` counts the
    requests ahead (0: this one is next), of ``queue_length`` pending ones; files of a folder that runs are no
    requests. Both are None for a job that joins a transaction, and for calls and batches, where counting
    would cost more than adding. ``notes``: what the sender should know, such as documents of the same files
    elsewhere.
    """

    job_id: str
    status: Status
    message: str
    run: int = 1
    dedupe_hit: bool = False
    queue_position: int | None = None
    queue_length: int | None = None
    run_at: datetime | None = None
    notes: tuple[str, ...] = ()


class CancelAnswer(msgspec.Struct, frozen=True):
    """The result of a cancel. ``cancel_requested``: the worker or child jobs have to stop first."""

    job_id: str
    status: Literal["cancelled", "cancel_requested"]
    message: str


class RetryAnswer(msgspec.Struct, frozen=True):
    """The number of jobs retried, and jobs left alone because a live job has the same key (``twins``)."""

    retried: int
    twins: dict[str, str] = {}


class HistoryEntry(msgspec.Struct, frozen=True):
    """One event of a job or document."""

    at: datetime
    what: str
    note: str | None = None
    worker_id: str | None = None


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """A job with queue position, history and the ``reason`` for waiting."""

    job: Job
    reason: str | None
    queue_position: int | None
    queue_length: int | None
    history: list[HistoryEntry]

    @property
    def remedy(self) -> str | None:
        """The remedy for a failed job: that of its error, or another try."""
        # Late: only failed jobs need it.
        from penstock.catalog.rules.publication import remedy_for
        from penstock.lifecycle import TIMED_OUT

        if self.job.status is not Status.FAILED:
            return None
        if self.job.error_code == TIMED_OUT:
            # A retry has the same time again.
            return "Give it more time and submit it again: timeout_s, or PENSTOCK_JOB_TIMEOUT_S for all jobs."
        other = f"Remove the cause, then run `penstock retry {self.job.queue_id}`."
        return remedy_for(self.job.error_code or "") or other


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Job counts by status, pauses, workers and warnings about the store.

    ``by_held`` counts pending jobs that cannot be claimed now. If not ``exact`` (SQL engines above some
    thousand rows), numbers above 1,000 are estimates. ``oldest_pending_at`` is the age of the oldest job
    among those next in line.
    """

    by_status: dict[str, int]
    exact: bool
    by_held: dict[str, int]
    by_item_type: dict[str, dict[str, int]]
    oldest_pending_at: datetime | None
    oldest_pending_age_s: float | None
    paused: list[Scope]
    workers: list[WorkerReport]
    warnings: list[str]
