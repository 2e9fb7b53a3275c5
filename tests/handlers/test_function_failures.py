"""Functions that raise, return something unstorable, or are missing."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.errors import (
    PermanentFailure,
)
from penstock.handlers.context import Context
from penstock.queue.job import ClaimRequest, Status
from penstock.queue.retry import Backoff
from penstock.worker.executor import RESULT_LIMIT, Breakers, Executor
from tests.handlers.conftest import Payload, wait_until, waits, worked_off


def test_a_function_that_raises_is_tried_again_after_a_second(app: Penstock):
    @app.function("flaky")
    def flaky(payload: Payload) -> None:
        raise RuntimeError("no route")

    job = worked_off(app, app.call("flaky"))

    assert (Status.PENDING, 1, "RuntimeError: no route") == (job.status, job.retry_count, job.error_message)
    assert 0.9 <= waits(job) <= 1.1


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [(7, 7), ([20, 90], 20), (Backoff((60,), cap=60), 60)],
    ids=["base", "steps", "value"],
)
def test_a_function_may_have_a_back_off_of_its_own(registering: Penstock, backoff: Any, seconds: int):
    registering.function("flaky", backoff=backoff)(lambda payload: 1 / 0)

    job = worked_off(registering, registering.call("flaky"))

    assert 0.9 * seconds <= waits(job) <= 1.1 * seconds


def test_a_failure_is_logged_with_the_place_where_it_was_raised(
    registering: Penstock, caplog: pytest.LogCaptureFixture
):
    @registering.function("flaky", max_retries=1, backoff=0)
    def flaky(payload: Payload) -> None:
        raise RuntimeError("on line one")

    receipt = registering.call("flaky")
    with registering.worker_thread():
        registering.wait(receipt.job_id, timeout=120)

    job = f"job {receipt.job_id} (function flaky) failed in attempt"
    assert [
        f"{job} 1 of 2 and is tried again at once: RuntimeError: on line one",
        f"{job} 2 of 2 and ends as failed: RuntimeError: on line one",
    ] == caplog.messages
    assert 2 == caplog.text.count("in flaky")


def test_a_cancel_is_no_failure_in_the_log(registering: Penstock, caplog: pytest.LogCaptureFixture):
    @registering.function("polite")
    def polite(payload: Payload, context: Context) -> None:
        while True:
            context.checkpoint()
            time.sleep(0.01)

    receipt = registering.call("polite")
    with registering.worker_thread():
        wait_until(registering, receipt, lambda job: job.status is Status.IN_PROGRESS)
        registering.cancel(receipt.job_id)
        registering.wait(receipt.job_id, timeout=120)

    assert [] == caplog.messages


@pytest.mark.long
def test_a_timeout_ends_a_call_at_its_next_checkpoint(app: Penstock):
    """In a thread, which cannot be killed."""

    @app.function("endless", timeout=1)
    def endless(payload: Payload, context: Context) -> None:
        while True:
            context.checkpoint()
            time.sleep(0.01)

    job = worked_off(app, app.call("endless"))

    assert (Status.FAILED, "ERR_JOB_TIMEOUT", "Timeout after 1s") == (
        job.status,
        job.error_code,
        job.error_message,
    )


def test_the_last_failure_is_final(app: Penstock):
    attempts: list[int] = []

    @app.function("flaky", backoff=0, max_retries=1)
    def flaky(payload: Payload, context: Context) -> float:
        attempts.append(context.attempt)
        return 1 / 0

    receipt = app.call("flaky")

    with app.worker_thread():
        job = app.wait(receipt.job_id, timeout=120)
    assert (Status.FAILED, 1, [1, 2]) == (job.status, job.retry_count, attempts)
    assert "ZeroDivisionError: division by zero" == job.error_message


def test_a_permanent_failure_is_not_tried_again(app: Penstock):
    @app.function("hopeless")
    def hopeless(payload: Payload) -> None:
        raise PermanentFailure("no such customer", code="ERR_NO_CUSTOMER")

    job = worked_off(app, app.call("hopeless"))

    assert (Status.FAILED, 0, "ERR_NO_CUSTOMER") == (job.status, job.retry_count, job.error_code)


def test_required_fields_are_checked_again_at_the_run(app: Penstock, tmp_path: Path):
    newer = Penstock(settings=app.settings)
    if app.settings.url == "memory://":
        newer.queue = app.queue
    app.function("mail")(lambda payload: None)
    newer.function("mail", requires=["to"])(lambda payload: payload["to"])
    job = worked_off(newer, app.call("mail"))

    assert (Status.FAILED, 0, "ERR_INVALID_PAYLOAD") == (job.status, job.retry_count, job.error_code)
    assert "missing required field 'to'" in (job.error_message or "")


def test_a_function_this_worker_does_not_have_is_given_back_unspent(app: Penstock):
    app.function("known")(lambda payload: None)
    receipt = app.submit(item_type="function", op="run", payload={"function_name": "elsewhere"})
    job = worked_off(app, receipt)

    assert (Status.PENDING, 0, "ERR_NO_HANDLER") == (job.status, job.retry_count, job.error_code)
    assert "no function 'elsewhere' here (this worker runs known)" == job.error_message
    assert 30 == waits(job)
    assert "ERR_NO_HANDLER" in (app.details(receipt.job_id).reason or "")


def test_each_time_it_is_given_back_for_longer_but_not_for_ever(registering: Penstock):
    app = registering
    receipt = app.submit(item_type="function", op="run", payload={"function_name": "elsewhere"})
    executor, now, waited = Executor(app.handlers(), Breakers()), clock.now(), []
    for _ in range(6):
        claims = app.queue.claim(ClaimRequest("w1"), now=now)
        app.queue.settle(executor.run(claims, _contexts), now=now)
        run_at = app.job(receipt.job_id).run_at
        assert run_at is not None
        waited.append((run_at - now).total_seconds())
        now = run_at

    assert [30, 60, 120, 240, 300, 300] == waited


def _contexts(_: int, claim: Any) -> Context:
    return Context(claim, report=lambda text: None, stop_requested=lambda: False)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "cannot be stored as JSON"),
        ({(1, 2): 3}, "cannot be stored as JSON"),
        ("x" * RESULT_LIMIT, "the limit is"),
        ({"mean": [1.0, float("nan")]}, "result.mean[1]: nan is not a JSON number"),
        (float("inf"), "result: inf is not a JSON number"),
        ({"raw": b"abc"}, "result.raw: bytes is not a JSON value"),
        ({1, 2}, "result: set is not a JSON value"),
        ({"by": {1: "one"}}, "result.by: keys must be strings, got 1"),
        (timedelta(1), "result: timedelta is not a JSON value"),
        ("a\0b", "result holds a NUL character"),
    ],
    ids=["object", "odd key", "too large", "nan", "inf", "bytes", "set", "key", "timedelta", "NUL"],
)
def test_a_result_that_cannot_be_kept_fails_the_job_with_a_reason(
    registering: Penstock, result: Any, reason: str
):
    registering.function("odd")(lambda payload: result)
    job = worked_off(registering, registering.call("odd"))

    assert Status.FAILED is job.status
    assert reason in (job.error_message or "")


@pytest.mark.parametrize(
    "result", [0, False, "ä", 1.5, [], {}, {"a": [1, None, {"b": "c"}]}, (1, 2)], ids=repr
)
def test_a_result_comes_back_as_it_was_returned(registering: Penstock, result: Any):
    registering.function("plain")(lambda payload: result)
    receipt = registering.call("plain")
    worked_off(registering, receipt)

    assert registering.result(receipt.job_id) == (list(result) if isinstance(result, tuple) else result)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_function_that_wants_to_leave_only_fails(registering: Penstock, error: BaseException):
    @registering.function("leave", max_retries=0)
    def leave(payload: Payload) -> None:
        raise error

    job = worked_off(registering, registering.call("leave"))

    assert Status.FAILED is job.status
