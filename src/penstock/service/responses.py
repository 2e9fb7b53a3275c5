"""What the service answers: frozen values that every door renders in its own way."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from penstock.job import Job, Scope, Status, WorkerReport


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission.

    ``run`` is the run that will do what was asked: pass it to ``wait``. ``queue_position`` counts the jobs
    that would be claimed before this one (0: it is next). It is None when the job runs already, waits for its
    ``run_at``, or joins a transaction, and for calls and batches, where counting would cost more than adding.
    """

    job_id: str
    status: Status
    message: str
    run: int = 1
    dedupe_hit: bool = False
    queue_position: int | None = None
    queue_length: int | None = None
    run_at: datetime | None = None


class CancelAnswer(msgspec.Struct, frozen=True):
    """``cancelled``: it has ended. ``cancel_requested``: its worker, or its children, have to stop first."""

    job_id: str
    status: Literal["cancelled", "cancel_requested"]
    message: str


class RetryAnswer(msgspec.Struct, frozen=True):
    """How many jobs were put back, and which were not because a live job with the same key exists."""

    retried: int
    twins: dict[str, str] = {}


class HistoryEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a job, or to a document."""

    at: datetime
    what: str
    note: str | None = None
    worker_id: str | None = None


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """A job with what its row alone does not say. ``reason``: why it is not running, or what it waits for."""

    job: Job
    reason: str | None
    queue_position: int | None
    queue_length: int | None
    history: list[HistoryEntry]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Job counts by status. ``by_held`` counts the pending ones that cannot be claimed now. If not ``exact``
    (SQL engines above some thousand rows), numbers above 1,000 are estimates. ``oldest_pending_at`` is that
    of the oldest job among those next in line; ``warnings`` says what of the store a person should look at.
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
