"""Values that a specification fixes and that no behaviour of another test shows."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from penstock.cli import jobs
from penstock.client.async_client import AsyncClient
from penstock.client.sync_client import Client
from penstock.queue.jsonl import queue
from penstock.service.functions import Tasks
from penstock.service.job_views import JobReport


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_client_waits_longer_for_the_answer_to_a_submission(client: type[object]):
    defaults = inspect.signature(client).parameters

    assert (120, 30) == (defaults["index_timeout"].default, defaults["query_timeout"].default)


def test_a_watched_list_of_jobs_is_read_every_three_seconds():
    assert 3 == jobs.WATCH_S


def test_a_short_journal_is_compacted_after_a_hundred_records():
    assert 100 == queue.COMPACT_AFTER


def test_tasks_are_stale_after_30_minutes_and_kept_for_7_days():
    stale = inspect.signature(Tasks.detect_stale_tasks).parameters["threshold_minutes"].default
    kept = inspect.signature(Tasks.cleanup_completed_tasks).parameters["retention_days"].default

    assert (30, 7) == (stale, kept)


@pytest.mark.parametrize(
    ("done", "total", "percent"), [(0, 0, 0.0), (0, 8, 0.0), (1, 8, 12.5), (8, 8, 100.0), (None, 8, 0.0)]
)
def test_the_percentage_is_0_where_there_is_nothing_to_count(done: int | None, total: int, percent: float):
    report = JobReport(
        stage="indexing",
        files_processed=done,
        files_total=total,
        updated_at=datetime(2026, 1, 31, tzinfo=UTC),
    )

    assert percent == report.percent_complete
