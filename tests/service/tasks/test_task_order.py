"""Ready tasks: one per entity at a time, oldest first."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import (
    InvalidRequest,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.service.functions import Tasks
from tests.service.tasks.conftest import COLUMNS, FLAKY, enqueue

# Ready tasks.


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
        app.queue.settle([transitions.done(claim)])

    assert ids == shown == ran


def test_a_busy_entity_offers_nothing_also_while_a_task_waits_for_a_retry(app: Penstock, tasks: Tasks):
    enqueue(tasks, "w1")
    enqueue(tasks, "w1")
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    free = enqueue(tasks, "w2")

    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]
    app.queue.settle([transitions.failed_attempt(claim, FLAKY, "no route")])
    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]
    app.queue.settle([transitions.released(c, "worker stopped") for c in app.queue.claim(ClaimRequest("w1"))])
    assert [free] == [task["task_id"] for task in tasks.get_pending_tasks()]


def test_a_task_that_was_given_back_goes_before_those_behind_it(app: Penstock, tasks: Tasks):
    first = enqueue(tasks, "w1")
    enqueue(tasks, "w1")
    app.queue.settle(
        [transitions.released(c, "worker stopped") for c in app.queue.claim(ClaimRequest("w1", 9))]
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
