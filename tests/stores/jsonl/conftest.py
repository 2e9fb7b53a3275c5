"""A JSONL queue in a directory, and the files of the queue."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import (
    PenstockError,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, NewJob, Scope, Status, WorkerReport
from penstock.queue.jsonl.queue import JsonlQueue
from tests.stores import new_jobs
from tests.stores.new_jobs import T0


def new(number: int, **fields: object) -> NewJob:
    own = {"idempotency_key": f"key {number}", "payload_json": '{"path": "/data/ä \\u2028.txt"}'}
    return new_jobs.new(number, **(own | fields))


def opened(place: Path) -> JsonlQueue:
    queue = JsonlQueue(place)
    queue.migrate()
    return queue


def state(queue: JsonlQueue) -> object:
    return queue.find(JobQuery(limit=10_000)), queue.paused(), queue.workers()


def compact(queue: JsonlQueue) -> None:
    with queue._writing("compact"):
        queue._compact()


def reopened(place: Path) -> object:
    queue = opened(place)
    found = state(queue)
    queue.close()
    return found


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "jobs").iterdir()}


def copied(place: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(place, to)
    return to


def work(queue: JsonlQueue) -> None:
    """A little of everything a record can say."""
    queue.add([new(1), new(2, lock_key="lock"), new(3, lock_key="lock"), new(4, tenant_id="u")], now=T0)
    queue.pause(Scope("u"), now=T0)
    claims = queue.claim(ClaimRequest("w1", 10), now=T0)
    queue.settle([transitions.done(claims[0], result_json='{"chunks": 3}')], now=T0)
    queue.report(WorkerReport(worker_id="w1", host="h", pid=1, started_at=T0), now=T0)
    queue.add([new(5)], now=T0)
    queue.cancel(["job_000005"], now=T0)
    queue.prune({Status.CANCELLED: datetime(2027, 1, 1, tzinfo=UTC)})


def in_child(action: Callable[[], object]) -> Any:
    """Run the action in a forked child; returns the result or the error code."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            answer: object = action()
        except PenstockError as error:
            answer = [error.code, error.message, error.remedy]
        except BaseException as error:
            answer = repr(error)
        os.write(writing, msgspec.json.encode(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(answer)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def queue(place: Path) -> Iterator[JsonlQueue]:
    queue = opened(place)
    yield queue
    queue.close()


@pytest.fixture
def journal(place: Path) -> Path:
    return place / "jobs" / "index_queue.jsonl"


@pytest.fixture
def snapshot(place: Path) -> Path:
    return place / "jobs" / "index_queue.snapshot"
