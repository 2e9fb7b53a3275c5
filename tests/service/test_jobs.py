"""Finding, cancelling, retrying, pausing, counting and removing jobs, over every engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.errors import (
    AmbiguousId,
    CannotCancel,
    CannotRetry,
    InvalidName,
    InvalidRequest,
    InvalidTime,
    JobNotFound,
    LiveTwin,
    UnknownItemType,
    UnknownStatus,
)
from penstock.queue import transitions
from penstock.queue.job import Scope, Status, WorkerReport
from penstock.service.jobs import Jobs
from tests.service.conftest import call, claim, fail, note

# Finding.


def test_a_job_is_found_by_id_and_by_a_prefix_only_it_has(app: Penstock):
    note(app, "one", job_id="abc")
    note(app, "two", job_id="abcd")
    note(app, "three", job_id="xyz")

    assert "abc" == app.job("abc").queue_id
    assert "abcd" == app.job("abcd").queue_id
    assert "xyz" == app.job("x").queue_id
    with pytest.raises(AmbiguousId, match="abc, abcd"):
        app.job("ab")


def test_an_ambiguous_prefix_names_at_most_five(app: Penstock):
    for number in range(7):
        note(app, f"text {number}", job_id=f"same{number}")

    with pytest.raises(AmbiguousId, match=r"same0, same1, same2, same3, same4, …$"):
        app.job("same")


@pytest.mark.parametrize("wrong", ["", "%", "_", "job_%", "*", "a\0b", "\ud800", "x" * 200, None, 7])
def test_what_is_no_id_is_not_found(app: Penstock, wrong: Any):
    note(app)

    with pytest.raises(JobNotFound):
        app.job(wrong)


def test_jobs_are_listed_newest_first_in_pages(app: Penstock):
    ids = [note(app, f"text {number}").job_id for number in range(5)]

    first = app.jobs(limit=2)
    second = app.jobs(limit=2, after=first[-1].queue_id)
    assert ids[:0:-1] == [job.queue_id for job in first + second]
    assert ids == [job.queue_id for job in app.jobs(newest_first=False)]


def test_filters_take_every_doors_words(app: Penstock):
    note(app, "one", tenant_id="a")
    note(app, "two", tenant_id="b", delay=60)
    claim(app)

    def texts(**filters: Any) -> list[str]:
        return sorted(job.payload["content"] for job in app.jobs(**filters))

    assert ["one"] == texts(status="RUNNING") == texts(status="processing") == texts(tenant_id="a")
    assert ["one", "two"] == texts(status=["queued", "in_progress"]) == texts()
    assert ["two"] == texts(held="time") == texts(status="pending")
    assert [] == texts(item_type="file")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"status": "finished-ish"}, UnknownStatus),
        ({"status": "skipped"}, UnknownStatus),
        ({"item_type": "fiel"}, UnknownItemType),
        ({"tenant_id": "\ud800"}, InvalidName),
        ({"after": "a\0"}, InvalidName),
        ({"held": "up"}, InvalidRequest),
        ({"limit": 0}, InvalidRequest),
        ({"limit": 10_000}, InvalidRequest),
        ({"tenant": "a"}, InvalidRequest),
    ],
)
def test_a_filter_that_can_match_nothing_is_a_mistake(
    jobs: Jobs, wrong: dict[str, Any], error: type[Exception]
):
    with pytest.raises(error):
        jobs.jobs(**wrong)


# Cancel and retry.


def test_cancel_of_a_pending_job_ends_it(app: Penstock):
    receipt = note(app)
    answer = app.cancel(receipt.job_id[:12])

    assert ("cancelled", receipt.job_id) == (answer.status, answer.job_id)
    assert Status.CANCELLED is app.job(receipt.job_id).status


def test_cancel_of_a_running_job_is_a_request(app: Penstock):
    receipt = note(app)
    claim(app)
    answer = app.cancel(receipt.job_id)

    assert ("cancel_requested", "Worker will stop at next checkpoint") == (answer.status, answer.message)


def test_cancel_of_an_ended_job_is_refused(app: Penstock):
    receipt = note(app)
    app.queue.settle([transitions.done(each) for each in claim(app)])

    with pytest.raises(CannotCancel, match=r"^Cannot cancel job with status: done$"):
        app.cancel(receipt.job_id)


def test_retry_puts_a_failed_job_back(app: Penstock):
    receipt = note(app)
    fail(app, *claim(app))
    job = app.retry(receipt.job_id)

    assert (Status.PENDING, 2, 0) == (job.status, job.run, job.retry_count)


def test_retry_of_a_live_job_is_refused(app: Penstock):
    with pytest.raises(CannotRetry, match=r"^Cannot retry job with status: pending$"):
        app.retry(note(app).job_id)


def test_retry_of_a_done_job_says_that_a_new_one_is_needed(app: Penstock):
    receipt = note(app)
    app.queue.settle([transitions.done(each) for each in claim(app)])
    with pytest.raises(CannotRetry, match="status: done") as refusal:
        app.retry(receipt.job_id)
    assert "Wait" not in refusal.value.remedy
    assert "submit it again" in refusal.value.remedy


def test_retry_beside_a_live_twin_is_refused_with_its_id(app: Penstock):
    old = note(app)
    fail(app, *claim(app))
    new = note(app)

    with pytest.raises(LiveTwin) as refusal:
        app.retry(old.job_id)
    assert new.job_id == refusal.value.twin


def test_retry_of_all_failed_names_those_with_a_twin(app: Penstock):
    for text in ("one", "two", "three"):
        note(app, text)
    fail(app, *claim(app, 3))
    twin = note(app, "two")
    (stays,) = [job.queue_id for job in app.jobs(status="failed") if job.payload["content"] == "two"]

    answer = app.retry_failed()
    assert (2, {stays: twin.job_id}) == (answer.retried, answer.twins)
    assert [stays] == [job.queue_id for job in app.jobs(status="failed")]


def test_retry_of_all_failed_obeys_filters(app: Penstock):
    note(app, tenant_id="a")
    note(app, tenant_id="b")
    fail(app, *claim(app, 2))

    assert 1 == app.retry_failed(tenant_id="a").retried
    assert ["b"] == [job.tenant_id for job in app.jobs(status="failed")]


def test_retry_of_all_failed_counts_what_was_asked_for_not_its_children(app: Penstock):
    from penstock.service.requests import new_jobs

    app.submit(item_type="folder", op="ingest", payload={"folder_path": "/docs"})
    (parent,) = claim(app)
    files = [f"/docs/{number}" for number in range(3)]
    children = new_jobs(
        [{"item_type": "file", "op": "ingest", "payload": {"file_path": path}} for path in files],
        app.settings,
        door="library",
        now=app.queue.now,
    )
    app.queue.settle([transitions.waits(parent, children=tuple(children))])
    fail(app, *claim(app, 3))
    assert 4 == len(app.jobs(status="failed"))

    assert 1 == app.retry_failed().retried
    assert [3, 1] == [len(app.jobs(status=word)) for word in ("pending", "running")]


# Pause, stats, purge.


def test_pause_and_resume_of_a_scope(app: Penstock):
    note(app, tenant_id="a", collection="x")
    app.pause(tenant_id="a")

    assert [] == claim(app)
    assert [Scope("a", "*")] == app.paused()
    assert 1 == app.resume(tenant_id="a")
    assert [] == app.paused()
    assert 1 == len(claim(app))


def test_pausing_everything_must_be_said(app: Penstock):
    with pytest.raises(InvalidRequest):
        app.pause()
    with pytest.raises(InvalidName):
        app.pause(tenant_id="a\nb")

    assert Scope("*", "*") == app.pause(tenant_id="*")


def test_stats_count_where_jobs_stand(app: Penstock):
    note(app, "one", job_id="rag-1")
    note(app, "two", delay=60)
    call(app)
    claim(app)
    app.queue.report(WorkerReport(worker_id="w1", host="mill", pid=1, started_at=clock.now()))
    stats = app.stats()

    assert {"pending": 2, "in_progress": 1, "done": 0, "failed": 0, "cancelled": 0} == stats.by_status
    assert {"time": 1, "lock": 0, "pause": 0, "after": 0, "limit": 0} == stats.by_held
    assert {"content": {"in_progress": 1, "pending": 1}, "function": {"pending": 1}} == stats.by_item_type
    assert stats.oldest_pending_age_s is not None
    assert 0 <= stats.oldest_pending_age_s < 60
    assert ["w1"] == [worker.worker_id for worker in stats.workers]


def test_stats_name_living_workers_only(app: Penstock):
    now = app.queue.now()
    for name, ago_s, info in (("lives", 50, "{}"), ("silent", 70, "{}"), ("ended", 0, '{"ended":true}')):
        report = WorkerReport(worker_id=name, host="mill", pid=1, started_at=now, info_json=info)
        app.queue.report(report, now=now - timedelta(seconds=ago_s))

    assert ["lives"] == [worker.worker_id for worker in app.stats().workers]


def test_stats_of_an_empty_queue(app: Penstock):
    stats = app.stats()

    assert {0} == set(stats.by_status.values())
    assert (None, {}) == (stats.oldest_pending_at, stats.by_item_type)


def test_purge_removes_what_ended_long_enough_ago(app: Penstock):
    note(app, "done")
    app.queue.settle([transitions.done(each) for each in claim(app)])
    note(app, "failed")
    fail(app, *claim(app))
    note(app, "live")

    assert 0 == app.purge(status="done", older_than=timedelta(days=1))
    assert 1 == app.purge(status="completed")
    assert 1 == app.purge(status=["failed", "cancelled"])
    assert ["live"] == [job.payload["content"] for job in app.jobs()]


@pytest.mark.parametrize("status", ["pending", ["done", "running"], []])
def test_purge_never_removes_live_jobs(jobs: Jobs, status: Any):
    note(jobs)

    with pytest.raises(InvalidRequest):
        jobs.purge(status=status)
    assert 1 == len(jobs.jobs())


def test_purge_of_the_future_is_refused(jobs: Jobs):
    with pytest.raises(InvalidTime):
        jobs.purge(older_than=timedelta(seconds=-1))
