"""Function jobs in the words of a task queue, over every engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock, config, lifecycle
from penstock.errors import (
    InvalidRequest,
    InvalidTime,
    InvalidTransition,
    TaskNotFound,
    UnknownEntity,
    UnknownFunction,
)
from penstock.job import ClaimRequest, Status
from penstock.retry import FUNCTION_BACKOFF, Classification
from penstock.service.tasks import Tasks

COLUMNS = (
    "task_id entity_type entity_id function_name payload status error_message retry_count max_retries "
    "created_at updated_at"
).split()
FUNCTIONS = {
    "execute_initial_planning": ["user_question", "instruction"],
    "execute_task_creation": [],
    "execute_synthesis": [],
    "worker_initialisation": [],
    "execute_standard_worker": [],
    "execute_sql_worker": [],
}
FLAKY = Classification("transient", "ERR_NETWORK")
BROKEN = Classification("permanent", "ERR_PARSE")
STATUSES = ("PENDING", "IN_PROGRESS", "COMPLETED", "FAILED")
ALLOWED = {
    ("PENDING", "IN_PROGRESS"),
    ("IN_PROGRESS", "COMPLETED"),
    ("IN_PROGRESS", "FAILED"),
    ("FAILED", "PENDING"),
}


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/queue.db", "jsonl": f"jsonl://{tmp_path}"}
    with Penstock(settings=config.load({}, url=urls[request.param], state_dir=tmp_path)) as opened:
        for name, requires in FUNCTIONS.items():
            opened.function(name, requires=requires)(lambda payload: None)
        opened.entity_type("planner", exists=lambda entity_id: entity_id.startswith("p"))
        opened.entity_type("worker")
        yield opened


@pytest.fixture
def tasks(app: Penstock) -> Tasks:
    return app.tasks


def enqueue(tasks: Tasks, entity_id: str = "w1", **more: Any) -> str:
    return tasks.enqueue_task("worker", entity_id, "execute_sql_worker", **more)


def attempt(app: Penstock, failure: Classification | None = None, message: str = "no route") -> None:
    """One attempt at every task that can start."""
    claims = app.queue.claim(ClaimRequest("w1", 100))
    app.queue.settle(
        [
            lifecycle.failed_attempt(claim, failure, message, schedule=FUNCTION_BACKOFF)
            if failure
            else lifecycle.done(claim)
            for claim in claims
        ]
    )


def status(tasks: Tasks, task_id: str) -> str:
    answer: str = tasks.get_task(task_id)["status"]
    return answer


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
    app.queue.settle([lifecycle.done(claim, result_json='{"rows":3}')])

    assert "COMPLETED" == status(tasks, task_id)
    assert {"rows": 3} == app.result(task_id)


def test_an_error_is_kept_while_retrying_and_cleared_when_completed(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    attempt(app, FLAKY)
    task = tasks.get_task(task_id)
    assert ("PENDING", 1, "no route") == (task["status"], task["retry_count"], task["error_message"])
    claims = app.queue.claim(ClaimRequest("w1"), now=clock.now() + timedelta(minutes=1))
    app.queue.settle([lifecycle.done(claim) for claim in claims])

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


# Checks.


def test_a_function_name_is_valid_if_it_is_registered(tasks: Tasks):
    assert all(tasks.validate_function_name(name) for name in FUNCTIONS)
    garbage: list[Any] = ["", "unknown", None, 7, []]
    assert not any(tasks.validate_function_name(name) for name in garbage)


def test_an_entity_is_valid_if_its_type_is_registered_and_it_exists(tasks: Tasks):
    assert tasks.validate_entity_exists("planner", "p1")
    assert tasks.validate_entity_exists("worker", "w1")
    assert not tasks.validate_entity_exists("planner", "x1")
    assert not tasks.validate_entity_exists("invalid_type", "p1")
    assert not tasks.validate_entity_exists("worker", "")
    assert not tasks.validate_entity_exists(None, 7)  # type: ignore[arg-type]


def test_without_registered_types_any_entity_is_valid():
    assert Penstock("memory://").tasks.validate_entity_exists("anything", "a1")


def test_a_payload_is_valid_if_it_has_the_required_fields(tasks: Tasks):
    assert tasks.validate_task_payload("execute_initial_planning", {"user_question": "?", "instruction": "!"})
    assert not tasks.validate_task_payload("execute_initial_planning", {"user_question": "?"})
    assert not tasks.validate_task_payload("execute_initial_planning", None)
    assert not tasks.validate_task_payload("execute_initial_planning", ["user_question", "instruction"])  # type: ignore[arg-type]
    assert not tasks.validate_task_payload("unknown", {})
    others = [name for name, requires in FUNCTIONS.items() if not requires]
    assert 5 == len(others)
    empty: list[Any] = [{}, None]
    assert all(tasks.validate_task_payload(name, payload) for name in others for payload in empty)


@pytest.mark.parametrize("current", STATUSES)
@pytest.mark.parametrize("new", STATUSES)
def test_only_the_transitions_of_the_table_are_valid(current: str, new: str):
    tasks = Penstock("memory://").tasks

    assert ((current, new) in ALLOWED) is tasks.validate_status_transition(current, new)
    assert not tasks.validate_status_transition(current, "UNHEARD_OF")
    assert not tasks.validate_status_transition("UNHEARD_OF", new)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"status": "FAILED", "retry_count": 0, "max_retries": 3}, True),
        ({"status": "FAILED", "retry_count": 2, "max_retries": 3}, True),
        ({"status": "FAILED", "retry_count": 3, "max_retries": 3}, False),
        ({"status": "FAILED", "retry_count": 0, "max_retries": 0}, False),
        ({"status": "PENDING", "retry_count": 0, "max_retries": 3}, False),
        ({"status": "COMPLETED"}, False),
        ({"status": "FAILED"}, True),
        ({}, False),
    ],
)
def test_only_a_failed_task_with_retries_left_should_be_retried(task: dict[str, Any], expected: bool):
    assert expected is Penstock("memory://").tasks.should_retry_task(task)


# Putting tasks in.


def test_what_is_not_valid_is_refused_and_nothing_is_written(app: Penstock, tasks: Tasks):
    with pytest.raises(UnknownFunction):
        tasks.enqueue_task("worker", "w1", "test_function")
    with pytest.raises(UnknownEntity):
        tasks.enqueue_task("invalid_type", "entity1", "execute_sql_worker")
    with pytest.raises(UnknownEntity):
        tasks.enqueue_task("planner", "nobody", "execute_sql_worker")
    with pytest.raises(ValueError, match="missing required field 'user_question'"):
        tasks.enqueue_task("planner", "p1", "execute_initial_planning", {})
    with pytest.raises(ValueError, match="max_retries"):
        enqueue(tasks, max_retries=-1)
    assert [] == app.jobs()


def test_many_tasks_are_one_transaction(app: Penstock, tasks: Tasks):
    task = {"entity_type": "worker", "entity_id": "w1", "function_name": "execute_sql_worker"}
    ids = tasks.enqueue_multiple_tasks([task | {"payload": {"n": n}, "max_retries": n} for n in range(5)])

    assert 5 == len(set(ids))
    assert [{"n": n} for n in range(5)] == [tasks.get_task(task_id)["payload"] for task_id in ids]
    assert list(range(5)) == [tasks.get_task(task_id)["max_retries"] for task_id in ids]
    assert [] == tasks.enqueue_multiple_tasks([])


@pytest.mark.parametrize(
    "bad",
    [
        {"entity_type": "worker", "entity_id": "w1"},
        {"entity_type": "worker", "entity_id": "w1", "function_name": "unknown"},
        {"entity_type": "worker", "entity_id": "w1", "function_name": "execute_sql_worker", "colour": 1},
        {"entity_type": "nobody", "entity_id": "w1", "function_name": "execute_sql_worker"},
        "execute_sql_worker",
    ],
)
def test_one_bad_task_of_many_refuses_them_all(app: Penstock, tasks: Tasks, bad: Any):
    good = {"entity_type": "worker", "entity_id": "w1", "function_name": "execute_sql_worker"}

    with pytest.raises(ValueError):
        tasks.enqueue_multiple_tasks([good, good, bad])
    assert [] == app.jobs()


# Who may start.


def test_pending_tasks_are_one_for_each_entity_oldest_first(app: Penstock, tasks: Tasks):
    first = [enqueue(tasks, f"w{n}") for n in range(3)]
    for n in range(3):
        enqueue(tasks, f"w{n}")

    assert first == [task["task_id"] for task in tasks.get_pending_tasks()]
    assert first[:2] == [task["task_id"] for task in tasks.get_pending_tasks(limit=2)]
    assert COLUMNS == list(tasks.get_pending_tasks(limit=1)[0])


def test_a_batch_keeps_its_order_within_an_entity(app: Penstock, tasks: Tasks):
    task = {"entity_type": "worker", "entity_id": "w1", "function_name": "execute_sql_worker"}
    ids = tasks.enqueue_multiple_tasks([dict(task) for _ in range(6)])
    shown, ran = [], []
    for _ in ids:
        shown += [task["task_id"] for task in tasks.get_pending_tasks()]
        (claim,) = app.queue.claim(ClaimRequest("w1", 10))
        ran.append(claim.queue_id)
        assert [] == tasks.get_pending_tasks()
        app.queue.settle([lifecycle.done(claim)])

    assert ids == shown == ran


def test_a_busy_entity_offers_nothing_also_while_a_task_waits_for_a_retry(app: Penstock, tasks: Tasks):
    enqueue(tasks, "w1")
    enqueue(tasks, "w1")
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    free = enqueue(tasks, "w2")

    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]
    app.queue.settle([lifecycle.failed_attempt(claim, FLAKY, "no route")])
    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]
    app.queue.settle([lifecycle.released(c, "worker stopped") for c in app.queue.claim(ClaimRequest("w1"))])
    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]


def test_a_task_that_was_given_back_goes_before_those_behind_it(app: Penstock, tasks: Tasks):
    first = enqueue(tasks, "w1")
    enqueue(tasks, "w1")
    app.queue.settle(
        [lifecycle.released(c, "worker stopped") for c in app.queue.claim(ClaimRequest("w1", 9))]
    )

    assert [first] == [task["task_id"] for task in tasks.get_pending_tasks()]


def test_calls_without_an_entity_do_not_wait_for_each_other(app: Penstock, tasks: Tasks):
    ids = [app.call("execute_synthesis").job_id for _ in range(3)]

    assert ids == [task["task_id"] for task in tasks.get_pending_tasks()]


def test_scheduled_and_paused_tasks_could_not_start_now(app: Penstock, tasks: Tasks):
    app.call("execute_synthesis", delay=60)
    app.call("execute_synthesis", tenant_id="slow")
    app.pause(tenant_id="slow")
    app.queue.claim(ClaimRequest("w1"))

    assert [] == tasks.get_pending_tasks()


@pytest.mark.parametrize("limit", [0, -1, True, "5", None])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any):
    with pytest.raises(InvalidRequest):
        Penstock("memory://").tasks.get_pending_tasks(limit)


# Changing their course.


def test_a_task_in_progress_can_be_ended_by_hand(app: Penstock, tasks: Tasks):
    done, failed = enqueue(tasks, "w1"), enqueue(tasks, "w2")
    claims = app.queue.claim(ClaimRequest("w1", 2))
    tasks.update_task_status(done, "COMPLETED")
    tasks.update_task_status(failed, "failed", "no such table")

    assert ("COMPLETED", "FAILED") == (status(tasks, done), status(tasks, failed))
    assert "no such table" == tasks.get_task(failed)["error_message"]
    assert [None, None] == app.queue.settle([lifecycle.done(claim) for claim in claims])


def test_a_status_update_refuses_what_the_table_does_not_allow(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)

    for new in ("COMPLETED", "FAILED", "PENDING"):
        with pytest.raises(ValueError, match=f"Invalid status transition: PENDING → {new}"):
            tasks.update_task_status(task_id, new, "why")
    with pytest.raises(InvalidTransition, match="a worker's claim"):
        tasks.update_task_status(task_id, "IN_PROGRESS")
    with pytest.raises(ValueError, match="is not a status"):
        tasks.update_task_status(task_id, "INVALID_STATUS")
    with pytest.raises(ValueError, match="not found"):
        tasks.update_task_status("unknown", "COMPLETED")
    assert "PENDING" == status(tasks, task_id)


def test_a_task_cannot_fail_without_saying_why(app: Penstock, tasks: Tasks):
    task_id = enqueue(tasks)
    app.queue.claim(ClaimRequest("w1"))

    with pytest.raises(InvalidRequest, match="error_message"):
        tasks.update_task_status(task_id, "FAILED")
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
    app.queue.settle([lifecycle.failed_attempt(claim, BROKEN, "torn page") for claim in claims])
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


def test_back_off_doubles_from_a_second_to_five_minutes():
    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] == [
        FUNCTION_BACKOFF.seconds(number) for number in range(1, 12)
    ]


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
    assert [None] == app.queue.settle([lifecycle.done(claim)])
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
            lifecycle.done(claims[note.job_id]),
            lifecycle.done(claims[ids[0]]),
            lifecycle.failed(claims[ids[1]], "ERR_PARSE", "torn page"),
        ],
        now=old,
    )
    app.queue.settle([lifecycle.done(claims[ids[2]])])

    assert 2 == tasks.cleanup_completed_tasks()
    assert {note.job_id, ids[2], ids[3]} == {job.queue_id for job in app.jobs()}
    assert 1 == tasks.cleanup_completed_tasks(retention_days=0)
    assert "IN_PROGRESS" == status(tasks, ids[3])
    assert Status.DONE is app.job(note.job_id).status
    with pytest.raises(InvalidTime):
        tasks.cleanup_completed_tasks(retention_days=-1)
