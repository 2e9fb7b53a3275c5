"""The life of a scanned PDF through its three phases, with every kind of store, as the specification's tables
say: statuses of chunks, pages and documents at each step, and its monitoring queries as printed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Penstock, config
from penstock.catalog.rules import publication
from penstock.catalog.values import Failure, Phase, Task, TaskRequest
from penstock.handlers.context import Registry
from penstock.worker.lanes import DocumentNotifier
from tests.catalog.test_seed_sql import PRINTED, run
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.graph_stores.conftest import needs_bolt
from tests.pipeline.scanned_documents import picture, scan
from tests.servers import bolt

TORN = Failure("ERR_PARSE", "the page is torn")
TEXTS = ("Anna Marlow met Boris Vane.", "Boris Vane lives in Porto.")
PENDING, PROCESSING, COMPLETED, FAILED, SKIPPED = "pending processing completed failed skipped".split()
STORES = [
    pytest.param(("sqlite", "default", False), id="sqlite"),
    pytest.param(("postgres", "default", False), id="postgres"),
    pytest.param(
        ("sqlite", "qdrant+local", True), id="sqlite-qdrant-bolt", marks=[needs_bolt, pytest.mark.long]
    ),
    pytest.param(("postgres", "chroma+local", True), id="postgres-chroma-bolt", marks=needs_bolt),
]


class Life:
    """An application, a worker that is driven by hand, and the database as others see it."""

    def __init__(self, app: Penstock, worker: ManualWorker, database: Any) -> None:
        self.app, self.worker, self.database = app, worker, database
        self.folder = IndexedFolder(app, Path(app.settings.state_dir).parent / "files")

    def begin(self, name: str) -> str:
        """Index a scan of two pages up to its tasks; return its path."""
        path = self.folder.put(name, scan(*(picture(text, size=(900, 120)) for text in TEXTS)))
        self.app.index(path, graph=True)
        self.worker.run_jobs()
        return str(path)

    def claim(self, lane: Phase, batch: int = 1) -> list[Task]:
        return self.worker.catalog.claim(TaskRequest(lane, "w7", batch, needs_ocr=lane is Phase.OCR))

    def work(self, tasks: list[Task]) -> None:
        """Run tasks, and settle them as a worker does."""
        catalog, phases = self.worker.catalog, self.worker.phases
        settled = catalog.settle(phases.run(tasks[0].lane, tasks))
        assert None not in settled
        phases.settled([task.task_id for task in tasks], set())
        DocumentNotifier(self.app.queue, catalog).process_outbox()

    def statuses(self, path: str) -> dict[str, list[str]]:
        """Statuses of the document, and of each page, in the order of the phases."""
        documents = self.app.documents
        (found,) = documents.generations(documents.source(path).source_id)
        pages = {f"page {page.number}": page.phases for page in documents.pages(found.document_id)}
        shown = {"document": found.phases, **pages}
        return {name: [str(phases[phase].status) for phase in Phase] for name, phases in shown.items()}

    def rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        if isinstance(self.database, sqlite3.Connection):
            return self.database.execute(statement, values).fetchall()
        return list(run(self.database, statement, **values))

    def chunks(self, path: str) -> list[tuple[Any, ...]]:
        """Number of the page, statuses and counts of each chunk."""
        return self.rows(
            "SELECT p.page_number, c.chunk_index, c.vector_status, c.graphrag_status,"
            " c.entities_extracted > 0, c.relationships_extracted > 0"
            " FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id"
            f" JOIN documents d ON d.id = c.document_id WHERE d.filename = '{Path(path).name}' ORDER BY 1, 2"
        )

    def monitored(self, path: str) -> tuple[tuple[Any, ...], dict[tuple[str, str], int], list[list[str]]]:
        """Progress of a document, statistics, and documents ready for the two later phases."""
        found = self.rows(f"SELECT id FROM documents WHERE filename = '{Path(path).name}'")
        (progress,) = self.rows(PRINTED.progress, doc_id=found[0][0])
        counted = {(kind, status): number for kind, status, number in self.rows(PRINTED.statistics)}
        return progress[1:], counted, [[row[1] for row in self.rows(one)] for one in PRINTED.ready]


@pytest.fixture
def life(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Life]:
    engine, vectors, graph = request.param
    url = f"sqlite:///{tmp_path}/queue.db"
    if engine == "postgres":
        from tests.servers import postgres

        url = postgres.store_at(tmp_path)
    settings = config.load(
        {},
        url=url,
        state_dir=tmp_path / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
        graph=True,
        vector_store=vectors if vectors == "default" else f"{vectors}:{tmp_path}/vectors",
        graph_store=bolt.server_url() if graph else "default",
        graph_store_timeout_s=60.0,
    )
    with Penstock(settings=settings) as app, closing(_connect(url)) as database:
        tools = app._assembly.open_document_tools(Registry())
        with IndexedFolder(app, tmp_path).manual_worker(ocr=True) as worker, closing(tools):
            # With the stores of the settings.
            worker.phases = tools.phases
            yield Life(app, worker, database)
            assert [] == app.documents.catalog.audit()
            assert [] == [one.what for one in app.verifier.differences()]


def _connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    return psycopg.connect(url, autocommit=True)


@pytest.mark.parametrize("life", STORES, indirect=True)
def test_a_scan_lives_through_three_phases(life: Life):
    path = life.begin("scan.pdf")
    nothing = [PENDING] * 3
    assert {"document": nothing, "page 1": nothing, "page 2": nothing} == life.statuses(path)
    progress, counted, ready = life.monitored(path)
    assert ("scan.pdf", PENDING, PENDING, PENDING, 2, 0, 0) == progress[:7]
    assert {("ocr_pages", PENDING): 2} == counted
    assert [[], []] == ready

    # OCR, page by page.
    (page,) = life.claim(Phase.OCR)
    assert [PROCESSING, PENDING, PENDING] == life.statuses(path)["document"]
    assert 1 == life.monitored(path)[1]["ocr_pages", PROCESSING]
    life.work([page])
    assert [COMPLETED, PENDING, PENDING] == life.statuses(path)["page 1"]
    assert [PENDING] * 3 == life.statuses(path)["document"]
    assert [(1, 0, PENDING, PENDING, 0, 0)] == [tuple(map(_plain, row)) for row in life.chunks(path)]
    life.work(life.claim(Phase.OCR))
    assert [COMPLETED, PENDING, PENDING] == life.statuses(path)["document"]
    progress, counted, ready = life.monitored(path)
    assert ("scan.pdf", COMPLETED, PENDING, PENDING, 2, 2, 0, 2, 0, 0) == progress
    assert [["scan.pdf"], []] == ready

    # Vectors, chunk by chunk. Entities wait for the vector of their own chunk.
    assert [] == life.claim(Phase.GRAPHRAG)
    (chunk,) = life.claim(Phase.VECTOR)
    assert [COMPLETED, PROCESSING, PENDING] == life.statuses(path)["document"]
    life.work([chunk])
    assert [COMPLETED, COMPLETED, PENDING] == life.statuses(path)["page 1"]
    assert [] == life.folder.found("porto", mode="keyword"), "not published yet"
    (early,) = life.claim(Phase.GRAPHRAG)
    assert chunk.chunk_id == early.chunk_id
    life.work(life.claim(Phase.VECTOR))
    assert [COMPLETED, COMPLETED, PROCESSING] == life.statuses(path)["document"]
    assert ["scan.pdf"] == life.folder.found("porto", mode="keyword")
    assert ["scan.pdf"] == life.folder.found("porto", mode="vector")

    # Entities, chunk by chunk.
    life.work([early])
    assert [COMPLETED] * 3 == life.statuses(path)["page 1"]
    assert [[], ["scan.pdf"]] == life.monitored(path)[2]
    life.work(life.claim(Phase.GRAPHRAG))
    done = [COMPLETED] * 3
    assert {"document": done, "page 1": done, "page 2": done} == life.statuses(path)
    assert [(n, 0, COMPLETED, COMPLETED, 1, 1) for n in (1, 2)] == [
        tuple(map(_plain, row)) for row in life.chunks(path)
    ]
    progress, counted, ready = life.monitored(path)
    assert ("scan.pdf", *done, 2, 2, 0, 2, 2, 2) == progress
    kinds = ("ocr_pages", "vector_chunks", "graphrag_chunks")
    assert {(kind, COMPLETED): 2 for kind in kinds} == counted
    assert [[], []] == ready
    (boris,) = life.app._assembly.graph.entity("Boris Vane")
    assert {1, 2} == {mention.page for mention in boris.mentions}
    assert "done" == next(iter(life.app.jobs())).status


def _plain(value: object) -> object:
    """A number instead of a flag, which only one of the databases has."""
    return int(value) if isinstance(value, bool) else str(value) if isinstance(value, str) else value


@pytest.mark.parametrize("life", STORES[:2], indirect=True)
def test_failures_are_shown_at_every_level(life: Life):
    path = life.begin("torn.pdf")
    (first,) = life.claim(Phase.OCR)
    life.worker.catalog.settle([publication.failed(first, TORN)])
    life.work(life.claim(Phase.OCR))
    # The phases behind a page that failed for good are skipped.
    assert [FAILED, SKIPPED, SKIPPED] == life.statuses(path)["page 1"]
    progress, counted, ready = life.monitored(path)
    assert (FAILED, 2, 1, 1) == (progress[1], *progress[4:7])
    assert {("ocr_pages", FAILED): 1, ("ocr_pages", COMPLETED): 1} == {
        key: number for key, number in counted.items() if key[0] == "ocr_pages"
    }
    assert [[], []] == ready
    life.work(life.claim(Phase.VECTOR))
    (chunk,) = life.claim(Phase.GRAPHRAG)
    life.worker.catalog.settle([publication.failed(chunk, Failure("ERR_CUT_OFF", "too long"))])
    assert [COMPLETED, COMPLETED, FAILED] == life.statuses(path)["page 2"]
    assert [FAILED, COMPLETED, FAILED] == life.statuses(path)["document"]
    assert 1 == life.monitored(path)[1]["graphrag_chunks", FAILED]
    reason = life.app.documents.why(path)
    assert "partial" == reason.verdict
    assert any("the page is torn" in part for part in reason.missing)
    assert ["torn.pdf"] == life.folder.found("porto", mode="keyword")
