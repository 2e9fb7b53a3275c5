"""Fixtures for documents in a complete Penstock: a folder, a worker, and the results of searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Task, TaskRequest, TaskStatus
from penstock.database.factory import open_catalog
from penstock.handlers import documents
from penstock.handlers.context import Context, Registry
from penstock.handlers.files import Files
from penstock.handlers.phases import Phases
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.pipeline.graph.llm import LlmExtractor
from penstock.pipeline.ocr.pages import OcrSetup
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.job import Claim, ClaimRequest, Job, Status
from penstock.worker.executor import Breakers, Executor
from penstock.worker.lanes import DocumentNotifier, drop_unwanted
from penstock.worker.upkeep import Sweeper
from tests.conformance.durable_engines import given_back
from tests.documents.paused_catalog import PausedCatalog
from tests.pipeline.kept_zygotes import kept_zygotes as kept_zygotes
from tests.servers.stores import others_later

WAIT_S = 120.0
OPEN = (TaskStatus.PENDING, TaskStatus.PROCESSING)


def book(parts: int) -> str:
    """Markdown with about one chunk per part."""
    return "\n\n".join(
        f"# Part {number}\n\n" + f"Sentence about subject{number}. " * 60 for number in range(parts)
    )


class ManualWorker:
    """A worker that is driven step by step by the test."""

    def __init__(self, app: Penstock, pipeline: Pipeline) -> None:
        self.paused = PausedCatalog(open_catalog(app.settings))
        self.catalog = cast("Catalog", self.paused)
        self.phases = Phases(self.catalog, pipeline)
        self._app = app
        self._pipeline = pipeline
        registry = Registry()
        documents.register(registry, self.catalog, pipeline, (), checkpoint_interval=50)
        self._executor = Executor(registry, Breakers())

    def _context(self, _: int, claim: Claim) -> Context:
        return Context(
            claim,
            report=lambda _: None,
            stop_requested=lambda: False,
            settle=lambda settlement: self._app.queue.settle([settlement])[0],
        )

    def exhaust(self, lane: Phase) -> None:
        """Retry failed tasks until no retry is left, with a clock set forward."""
        now = clock.now()
        for _ in range(10):
            now += timedelta(days=1)
            tasks = self.catalog.claim(TaskRequest(lane, "hand", 256), now=now)
            if tasks:
                self.catalog.settle(self.phases.run(lane, tasks), now=now)
        DocumentNotifier(self._app.queue, self.catalog).process_outbox()

    def files(self, claims: Sequence[Claim]) -> list[Any]:
        """Answers of the handler for files, without settling the jobs."""
        return Files(self.catalog, self._pipeline).ingest([self._context(0, claim) for claim in claims])

    def run(self, claim: Claim) -> Any:
        """Run a claimed job, settle it, and return its result."""
        answer = self._executor.run([claim], self._context)
        self._app.queue.settle(answer)
        return self._app.job(claim.queue_id).result

    def run_jobs(self, limit: int = 100) -> Status | None:
        """Claim and run jobs in batches; returns the status of the first."""
        claims = self._app.queue.claim(ClaimRequest("hand", limit, timedelta(seconds=60)))
        statuses = []
        while claims:
            size = self._executor.batch_size(claims[0])
            lane = (claims[0].item_type, claims[0].op)
            same = takewhile(lambda claim: (claim.item_type, claim.op) == lane, claims[:size])  # noqa: B023
            now = list(same)
            statuses += self._app.queue.settle(self._executor.run(now, self._context))
            del claims[: len(now)]
        return statuses[0] if statuses else None

    def claim(self, lane: Phase) -> list[Task]:
        claimed = self.catalog.claim(TaskRequest(lane, "hand", 256))
        if lane is Phase.OCR:
            claimed += self.catalog.claim(TaskRequest(lane, "hand", 256, needs_ocr=True))
        return drop_unwanted(self._app.queue, self.catalog, claimed)

    def drain(self) -> None:
        """Run jobs and tasks until nothing is left; retries run at once, with a clock set forward."""
        while self.run_jobs() is not None or self._tasks_left():
            if not self.run_tasks():
                for lane in Phase:
                    self.exhaust(lane)

    def _tasks_left(self) -> bool:
        with self.catalog.snapshot() as snapshot:
            left = any(snapshot.open_tasks(lane) for lane in Phase)
        return left or bool(self.catalog.outbox())

    def run_tasks(self, *, again: bool = True, embedding: bool = True) -> bool:
        """Run all tasks, then process the outbox; returns whether there was a task."""
        any_task = False
        worked = True
        while worked:
            worked = False
            for lane in Phase:
                tasks = self.claim(lane)
                if tasks:
                    self.catalog.settle(self.phases.run(lane, tasks, embedding=embedding))
                    worked, any_task = again, True
        DocumentNotifier(self._app.queue, self.catalog).process_outbox()
        while Sweeper(self.catalog).clear_leftovers():
            continue
        return any_task


class IndexedFolder:
    """A folder of files and an application to index it."""

    def __init__(self, app: Penstock, folder: Path) -> None:
        self.app = app
        self.folder = folder

    def put(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def index(self, path: Path | None = None, **options: Any) -> Job:
        """Index the folder or one path; returns the finished job."""
        with self.app.worker_thread():
            receipt = self.app.index(path or self.folder, **options)
            return self.app.wait(receipt.job_id, timeout=WAIT_S)

    def run(self, item_type: str, op: str, payload: dict[str, Any], **fields: Any) -> Job:
        with self.app.worker_thread():
            receipt = self.app.submit(item_type=item_type, op=op, payload=payload, **fields)
            return self.app.wait(receipt.job_id, timeout=WAIT_S)

    def finish(self, job_id: str) -> Job:
        with self.app.worker_thread():
            return self.app.wait(job_id, timeout=WAIT_S)

    @contextmanager
    def manual_worker(
        self,
        embedder: Embedder | None = None,
        limits: ExtractLimits | None = None,
        *,
        ocr: OcrSetup | bool = False,
        llm: LlmExtractor | None = None,
    ) -> Iterator[ManualWorker]:
        setup = OcrSetup() if ocr is True else ocr or None
        pipeline = Pipeline(embedder or HashingEmbedder(), limits=limits, ocr=setup, llm=llm)
        worker = ManualWorker(self.app, pipeline)
        try:
            yield worker
        finally:
            worker.catalog.close()
            pipeline.close()

    def unsettled(self, worker: ManualWorker) -> list[str]:
        """Lane and status of tasks that are neither done nor skipped."""
        with worker.catalog.snapshot() as snapshot:
            settled = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)
            return [
                f"{lane} {status}"
                for (lane, status), n in snapshot.statistics().items()
                if n and status not in settled
            ]

    def open_tasks(self) -> list[str]:
        with self.app.documents.catalog.snapshot() as snapshot:
            counts = snapshot.statistics()
        return [f"{lane} {status}" for (lane, status), number in counts.items() if number and status in OPEN]

    def found(self, query: str, **options: Any) -> list[str]:
        """Names of the files found by a search, each once, best first, and those with the same text."""
        hits = self.app.search(query, **options)
        paths = [path for hit in hits for path in (hit.path, *(other.path for other in hit.also_in))]
        return list(dict.fromkeys(Path(path).name for path in paths))

    def audit(self) -> list[str]:
        return self.app.documents.catalog.audit()


def _postgres(place: Path) -> str:
    from tests.servers import postgres

    return postgres.store_at(place)


def _redis(place: Path) -> str:
    from tests.servers.redis import queue_url

    return queue_url(place)


QUEUES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda place: f"sqlite:///{place}/queue.db",
    "jsonl": lambda place: f"jsonl://{place}/queue",
    "postgres": _postgres,
    "redis": _redis,
}


@pytest.fixture(params=others_later(QUEUES, ["sqlite"]))
def docs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexedFolder]:
    """An indexed folder, on SQLite, and on the other engines in `make test-long`.

    The catalog is in the same database for SQLite and PostgreSQL, and in a SQLite file for JSONL and Redis.
    """
    settings = config.load(
        {},
        url=QUEUES[request.param](tmp_path),
        state_dir=tmp_path / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
    )
    folder = tmp_path / "files"
    folder.mkdir()
    with Penstock(settings=settings) as app:
        yield IndexedFolder(app, folder)
        assert [] == app.documents.catalog.audit()
    given_back(tmp_path)
