"""Fixtures: an application with function tasks, and attempts to run them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.queue.retry import FUNCTION_BACKOFF, Classification
from penstock.service.functions import Tasks

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
    """Run one attempt of every ready task."""
    claims = app.queue.claim(ClaimRequest("w1", 100))
    app.queue.settle(
        [
            transitions.failed_attempt(claim, failure, message, schedule=FUNCTION_BACKOFF)
            if failure
            else transitions.done(claim)
            for claim in claims
        ]
    )


def status(tasks: Tasks, task_id: str) -> str:
    answer: str = tasks.get_task(task_id)["status"]
    return answer
