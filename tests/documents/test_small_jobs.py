"""Small jobs beside a large document: a child runs what it claimed before the next piece of tasks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import Phase, Task, TaskOutcome
from penstock.handlers.context import Context
from penstock.handlers.phases import Phases
from penstock.handlers.registry import Registry
from penstock.job import Job, JobQuery, NewJob, Status
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.worker import batch_size
from penstock.worker.child import Child, ChildOptions
from penstock.worker.child_handle import OCCUPIED_S, ChildHandle, free_one
from penstock.worker.lanes import AT_ONCE, SMALLEST, DocumentTools
from penstock.worker.process_guard import ProcessGuard
from penstock.worker.shared_state import TASKS, ExecutingJob, SharedState
from tests.documents.test_lanes import begin

CHUNKS = 600
After: TypeAlias = Callable[[int], object]


class Recorded(Phases):
    """Writes down each piece, and calls ``after`` with the number of pieces so far."""

    def __init__(self, desk: CallLog, catalog: SqliteCatalog, recipe: Pipeline, after: After) -> None:
        super().__init__(catalog, recipe)
        self._desk = desk
        self._after = after

    def run(self, lane: Phase, tasks: Sequence[Task], *, embedding: bool = False) -> list[TaskOutcome]:
        self._desk.record("tasks")
        ended = super().run(lane, tasks, embedding=embedding)
        self._after(self._desk.events().count("tasks"))
        return ended


class CallLog:
    """A document of many chunks to embed, and one child process that works on it and on small jobs."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.queue = SqliteQueue(place / "queue.db", synchronous="NORMAL")
        self.catalog = SqliteCatalog(place / "catalog.db", synchronous="NORMAL")
        self.slot = SharedState.create(place / "w1.slot")
        self.begin_document()
        self._numbers = iter(range(1_000))

    def begin_document(self) -> None:
        recipe = Pipeline(HashingEmbedder())
        begin(self.catalog, recipe, chunks=CHUNKS)
        recipe.close()

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
        """Run a child until the third job asks it to leave; what was done, in order."""
        child = multiprocessing.get_context("fork").Process(target=self._run, args=(after,), daemon=True)
        child.start()
        child.join(60)
        child.kill()
        assert 0 == child.exitcode
        return self.events()

    def _run(self, after: After) -> None:
        registry = Registry()
        registry.register("function", "run", self._small)
        terms = ChildOptions(
            worker_id="w1",
            slot_path=str(self.slot.path),
            parent_pid=os.getppid(),
            lease=timedelta(seconds=60),
            lease_by_type={},
            poll_s=0.01,
            lanes=(Phase.VECTOR,),
        )
        queue = SqliteQueue(self._place / "queue.db", synchronous="NORMAL")
        catalog = SqliteCatalog(self._place / "catalog.db", synchronous="NORMAL")
        documents = DocumentTools(catalog, Recorded(self, catalog, Pipeline(HashingEmbedder()), after))
        Child(queue, registry, ProcessGuard(self.slot, os.getppid()), self.slot, terms, documents).run()
        os._exit(0)

    def _small(self, context: Context) -> None:
        self.record("job")
        if context.job_id == "job_2":
            self.slot.ask_to_leave()

    def jobs(self) -> list[Job]:
        return self.queue.find(JobQuery(limit=100))

    def close(self) -> None:
        assert [] == self.catalog.held("w1")
        assert [] == self.catalog.audit()
        self.slot.close(remove=True)
        self.catalog.close()
        self.queue.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[CallLog]:
    opened = CallLog(tmp_path)
    yield opened
    opened.close()


def test_a_job_runs_before_the_next_piece_of_a_batch_of_tasks(desk: CallLog):
    """Three jobs, each added while a piece runs; the batch they interrupt has many pieces."""
    desk.add_job()

    events = desk.work(lambda pieces: desk.add_job() if pieces in (1, 3) else None)

    assert AT_ONCE[Phase.VECTOR] > 3 * SMALLEST[Phase.VECTOR]
    assert ["job", "tasks", "job"] == events[:3]
    # Between two jobs, tasks have their turn; they never wait for more than one piece.
    assert "job" in events[3:6]
    assert all(not job.history and job.status is Status.DONE for job in desk.jobs())


def test_a_child_that_is_kept_free_leaves_tasks_to_others_while_small_jobs_come(
    desk: CallLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch_size, "SMALL_JOBS_S", 1e9)
    desk.slot.keep_free(True)

    events = desk.work(lambda _: desk.add_jobs(3))

    assert ["tasks", "job", "job", "job"] == events
    with desk.catalog.snapshot() as snapshot:
        assert CHUNKS - SMALLEST[Phase.VECTOR] == snapshot.open_tasks(Phase.VECTOR)


def test_the_child_kept_free_is_one_that_no_long_job_occupies(tmp_path: Path):
    wards = [
        ChildHandle(f"w-{number}", SharedState.create(tmp_path / str(number)), multiprocessing.Process())
        for number in range(3)
    ]
    now = 1000.0
    assert wards[0] is free_one(wards, now)
    assert free_one(wards[:1], now) is None

    # The first reads a large file, the second works on tasks, which it leaves for any job.
    wards[0].slot.begin((ExecutingJob("job_1", 1, 60),), now - 2 * OCCUPIED_S)
    wards[1].slot.begin((ExecutingJob(f"{TASKS}:vector", 0, 60),), now - 2 * OCCUPIED_S)
    assert wards[1] is free_one(wards, now)

    wards[1].slot.begin((ExecutingJob("job_2", 1, 60),), now)
    assert wards[1] is free_one(wards, now)
    assert wards[2] is free_one(wards, now + 2 * OCCUPIED_S)

    wards[0].slot.end(1)
    assert wards[0] is free_one(wards, now)
    for ward in wards:
        ward.slot.close(remove=True)
