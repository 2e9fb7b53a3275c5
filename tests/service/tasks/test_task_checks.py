"""Checks of tasks; a refused task writes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import (
    UnknownEntity,
    UnknownFunction,
)
from penstock.service.functions import Tasks
from tests.service.tasks.conftest import ALLOWED, FUNCTIONS, STATUSES, enqueue

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


# Submission.


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
