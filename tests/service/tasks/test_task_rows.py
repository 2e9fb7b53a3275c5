"""Tasks as rows, from the call to the end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.errors import (
    TaskNotFound,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.service.functions import Tasks
from tests.service.tasks.conftest import COLUMNS, FLAKY, attempt, enqueue, status

# Rows.


def test_a_new_task_is_pending_with_no_error_and_no_retry(app: Penstock, tasks: Tasks):
    before = clock.now()
    task_id = tasks.enqueue_task("worker", "w1", "execute_sql_worker", {"sql": "SELECT 1"})
    task = tasks.get_task(task_id)

    assert COLUMNS == list(task)
    assert re.fullmatch("[0-9a-f]{32}", task_id)
    assert before <= task.pop("created_at") == task.pop("updated_at") <= clock.now()
    assert {
        "task_id": task_id,
        "entity_type": "worker",
        "entity_id": "w1",
        "function_name": "execute_sql_worker",
        "payload": {"sql": "SELECT 1"},
        "status": "PENDING",
        "error_message": None,
        "retry_count": 0,
        "max_retries": 3,
    } == task


def test_a_task_may_have_no_payload(tasks: Tasks):
    assert tasks.get_task(enqueue(tasks))["payload"] is None


def test_retries_are_three_unless_the_call_or_the_function_says_otherwise(app: Penstock, tasks: Tasks):
    app.function("once", max_retries=0)(lambda payload: None)

    assert 3 == tasks.get_task(enqueue(tasks))["max_retries"]
    assert 7 == tasks.get_task(enqueue(tasks, max_retries=7))["max_retries"]
    assert 0 == tasks.get_task(tasks.enqueue_task("worker", "w1", "once"))["max_retries"]


def test_a_task_goes_through_its_statuses(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    assert "IN_PROGRESS" == status(tasks, task_id)
    app.queue.settle([transitions.done(claim, result_json='{"rows":3}')])

    assert "COMPLETED" == status(tasks, task_id)
    assert {"rows": 3} == app.result(task_id)


def test_an_error_is_kept_while_retrying_and_cleared_when_completed(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    attempt(app, FLAKY)
    task = tasks.get_task(task_id)
    assert ("PENDING", 1, "no route") == (task["status"], task["retry_count"], task["error_message"])
    claims = app.queue.claim(ClaimRequest("w1"), now=clock.now() + timedelta(minutes=1))
    app.queue.settle([transitions.done(claim) for claim in claims])

    assert ("COMPLETED", None) == (status(tasks, task_id), tasks.get_task(task_id)["error_message"])


def test_a_failed_task_says_why_and_counts_its_retries(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks, max_retries=0)
    attempt(app, FLAKY)
    task = tasks.get_task(task_id)

    assert ("FAILED", "no route", 0) == (task["status"], task["error_message"], task["retry_count"])


def test_a_cancelled_task_has_failed(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    app.cancel(task_id)

    assert ("FAILED", "Cancelled by user") == (
        status(tasks, task_id),
        tasks.get_task(task_id)["error_message"],
    )


@pytest.mark.parametrize("task_id", ["unknown", "", "\0", None, 7, "x" * 500])
def test_an_unknown_task_is_a_value_error(app: Penstock, tasks: Tasks, task_id: Any):
    with pytest.raises(ValueError, match="not found"):
        tasks.get_task(task_id)


def test_a_job_that_is_no_function_is_no_task(app: Penstock, tasks: Tasks):
    receipt = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})

    with pytest.raises(TaskNotFound):
        tasks.get_task(receipt.job_id)
    assert [] == tasks.get_pending_tasks()
    assert 0 == tasks.cleanup_stale_tasks([receipt.job_id])
    assert not tasks.enqueue_retry(receipt.job_id)
