"""Small jobs beside a large document: claimed jobs run before the next slice of tasks."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.catalog.rules.phases import PHASES
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import Phase, Task, TaskOutcome
from penstock.handlers.context import Context, Registry
from penstock.handlers.phases import Phases
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.job import Job, JobQuery, NewJob, Status
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.worker import child
from penstock.worker.child import Child, ChildOptions
from penstock.worker.lanes import DocumentTools
from penstock.worker.pool import OCCUPIED_S, ChildHandle, child_for_small_jobs
from penstock.worker.process_guard import ProcessGuard
from penstock.worker.shared_state import TASKS, ExecutingJob, SharedState
from tests.documents.test_lanes import begin

CHUNKS = 600
After: TypeAlias = Callable[[int], object]


class Recorded(Phases):
    """Records each slice, and calls ``after`` with the number of slices so far."""

    def __init__(self, docs: CallLog, catalog: SqliteCatalog, pipeline: Pipeline, after: After) -> None:
        super().__init__(catalog, pipeline)
        self._desk = docs
        self._after = after

    def run(self, lane: Phase, tasks: Sequence[Task], *, embedding: bool = False) -> list[TaskOutcome]:
        self._desk.record("tasks")
        ended = super().run(lane, tasks, embedding=embedding)
        self._after(self._desk.events().count("tasks"))
        return ended


class CallLog:
    """A document with many chunks to embed, and one child process for tasks and small jobs."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.queue = SqliteQueue(place / "queue.db", synchronous="NORMAL")
        self.catalog = SqliteCatalog(place / "catalog.db", synchronous="NORMAL")
        self.state = SharedState.create(place / "w1.state")
        self.begin_document()
        self._numbers = iter(range(1_000))

    def begin_document(self) -> None:
        pipeline = Pipeline(HashingEmbedder())
        begin(self.catalog, pipeline, chunks=CHUNKS)
        pipeline.close()

    def record(self, what: str) -> None:
        with (self._place / "events").open("a") as file:
            file.write(f"{what}\n")

    def events(self) -> list[str]:
        return (self._place / "events").read_text().split()

    def add_jobs(self, count: int) -> None:
        for _ in range(count):
            self.add_job()

    def add_job(self) -> None:
        name = f"job_{next(self._numbers)}"
        new = NewJob(
            queue_id=name,
            item_type="function",
            op="run",
            tenant_id="acme",
            collection="docs",
            idempotency_key=name,
            payload_json='{"function_name":"small"}',
        )
        self.queue.add([new])

    def work(self, after: After) -> list[str]:
        """Run a child until the third job stops it; returns the work done, in order."""
        child = multiprocessing.get_context("fork").Process(target=self._run, args=(after,), daemon=True)
        child.start()
        child.join(60)
        child.kill()
        assert 0 == child.exitcode
        return self.events()

    def _run(self, after: After) -> None:
        registry = Registry()
        registry.register("function", "run", self._small)
        options = ChildOptions(
            worker_id="w1",
            state_path=str(self.state.path),
            parent_pid=os.getppid(),
            lease=timedelta(seconds=60),
            lease_by_type={},
            poll_s=0.01,
            lanes=(Phase.VECTOR,),
        )
        queue = SqliteQueue(self._place / "queue.db", synchronous="NORMAL")
        catalog = SqliteCatalog(self._place / "catalog.db", synchronous="NORMAL")
        documents = DocumentTools(catalog, Recorded(self, catalog, Pipeline(HashingEmbedder()), after))
        guard = ProcessGuard(self.state, os.getppid())
        guard.set_up()
        Child(queue, registry, guard, self.state, options, documents).run()
        os._exit(0)

    def _small(self, context: Context) -> None:
        self.record("job")
        if context.job_id == "job_2":
            self.state.request_exit()

    def jobs(self) -> list[Job]:
        return self.queue.find(JobQuery(limit=100))

    def close(self) -> None:
        assert [] == self.catalog.held("w1")
        assert [] == self.catalog.audit()
        self.state.close(remove=True)
        self.catalog.close()
        self.queue.close()


@pytest.fixture
def docs(tmp_path: Path) -> Iterator[CallLog]:
    opened = CallLog(tmp_path)
    yield opened
    opened.close()


def test_a_job_runs_before_the_next_piece_of_a_batch_of_tasks(docs: CallLog, monkeypatch: pytest.MonkeyPatch):
    """Three jobs, each added during a slice; the interrupted batch has many slices."""
    # Tasks get as much time as the job before them took, which on a busy machine is several slices.
    monkeypatch.setattr(child, "LONGEST_TASK_TIME_S", 1e-9)
    docs.add_job()

    events = docs.work(lambda pieces: docs.add_job() if pieces in (1, 3) else None)

    assert PHASES[Phase.VECTOR].batch > 3 * PHASES[Phase.VECTOR].piece
    assert ["job", "tasks", "job"] == events[:3]
    # Tasks get a turn between two jobs; jobs never wait for more than one slice.
    assert "job" in events[3:6]
    assert all(not job.history and job.status is Status.DONE for job in docs.jobs())


def test_a_child_that_is_kept_free_leaves_tasks_to_others_while_small_jobs_come(
    docs: CallLog, monkeypatch: pytest.MonkeyPatch
):
    # On a busy machine a small job may take long, and so may the time between two of them.
    monkeypatch.setattr(child, "SMALL_JOB_S", 1e9)
    monkeypatch.setattr(child, "SMALL_JOBS_S", 1e9)
    docs.state.reserve_for_jobs(True)

    events = docs.work(lambda _: docs.add_jobs(3))

    assert ["tasks", "job", "job", "job"] == events
    with docs.catalog.snapshot() as snapshot:
        assert CHUNKS - PHASES[Phase.VECTOR].piece == snapshot.open_tasks(Phase.VECTOR)


def test_the_child_for_small_jobs_is_one_that_no_long_job_occupies(tmp_path: Path):
    children = [
        ChildHandle(f"w-{number}", SharedState.create(tmp_path / str(number)), multiprocessing.Process())
        for number in range(3)
    ]
    now = time.monotonic()
    assert children[0] is child_for_small_jobs(children, now)
    assert child_for_small_jobs(children[:1], now) is None

    # The first reads a large file, the second works on tasks, which it leaves for any job.
    children[0].state.begin((ExecutingJob("job_1", 1, 60),), now - 2 * OCCUPIED_S)
    children[1].state.begin((ExecutingJob(f"{TASKS}:vector", 0, 60),), now - 2 * OCCUPIED_S)
    assert children[1] is child_for_small_jobs(children, now)

    children[1].state.begin((ExecutingJob("job_2", 1, 60),), now)
    assert children[1] is child_for_small_jobs(children, now)
    assert children[2] is child_for_small_jobs(children, now + 2 * OCCUPIED_S)

    children[0].state.end(1)
    assert children[0] is child_for_small_jobs(children, now)
    for each in children:
        each.state.close(remove=True)
