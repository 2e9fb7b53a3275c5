"""Documents through the whole of Penstock: a folder, a worker in a thread, and what a search finds then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.factory import open_catalog
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Task, TaskRequest, TaskStatus
from penstock.handlers import documents
from penstock.handlers.context import Context
from penstock.handlers.files import Files
from penstock.handlers.phases import Phases
from penstock.handlers.registry import Registry
from penstock.job import Claim, ClaimRequest, Job, Status
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.pipeline.pipeline import Pipeline
from penstock.worker.breaker import Breakers
from penstock.worker.document_notifier import DocumentNotifier
from penstock.worker.executor import Executor
from penstock.worker.lanes import still_wanted
from penstock.worker.upkeep.sweeper import Sweeper
from tests.conformance.durable_engines import given_back
from tests.documents.paused_catalog import Stops

WAIT_S = 30.0
OPEN = (TaskStatus.PENDING, TaskStatus.PROCESSING)


def book(parts: int) -> str:
    """Markdown with a chunk a part, about."""
    return "\n\n".join(
        f"# Part {number}\n\n" + f"Sentence about subject{number}. " * 60 for number in range(parts)
    )


class Hand:
    """A worker that does one thing at a time, when the test says so."""

    def __init__(self, app: Penstock, recipe: Pipeline) -> None:
        self.stops = Stops(open_catalog(app.settings))
        self.catalog = cast("Catalog", self.stops)
        self.phases = Phases(self.catalog, recipe)
        self._app = app
        self._recipe = recipe
        registry = Registry()
        documents.register(registry, self.catalog, recipe, (), checkpoint_interval=50)
        self._executor = Executor(registry, Breakers())

    def _context(self, _: int, claim: Claim) -> Context:
        return Context(
            claim,
            tell=lambda _: None,
            asked_to_stop=lambda: False,
            settle=lambda settlement: self._app.queue.settle([settlement])[0],
        )

    def exhaust(self, lane: Phase) -> None:
        """Try what failed again until no retry is left, however long that would take."""
        now = clock.now()
        for _ in range(10):
            now += timedelta(days=1)
            tasks = self.catalog.claim(TaskRequest(lane, "hand", 256), now=now)
            if tasks:
                self.catalog.settle(self.phases.run(lane, tasks), now=now)
        DocumentNotifier(self._app.queue, self.catalog).step()

    def files(self, claims: Sequence[Claim]) -> list[Any]:
        """The answers of the handler for files, settled by nobody."""
        return Files(self.catalog, self._recipe).ingest([self._context(0, claim) for claim in claims])

    def run(self, claim: Claim) -> Any:
        """What the handler of a job claimed before answers; it is settled as done."""
        answer = self._executor.run([claim], self._context)
        self._app.queue.settle(answer)
        return self._app.job(claim.queue_id).result

    def run_jobs(self, limit: int = 100) -> Status | None:
        """One claim of jobs, as many in one call as their handler takes: how the first was settled."""
        claims = self._app.queue.claim(ClaimRequest("hand", limit, timedelta(seconds=60)))
        statuses = []
        while claims:
            size = self._executor.batch_size(claims[0])
            kind = (claims[0].item_type, claims[0].op)
            same = takewhile(lambda claim: (claim.item_type, claim.op) == kind, claims[:size])  # noqa: B023
            now = list(same)
            statuses += self._app.queue.settle(self._executor.run(now, self._context))
            del claims[: len(now)]
        return statuses[0] if statuses else None

    def claim(self, lane: Phase) -> list[Task]:
        claimed = self.catalog.claim(TaskRequest(lane, "hand", 256))
        return still_wanted(self._app.queue, self.catalog, claimed)

    def drain(self) -> None:
        """All there is to do, until nothing is."""
        while self.run_jobs() is not None or self._tasks_left():
            self.run_tasks()

    def _tasks_left(self) -> bool:
        with self.catalog.snapshot() as snapshot:
            left = any(snapshot.open_tasks(lane) for lane in Phase)
        return left or bool(self.catalog.outbox())

    def run_tasks(self, *, again: bool = True, embedding: bool = True) -> None:
        """Tasks until there are none, then all that the outbox says."""
        worked = True
        while worked:
            worked = False
            for lane in Phase:
                tasks = self.claim(lane)
                if tasks:
                    self.catalog.settle(self.phases.run(lane, tasks, embedding=embedding))
                    worked = again
        DocumentNotifier(self._app.queue, self.catalog).step()
        while Sweeper(self.catalog).clear_leftovers():
            continue


class IndexedFolder:
    """A folder of files beside an application that indexes it."""

    def __init__(self, app: Penstock, folder: Path) -> None:
        self.app = app
        self.folder = folder

    def put(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def index(self, path: Path | None = None, **options: Any) -> Job:
        """Index the folder, or one path, and answer the job when all of it has ended."""
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
    def by_hand(
        self, embedder: Embedder | None = None, limits: ExtractLimits | None = None
    ) -> Iterator[Hand]:
        recipe = Pipeline(embedder or HashingEmbedder(), limits=limits)
        hand = Hand(self.app, recipe)
        try:
            yield hand
        finally:
            hand.catalog.close()
            recipe.close()

    def unsettled(self, hand: Hand) -> list[str]:
        """Tasks that are neither done nor given up, by their words."""
        with hand.catalog.snapshot() as snapshot:
            settled = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)
            return [
                f"{kind} {status}"
                for (kind, status), n in snapshot.statistics().items()
                if n and status not in settled
            ]

    def open_tasks(self) -> list[str]:
        with self.app.documents.catalog.snapshot() as snapshot:
            counts = snapshot.statistics()
        return [f"{kind} {status}" for (kind, status), number in counts.items() if number and status in OPEN]

    def found(self, query: str, **options: Any) -> list[str]:
        """Names of the files whose chunks answer, each once, best first."""
        hits = self.app.search(query, **options)
        return list(dict.fromkeys(Path(hit.path).name for hit in hits))

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


@pytest.fixture(params=QUEUES)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexedFolder]:
    """With a queue in SQLite or PostgreSQL and the catalog in the same file or database; and with one in
    JSONL or Redis and the catalog in a SQLite file beside it."""
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
