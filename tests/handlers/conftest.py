"""Fixtures for functions of an application, and for their jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, Receipt, clock, config
from penstock.queue.job import Held, Job

Payload = dict[str, Any]
WAIT_S = 120


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/queue.db", "jsonl": f"jsonl://{tmp_path}"}
    with Penstock(settings=config.load({}, url=urls[request.param], state_dir=tmp_path)) as opened:
        yield opened


@pytest.fixture
def registering() -> Penstock:
    """An application for checks that need no engine."""
    return Penstock(settings=config.load({}, url="memory://"))


def wait_until(app: Penstock, receipt: Receipt, reached: Callable[[Job], bool]) -> Job:
    deadline = time.monotonic() + 120
    while not reached(job := app.job(receipt.job_id)):
        assert time.monotonic() < deadline, job
        time.sleep(0.005)
    return job


def worked_off(app: Penstock, receipt: Receipt) -> Job:
    """Return the job after one attempt, successful or not."""
    with app.worker_thread():
        return wait_until(app, receipt, lambda job: job.ended or job.held is Held.TIME)


def waits(job: Job) -> float:
    assert job.run_at is not None
    return (job.run_at - job.updated_at).total_seconds()


def takes_payload(payload: Payload) -> str:
    return "payload"


def hooks_of(app: Penstock, job_id: str) -> list[Job]:
    """The jobs after a job, in the order of their addition."""
    return [job for job in app.jobs(limit=100)[::-1] if job_id in str(job.after_json)]


def run_all(app: Penstock) -> list[Job]:
    """Run jobs until none is left that could run now."""
    with app.worker_thread():
        deadline = clock.elapsed_s() + WAIT_S
        while left := [job for job in app.jobs(limit=100) if not (job.ended or job.held is Held.TIME)]:
            assert clock.elapsed_s() < deadline, left
            time.sleep(0.002)
    return app.jobs(limit=100)[::-1]
