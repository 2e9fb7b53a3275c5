"""Ending, putting back, taking away and cleaning up tasks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.errors import (
    InvalidRequest,
    InvalidTime,
    InvalidTransition,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.service.functions import Tasks
from tests.servers.stores import DURABLE, others_later, store_url
from tests.service.tasks.conftest import BROKEN, FLAKY, attempt, enqueue, status

# Status changes.


def test_a_task_in_progress_can_be_ended_by_hand(app: Penstock, tasks: Tasks):
    done, failed = enqueue(tasks, "w1"), enqueue(tasks, "w2")
    claims = app.queue.claim(ClaimRequest("w1", 2))
    tasks.update_task_status(done, "COMPLETED")
    tasks.update_task_status(failed, "failed", "no such table")

    assert ("COMPLETED", "FAILED") == (status(tasks, done), status(tasks, failed))
    assert "no such table" == tasks.get_task(failed)["error_message"]
    assert [None, None] == app.queue.settle([transitions.done(claim) for claim in claims])


def test_a_status_update_refuses_what_the_table_does_not_allow(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)

    for new in ("COMPLETED", "FAILED", "PENDING"):
        with pytest.raises(ValueError, match=f"Invalid status transition: PENDING → {new}"):
            tasks.update_task_status(task_id, new, "why")
    with pytest.raises(ValueError, match="is not a status"):
        tasks.update_task_status(task_id, "INVALID_STATUS")
    with pytest.raises(ValueError, match="not found"):
        tasks.update_task_status("unknown", "COMPLETED")
    assert "PENDING" == status(tasks, task_id)


def test_a_task_is_moved_by_hand_from_beginning_to_end(app: Penstock, tasks: Tasks):
    (task,) = [tasks.get_task(enqueue(tasks)) for _ in range(1)]
    assert [task] == tasks.get_pending_tasks()

    tasks.update_task_status(task["task_id"], "IN_PROGRESS")
    running = tasks.get_task(task["task_id"])
    assert ("IN_PROGRESS", 0, None) == (running["status"], running["retry_count"], running["error_message"])
    assert running["updated_at"] > task["updated_at"]
    assert ([], []) == (tasks.get_pending_tasks(), app.queue.claim(ClaimRequest("w1", 10)))

    tasks.update_task_status(task["task_id"], "COMPLETED")
    assert ("COMPLETED", None) == (
        status(tasks, task["task_id"]),
        tasks.get_task(task["task_id"])["error_message"],
    )


def test_failing_by_hand_spends_a_retry_until_none_is_left(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks, max_retries=2)
    for spent, again in ((1, True), (2, False)):
        tasks.update_task_status(task_id, "IN_PROGRESS")
        tasks.update_task_status(task_id, "FAILED", "no such table")
        task = tasks.get_task(task_id)
        assert ("FAILED", spent, "no such table") == (
            task["status"],
            task["retry_count"],
            task["error_message"],
        )
        assert again is tasks.should_retry_task(task)
        assert again is tasks.enqueue_retry(task_id)


def test_a_task_without_retries_can_fail_by_hand(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks, max_retries=0)
    tasks.update_task_status(task_id, "IN_PROGRESS")
    tasks.update_task_status(task_id, "FAILED", "no")

    assert ("FAILED", 0) == (status(tasks, task_id), tasks.get_task(task_id)["retry_count"])


def test_two_who_start_one_task_by_hand_are_told_apart(app: Penstock, tasks: Tasks):
    first, second = enqueue(tasks, "w1"), enqueue(tasks, "w1")
    tasks.update_task_status(first, "IN_PROGRESS")

    with pytest.raises(InvalidTransition, match="IN_PROGRESS → IN_PROGRESS"):
        tasks.update_task_status(first, "IN_PROGRESS")
    with pytest.raises(InvalidTransition, match="another task of its entity"):
        tasks.update_task_status(second, "IN_PROGRESS")
    app.pause(tenant_id="default")
    with pytest.raises(InvalidTransition, match="is paused"):
        tasks.update_task_status(enqueue(tasks, "w2"), "IN_PROGRESS")
    assert "PENDING" == status(tasks, second)


def test_a_task_started_by_hand_can_be_found_stale_and_reset(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    tasks.update_task_status(task_id, "IN_PROGRESS")

    assert ([], [task_id]) == (tasks.detect_stale_tasks(), tasks.detect_stale_tasks(0))
    assert 1 == tasks.cleanup_stale_tasks([task_id])
    assert ("PENDING", "Task timed out and was reset") == (
        status(tasks, task_id),
        tasks.get_task(task_id)["error_message"],
    )


@pytest.mark.parametrize("engine", others_later(DURABLE, first=("sqlite", "postgres", "redis")))
def test_ids_that_are_no_text_are_not_stale_tasks(engine: str, tmp_path: Path):
    settings = config.load({}, url=store_url(engine, tmp_path), state_dir=tmp_path)
    with Penstock(settings=settings) as app:
        app.function("keep")(lambda payload: payload)
        task_id = app.tasks.enqueue_task("worker", "w1", "keep")
        app.tasks.update_task_status(task_id, "IN_PROGRESS")
        mixed: list[Any] = [None, 5, "unknown", task_id]

        assert 1 == app.tasks.cleanup_stale_tasks(mixed)


def test_a_task_may_bring_its_own_id(app: Penstock, tasks: Tasks):
    assert "test1" == tasks.enqueue_task("worker", "w1", "execute_sql_worker", task_id="test1")
    with pytest.raises(ValueError, match="test1"):
        tasks.enqueue_task("worker", "w1", "execute_sql_worker", task_id="test1")


@pytest.mark.parametrize("why", [None, "", 5, b"broken"])
def test_a_task_cannot_fail_without_saying_why(app: Penstock, tasks: Tasks, why: Any):
    task_id = enqueue(tasks)
    app.queue.claim(ClaimRequest("w1"))

    with pytest.raises(InvalidRequest, match="error_message"):
        tasks.update_task_status(task_id, "FAILED", why)
    assert "IN_PROGRESS" == status(tasks, task_id)


def test_completed_is_the_end(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    attempt(app)

    for new in ("PENDING", "FAILED", "IN_PROGRESS"):
        with pytest.raises(InvalidTransition):
            tasks.update_task_status(task_id, new, "why")
    assert not tasks.enqueue_retry(task_id)


def test_a_failed_task_is_put_back_with_the_retries_it_had_left(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    attempt(app, FLAKY)
    claims = app.queue.claim(ClaimRequest("w1"), now=clock.now() + timedelta(minutes=1))
    app.queue.settle([transitions.failed_attempt(claim, BROKEN, "torn page") for claim in claims])
    assert ("FAILED", 1) == (status(tasks, task_id), tasks.get_task(task_id)["retry_count"])

    assert tasks.enqueue_retry(task_id)
    assert ("PENDING", 1) == (status(tasks, task_id), tasks.get_task(task_id)["retry_count"])
    assert not tasks.enqueue_retry(task_id)


def test_a_task_without_retries_left_is_not_put_back(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks, max_retries=0)
    attempt(app, FLAKY)

    assert not tasks.enqueue_retry(task_id)
    assert "FAILED" == status(tasks, task_id)
    assert not tasks.enqueue_retry("unknown")


def test_a_person_may_put_back_what_has_no_retries_left(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks, max_retries=0)
    attempt(app, FLAKY)
    tasks.update_task_status(task_id, "PENDING")

    assert "PENDING" == status(tasks, task_id)


def test_a_task_with_a_live_twin_is_not_put_back(app: Penstock, tasks: Tasks):
    first = app.call("execute_synthesis", key="daily")
    attempt(app, BROKEN)
    app.call("execute_synthesis", key="daily")

    assert not tasks.enqueue_retry(first.job_id)


# Stale tasks.


def start_at(app: Penstock, minutes_ago: float) -> None:
    moment = clock.now() - timedelta(minutes=minutes_ago)
    app.queue.claim(ClaimRequest("w1", lease=timedelta(days=1)), now=moment)


def test_a_task_that_says_nothing_for_half_an_hour_is_stale(app: Penstock, tasks: Tasks):
    old, young = enqueue(tasks, "w1"), enqueue(tasks, "w2")
    start_at(app, 31)
    start_at(app, 29)
    enqueue(tasks, "w3")

    assert [old] == tasks.detect_stale_tasks()
    assert {old, young} == set(tasks.detect_stale_tasks(threshold_minutes=10))
    assert [] == tasks.detect_stale_tasks(threshold_minutes=60)


def test_a_stale_task_is_taken_from_its_worker_and_made_pending(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    done = enqueue(tasks, "w2")

    assert 1 == tasks.cleanup_stale_tasks([task_id, done, "unknown"])
    task = tasks.get_task(task_id)
    assert ("PENDING", "Task timed out and was reset", 0) == (
        task["status"],
        task["error_message"],
        task["retry_count"],
    )
    assert [None] == app.queue.settle([transitions.done(claim)])
    assert 0 == tasks.cleanup_stale_tasks([])


@pytest.mark.parametrize("minutes", [-1, float("nan"), float("inf"), "30", None])
def test_a_threshold_that_makes_no_sense_is_refused(minutes: Any):
    with pytest.raises(InvalidTime):
        Penstock("memory://").tasks.detect_stale_tasks(minutes)


# Cleaning up.


def test_ended_tasks_are_removed_after_a_week_and_nothing_else(app: Penstock, tasks: Tasks):
    old = clock.now() - timedelta(days=8)
    note = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})
    ids = [enqueue(tasks, f"w{n}") for n in range(4)]
    claims = {claim.queue_id: claim for claim in app.queue.claim(ClaimRequest("w1", 10))}
    app.queue.settle(
        [
            transitions.done(claims[note.job_id]),
            transitions.done(claims[ids[0]]),
            transitions.failed(claims[ids[1]], "ERR_PARSE", "torn page"),
        ],
        now=old,
    )
    app.queue.settle([transitions.done(claims[ids[2]])])

    assert 2 == tasks.cleanup_completed_tasks()
    assert {note.job_id, ids[2], ids[3]} == {job.queue_id for job in app.jobs()}
    assert 1 == tasks.cleanup_completed_tasks(retention_days=0)
    assert "IN_PROGRESS" == status(tasks, ids[3])
    assert Status.DONE is app.job(note.job_id).status
    with pytest.raises(InvalidTime):
        tasks.cleanup_completed_tasks(retention_days=-1)
