"""Reasons why jobs wait, and histories."""

from __future__ import annotations

from datetime import timedelta

from penstock import Penstock, Receipt, clock
from penstock.queue import transitions
from penstock.queue.job import WorkerReport
from penstock.service.jobs import Jobs
from tests.service.conftest import FLAKY, claim, fail, note


def reason(app: Jobs, receipt: Receipt) -> str | None:
    return app.details(receipt.job_id).reason


def test_the_reason_of_a_job_in_line(app: Penstock):
    first, second, third = (note(app, text) for text in ("one", "two", "three"))

    assert "next in line; no worker is running" == reason(app, first)
    app.queue.report(WorkerReport(worker_id="w1", host="mill", pid=1, started_at=clock.now()))
    assert ["next in line", "1 job is ahead", "2 jobs are ahead"] == [
        reason(app, receipt) for receipt in (first, second, third)
    ]


def test_the_reason_counts_the_jobs_that_the_position_counts(app: Penstock):
    app.submit(item_type="function", op="run", payload={"function_name": "mail"}, priority=10)
    first, second = note(app, "one"), note(app, "two")

    assert 1 == app.details(second.job_id).queue_position
    assert "1 job is ahead, and 1 call or part of a folder; no worker is running" == reason(app, second)
    assert "next in line after 1 call or part of a folder; no worker is running" == reason(app, first)


def test_the_reason_of_a_delayed_job(app: Penstock):
    receipt = note(app, run_at="2030-01-31T12:00:00Z")

    assert "held until 2030-01-31 12:00:00 UTC, as requested" == reason(app, receipt)


def test_the_reason_of_a_job_that_waits_for_others(app: Penstock):
    first, second = note(app, "one"), note(app, "two")
    third = note(app, "three", after=[first.job_id, second.job_id])

    assert f"waiting for {first.job_id} (pending) and 1 other job" == reason(app, third)
    (one, two) = claim(app, 2)
    app.queue.settle([transitions.done(one)])
    assert f"waiting for {second.job_id} (running)" == reason(app, third)
    app.queue.settle([transitions.done(two)])
    assert "next in line; no worker is running" == reason(app, third)


def test_the_reason_of_a_job_in_back_off(app: Penstock):
    receipt = note(app)
    app.queue.settle([transitions.failed_attempt(each, FLAKY, "no route") for each in claim(app)])
    told = reason(app, receipt)

    assert told is not None
    assert told.startswith("held until ")
    assert told.endswith("retry 1 of 3 after ERR_NETWORK")


def test_the_reason_of_a_job_that_was_given_back_for_later(app: Penstock):
    """Released, for example because a service is down; earlier retries do not matter."""
    receipt = note(app)
    (held,) = claim(app)
    later = timedelta(hours=1)
    waits = transitions.released(held, "waits for qdrant: it is down", delay=later, code="ERR_SERVICE_DOWN")
    app.queue.settle([waits])
    told = reason(app, receipt)

    assert told is not None
    assert told.startswith("held until ")
    assert told.endswith(", no retry spent (ERR_SERVICE_DOWN): waits for qdrant: it is down")


def test_the_reason_of_a_locked_job_names_the_holder(app: Penstock):
    entity = {"function_name": "mail", "entity_type": "user", "entity_id": "7"}
    holder, waiter = (app.submit(item_type="function", op="run", payload=entity) for _ in range(2))
    (held,) = claim(app, 2)

    assert f"held by the lock of {holder.job_id}" == reason(app, waiter)
    app.queue.settle([transitions.failed_attempt(held, FLAKY, "no route")])
    assert f"held by the lock of {holder.job_id}" == reason(app, waiter)


def test_the_reason_of_a_paused_job_is_told_before_a_claim_meets_it(app: Penstock):
    receipt = note(app, tenant_id="a", collection="x")
    app.pause(tenant_id="a", collection="x")

    assert "paused: tenant a, collection x" == reason(app, receipt)
    assert [] == claim(app)
    assert "paused: tenant a, collection x" == reason(app, receipt)


def test_the_reason_of_running_waiting_and_ended_jobs(app: Penstock):
    receipt = note(app)
    (claimed,) = claim(app)

    assert reason(app, receipt) is None
    app.queue.settle([transitions.waits(claimed, "document 7")])
    assert "waits for document 7" == reason(app, receipt)
    app.cancel(receipt.job_id)
    assert reason(app, receipt) is None


def test_the_reason_of_a_job_asked_to_stop(app: Penstock):
    receipt = note(app)
    claim(app)
    app.cancel(receipt.job_id)

    assert "cancel requested; stops at the next checkpoint" == reason(app, receipt)


def test_history_tells_the_plain_path(app: Penstock):
    receipt = note(app)
    app.queue.settle([transitions.done(each) for each in claim(app)])
    entries = app.history(receipt.job_id)

    assert [("submitted", "by library"), ("started", "run 1"), ("done", None)] == [
        (entry.what, entry.note) for entry in entries
    ]
    assert entries == sorted(entries, key=lambda entry: entry.at)


def test_history_tells_departures_once_each(app: Penstock):
    receipt = note(app)
    app.queue.settle([transitions.released(each, "shutting down") for each in claim(app)])
    fail(app, *claim(app))
    app.retry(receipt.job_id)
    whats = [entry.what for entry in app.history(receipt.job_id)]

    assert ["submitted", "released", "started", "failed", "requeued"] == whats


def test_history_tells_a_bad_end_once(app: Penstock):
    receipt = note(app)
    fail(app, *claim(app))

    assert [("submitted", "by library"), ("started", "run 1"), ("failed", "torn page")] == [
        (entry.what, entry.note) for entry in app.history(receipt.job_id)
    ]
