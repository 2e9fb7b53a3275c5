"""Submissions: receipts, dedupe, defaults, times, limits and refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.errors import (
    CannotRetry,
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    InvalidTime,
    QueueFull,
)
from penstock.queue import transitions
from penstock.queue.job import Status
from penstock.queue.memory.queue import MemoryQueue
from penstock.service.jobs import Jobs
from penstock.service.requests import Receipt, Submission, new_jobs
from tests.service.conftest import call, claim, fail, note


def test_a_receipt_says_where_the_job_stands(app: Penstock):
    first, second = note(app, "one"), note(app, "two")

    assert ("Job queued", Status.PENDING, 1, False) == (
        second.message,
        second.status,
        second.run,
        second.dedupe_hit,
    )
    assert (0, 1) == (first.queue_position, first.queue_length)
    assert (1, 2) == (second.queue_position, second.queue_length)


def test_a_receipt_counts_requests_and_neither_files_nor_calls(app: Penstock):
    submit = partial(app.submit, item_type="folder", op="ingest")
    folder = submit(payload={"folder_path": "/srv/one"}, priority=9)
    (one,) = claim(app)
    files = [f"/srv/one/{name}.md" for name in "abc"]
    children = [Submission(item_type="file", op="ingest", payload={"file_path": path}) for path in files]
    made = new_jobs(children, app.settings, door="library", now=app.queue.now)
    app.queue.settle([transitions.waits(one, children=tuple(made))])
    assert folder.job_id == one.queue_id
    call(app, priority=9)

    second = submit(payload={"folder_path": "/srv/two"}, priority=3)
    later = submit(payload={"folder_path": "/srv/three"}, priority=3, delay=60)
    again = submit(payload={"folder_path": "/srv/one"})

    assert (0, 1) == (second.queue_position, second.queue_length)
    assert 2 == later.queue_length
    assert (True, 0, 2) == (again.dedupe_hit, again.queue_position, again.queue_length)
    assert 2 == app.queue.backlog(functions=False, cap=10)
    told = "next in line after 4 calls or parts of folders; no worker is running"
    assert told == app.details(second.job_id).reason
    assert (0, 2) == (app.details(second.job_id).queue_position, app.details(second.job_id).queue_length)


def test_a_job_that_waits_for_a_failed_one_is_not_called_queued(app: Penstock):
    first = note(app, "first")
    fail(app, *claim(app))
    second = note(app, "second", after=[first.job_id])

    cause = f"{first.job_id} failed, and this job waited for it"
    assert (Status.CANCELLED, f"Job cancelled: {cause}") == (second.status, second.message)
    assert cause == app.job(second.job_id).error_message
    assert (0, 0) == (second.queue_position, second.queue_length)
    (batch,) = app.submit_many(
        [{"item_type": "content", "op": "ingest", "payload": {"content": "c"}, "after": [second.job_id]}]
    )
    assert f"Job cancelled: {second.job_id} was cancelled, and this job waited for it" == batch.message


def test_a_duplicate_is_answered_by_the_live_job(app: Penstock):
    first, again = note(app), note(app)

    assert (first.job_id, True, 1) == (again.job_id, again.dedupe_hit, again.run)
    assert f"Duplicate: job {first.job_id} already pending" == again.message
    assert 1 == len(app.jobs())


def test_a_duplicate_of_a_running_job_names_the_next_run(app: Penstock):
    first = note(app)
    claim(app)
    again = note(app)

    assert (first.job_id, 2) == (again.job_id, again.run)
    assert (0, 0) == (again.queue_position, again.queue_length)
    assert f"Duplicate: job {first.job_id} already in_progress" == again.message


def metadata_of(app: Penstock, receipt: Receipt) -> dict[str, Any]:
    """The metadata without the time of the request."""
    metadata: dict[str, Any] = json.loads(app.job(receipt.job_id).metadata)
    assert metadata.pop("asked_at").endswith("Z")
    return metadata


def test_the_time_of_the_newest_request_counts(app: Penstock):
    receipt = note(app)
    first = json.loads(app.job(receipt.job_id).metadata)["asked_at"]
    again = note(app)

    assert again.dedupe_hit
    assert first < json.loads(app.job(receipt.job_id).metadata)["asked_at"]


def test_force_is_a_row_of_its_own_that_ignores_unchanged(app: Penstock):
    first, forced = note(app), note(app, force=True, metadata={"by": "me"})

    assert first.job_id != forced.job_id
    assert {"by": "me", "rebuild": True} == metadata_of(app, forced)
    assert {} == metadata_of(app, first)


def test_rebuild_alone_still_dedupes(app: Penstock):
    first, again = note(app), note(app, rebuild=True)

    assert again.dedupe_hit
    assert {"rebuild": True} == metadata_of(app, first)


def test_dedupe_false_alone_does_not_rebuild(app: Penstock):
    note(app)
    other = note(app, dedupe=False)

    assert not other.dedupe_hit
    assert {} == metadata_of(app, other)


def test_two_calls_of_a_function_are_two_jobs_unless_a_key_says_otherwise(app: Penstock):
    assert not call(app).dedupe_hit
    assert not call(app).dedupe_hit
    assert not call(app, key="daily").dedupe_hit
    assert call(app, key="daily").dedupe_hit


def test_a_key_belongs_to_functions_only(jobs: Jobs):
    with pytest.raises(InvalidRequest, match="only function jobs"):
        note(jobs, key="mine")


def test_tenant_and_collection_come_from_the_settings():
    jobs = Jobs(MemoryQueue(), config.load({}, tenant_id="acme", collection="notes"))
    job = jobs.job(note(jobs).job_id)

    assert ("acme", "notes", "main") == (job.tenant_id, job.collection, job.branch)


def test_retries_and_timeout_come_from_the_settings_unless_given():
    jobs = Jobs(MemoryQueue(), config.load({}, max_retries=7, job_timeout_s=60))
    plain, own = jobs.job(note(jobs).job_id), jobs.job(note(jobs, "x", max_retries=0, timeout_s=5).job_id)

    assert (7, 60) == (plain.max_retries, plain.timeout_s)
    assert (0, 5) == (own.max_retries, own.timeout_s)


@pytest.mark.parametrize(("door", "priority"), [("library", 5), ("cli", 9), ("mcp", 10), ("bulk", 0)])
def test_the_door_decides_the_priority(door: Any, priority: int):
    jobs = Jobs(MemoryQueue(), config.load({}), door=door)
    receipt = jobs.submit(item_type="file", op="ingest", payload={"file_path": "/a"})
    job = jobs.job(receipt.job_id)

    assert (priority, door) == (job.priority, job.submitted_by)


def test_the_door_decides_the_words():
    jobs = Jobs(MemoryQueue(), config.load({}), door="cli")
    receipt = note(jobs)
    claim(jobs)

    assert f"Duplicate: job {receipt.job_id} already running" == note(jobs).message
    with pytest.raises(CannotRetry, match="status: running"):
        jobs.retry(receipt.job_id)


def test_an_id_of_the_doors_own_is_kept(jobs: Jobs):
    assert "rag-docs-1" == note(jobs, job_id="rag-docs-1").job_id
    with pytest.raises(InvalidName):
        note(jobs, "other", job_id="no blanks please")


@pytest.mark.parametrize(
    "when", ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00+01:00", datetime(2030, 1, 1, tzinfo=UTC)]
)
def test_run_at_is_text_or_a_time_with_a_zone(app: Penstock, when: Any):
    receipt = note(app, run_at=when)

    assert datetime(2030, 1, 1, tzinfo=UTC) == receipt.run_at == app.job(receipt.job_id).run_at
    assert (0, 1) == (receipt.queue_position, receipt.queue_length)


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
def test_delay_is_seconds_or_a_duration(app: Penstock, delay: Any):
    before = clock.now()
    receipt = note(app, delay=delay)

    assert receipt.run_at is not None
    assert timedelta(seconds=90) <= receipt.run_at - before < timedelta(seconds=95)


def test_a_run_at_in_the_past_is_due_now(app: Penstock):
    receipt = note(app, run_at="2001-01-01T00:00:00Z")

    assert (None, 0) == (receipt.run_at, receipt.queue_position)
    assert app.job(receipt.job_id).held is None


@pytest.mark.parametrize(
    "when",
    [
        {"run_at": "tomorrow"},
        {"run_at": "2030-01-01T00:00:00"},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is the mistake
        {"run_at": "9999-12-31T23:59:59-12:00"},
        {"run_at": "0001-01-01T00:00:00+12:00"},
        {"run_at": 1_900_000_000},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": 1e30},
        {"delay": "90"},
        {"delay": timedelta(days=4000)},
        {"delay": True},
        {"delay": 1, "run_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_times_without_meaning_are_refused(jobs: Jobs, when: dict[str, Any]):
    with pytest.raises(InvalidTime):
        note(jobs, **when)
    assert [] == jobs.jobs()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"max_retries": 1001},
        {"max_retries": True},
        {"timeout_s": 0},
        {"timeout_s": 1.5},
        {"force": "false"},
        {"dedupe": None},
        {"metadata": ["x"]},
        {"metadata": {"x": b"bytes"}},
        {"branch": ""},
        {"colection": "typo"},
    ],
)
def test_other_fields_are_checked_too(jobs: Jobs, wrong: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        note(jobs, **wrong)
    assert [] == jobs.jobs()


def test_a_flaw_in_the_metadata_is_named_as_such(jobs: Jobs):
    with pytest.raises(InvalidPayload, match=r"^metadata\.x: "):
        note(jobs, metadata={"x": {1, 2}})


def test_many_are_added_or_none(app: Penstock):
    good = {"item_type": "file", "op": "ingest", "payload": {"file_path": "/a"}}
    bad = good | {"payload": {"file_path": "a"}}

    with pytest.raises(InvalidRequest, match=r"submission 2 of 3: .*absolute"):
        app.submit_many([good, bad, good])  # type: ignore[list-item]
    assert [] == app.jobs()
    receipts = app.submit_many([good, good, good | {"payload": {"file_path": "/b"}}])  # type: ignore[list-item]
    assert [False, True, False] == [receipt.dedupe_hit for receipt in receipts]
    assert [] == app.submit_many([])


@pytest.mark.parametrize("wrong", ["text", {"op": "ingest"}, None])
def test_a_batch_of_something_else_is_refused(jobs: Jobs, wrong: Any):
    with pytest.raises(InvalidRequest):
        jobs.submit_many([wrong])


def test_a_full_queue_refuses_new_jobs_and_answers_duplicates():
    jobs = Jobs(MemoryQueue(), config.load({}, max_queue=2, max_function_queue=1))
    note(jobs, "one")
    note(jobs, "two")

    with pytest.raises(QueueFull, match=r"Queue full \(2 pending\)"):
        note(jobs, "three")
    assert note(jobs, "one").dedupe_hit
    call(jobs)
    with pytest.raises(QueueFull):
        call(jobs)


def test_a_tenant_may_have_a_limit_of_its_own():
    jobs = Jobs(MemoryQueue(), config.load({}, max_queue_per_tenant=1))
    note(jobs, tenant_id="a")
    note(jobs, tenant_id="b")

    with pytest.raises(QueueFull):
        note(jobs, "another", tenant_id="a")
