"""Answers about a job whose worker was lost: it waits again, as if it had not begun."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from penstock import Penstock
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.service.job_views import JobRecords


def test_a_job_that_was_reset_is_pending_without_a_start(tmp_path: Path):
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:
        receipt = app.submit(item_type="content", op="ingest", payload={"content": "The gate."})
        (claim,) = app.queue.claim(ClaimRequest("w1", 1, timedelta(seconds=60)))
        records = JobRecords(app)
        running = records.detail(app.job(receipt.job_id))
        assert ("in_progress", True, True) == (
            running.status,
            running.started_at is not None,
            running.running_time_ms is not None,
        )

        app.queue.settle([transitions.lease_lost(claim)])

        lost = records.detail(app.job(receipt.job_id))
        assert ("pending", None, None, 1) == (
            lost.status,
            lost.started_at,
            lost.running_time_ms,
            lost.retry_count,
        )
