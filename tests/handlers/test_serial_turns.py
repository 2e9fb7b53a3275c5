"""Serial workers: one job for paths at a time in a collection, in order, whoever submitted it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from penstock import config
from penstock.handlers.context import Context, Later, Registry
from penstock.handlers.removal import AGAIN_S, LONGEST_S, give_turns
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery
from penstock.queue.memory.queue import MemoryQueue
from penstock.service.jobs import Jobs


class Worker:
    """Claims everything that is due, and runs it as a worker process does."""

    def __init__(self, *, batch: int) -> None:
        self.queue = MemoryQueue()
        self.now = self.queue.now()
        self.running: dict[str, Claim] = {}
        registry = Registry()
        handler: Any = (lambda contexts: ["ran"] * len(contexts)) if batch else (lambda context: "ran")
        registry.register("folder", "scan", handler, batch=batch)
        give_turns(registry, lambda: nullcontext(self.queue))
        found = registry.find("folder", "scan")
        assert found is not None
        self._call = found.call
        self._batch = batch

    def step(self) -> list[str]:
        """Paths of the jobs that begin now."""
        self.now += timedelta(seconds=AGAIN_S, milliseconds=1)
        claims = self.queue.claim(ClaimRequest("w1", 10), now=self.now)
        contexts = [Context(claim, report=lambda _: None, stop_requested=lambda: False) for claim in claims]
        answers = self._call(contexts) if self._batch else [self._call(context) for context in contexts]
        began = []
        for claim, answer in zip(claims, answers, strict=True):
            if isinstance(answer, Later):
                later = transitions.released(claim, answer.reason, delay=answer.delay, code="ERR_TOO_EARLY")
                self.queue.settle([later], now=self.now)
            else:
                path = claim.payload["folder_path"]
                self.running[path] = claim
                began.append(path)
        return began

    def end(self, path: str) -> None:
        self.queue.settle([transitions.done(self.running.pop(path))], now=self.now)


@pytest.mark.parametrize("batch", [0, 10])
def test_jobs_that_were_not_submitted_as_serial_ones_take_turns(tmp_path: Path, batch: int):
    worker = Worker(batch=batch)
    jobs = Jobs(worker.queue, config.load({}, state_dir=tmp_path))
    for path, collection in (("/a", "docs"), ("/b", "docs"), ("/c", "docs"), ("/other", "notes")):
        jobs.submit(item_type="folder", op="scan", payload={"folder_path": path}, collection=collection)

    assert ["/a", "/other"] == worker.step()
    assert [] == worker.step()
    worker.end("/a")
    assert ["/b"] == worker.step()
    # A serial job is behind the others as well.
    jobs.submit(item_type="folder", op="scan", payload={"folder_path": "/d"}, collection="docs", serial=True)
    assert [] == worker.step()
    worker.end("/b")
    assert ["/c"] == worker.step()
    worker.end("/c")
    assert ["/d"] == worker.step()


def test_the_next_look_comes_soon_after_a_short_job_and_late_after_a_long_one(tmp_path: Path):
    worker = Worker(batch=0)
    jobs = Jobs(worker.queue, config.load({}, state_dir=tmp_path))
    for path in "/a", "/b", "/c":
        jobs.submit(item_type="folder", op="scan", payload={"folder_path": path}, collection="docs")
    assert ["/a"] == worker.step()

    def wait_s(path: str, ran_s: float) -> float:
        _, *released = worker.queue.find(JobQuery())
        (own,) = [job for job in released if job.payload["folder_path"] == path]
        now = worker.queue.now()
        with mock.patch.object(worker.queue, "now", return_value=now + timedelta(seconds=ran_s)):
            claim = worker.queue.start(own.queue_id, ClaimRequest("w2"), now=worker.now)
            assert claim is not None
            answer = worker._call(Context(claim, report=lambda _: None, stop_requested=lambda: False))
            assert isinstance(answer, Later)
        worker.queue.settle(
            [transitions.released(claim, answer.reason, delay=answer.delay, code="ERR_TOO_EARLY")],
            now=worker.now,
        )
        return answer.delay.total_seconds()

    assert AGAIN_S <= wait_s("/b", 0) < 2 * AGAIN_S
    assert 2 * AGAIN_S <= wait_s("/c", 0) < 3 * AGAIN_S
    assert LONGEST_S == wait_s("/b", 3600)


def test_a_released_job_keeps_its_place(tmp_path: Path):
    worker = Worker(batch=0)
    jobs = Jobs(worker.queue, config.load({}, state_dir=tmp_path))
    for path in ("/a", "/b"):
        jobs.submit(item_type="folder", op="scan", payload={"folder_path": path}, collection="docs")
    assert ["/a"] == worker.step()
    worker.end("/a")
    # The next look of /b is still to come, and /c is claimed before.
    jobs.submit(item_type="folder", op="scan", payload={"folder_path": "/c"}, collection="docs")
    worker.now -= timedelta(seconds=AGAIN_S)
    assert [] == worker.step()
    assert ["/b"] == worker.step()


def test_a_job_that_waits_for_its_retry_holds_up_no_other(tmp_path: Path):
    worker = Worker(batch=0)
    jobs = Jobs(worker.queue, config.load({}, state_dir=tmp_path))
    for path in ("/a", "/b"):
        jobs.submit(item_type="folder", op="scan", payload={"folder_path": path}, collection="docs")
    assert ["/a"] == worker.step()
    later = transitions.released(worker.running.pop("/a"), "the disk is away", delay=timedelta(minutes=10))
    worker.queue.settle([later], now=worker.now)

    assert ["/b"] == worker.step()
