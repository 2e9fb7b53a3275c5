"""Statuses of a scan and its pages, step by step, while their text is recognized."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.catalog.rules import publication
from penstock.catalog.values import Document, Failure, PageState, Phase, Task, TaskRequest
from penstock.handlers.source_files import PageFiles
from penstock.worker.lanes import DocumentNotifier
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.pipeline.scanned_documents import picture, scan
from tests.servers.stores import FIRST, others_later

# The catalogs.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

TORN = Failure("ERR_PARSE", "the page is torn")


class Watched:
    """A scan of three pages, and its statuses as they are stored."""

    def __init__(self, docs: IndexedFolder, worker: ManualWorker, **options: str) -> None:
        pages = [picture(f"Wheel {number}", size=(240, 90)) for number in range(3)]
        path = docs.put("scan.pdf", scan(*pages))
        self.docs, self.worker = docs, worker
        docs.app.index(path, **options)  # type: ignore[arg-type]
        worker.run_jobs()
        self.source_id = docs.app.documents.source(str(path)).source_id

    @property
    def document(self) -> list[str]:
        (found,) = self.docs.app.documents.generations(self.source_id)
        self.document_id = found.document_id
        return [f"{phase} {found.phases[phase].status}" for phase in (Phase.OCR, Phase.VECTOR)]

    def pages(self, phase: Phase) -> list[str]:
        (found,) = self.docs.app.documents.generations(self.source_id)
        return [str(page.phases[phase].status) for page in self.docs.app.documents.pages(found.document_id)]

    def claimed(self) -> Task:
        (task,) = self.worker.catalog.claim(TaskRequest(Phase.OCR, "w7", 1, needs_ocr=True))
        return task

    def recognize(self, task: Task, *, embedding: bool = True) -> None:
        self.worker.catalog.settle(self.worker.phases.run(Phase.OCR, [task], embedding=embedding))


def test_statuses_rise_from_the_pages_to_the_document(docs: IndexedFolder, tmp_path: Path):
    with docs.manual_worker(ocr=True) as worker:
        worker.phases.page_files = PageFiles(str(tmp_path / "pages"))
        watched = Watched(docs, worker)
        # One row for each page, all pending, as the document is.
        assert ["ocr pending", "vector pending"] == watched.document
        assert ["pending"] * 3 == watched.pages(Phase.OCR)
        assert ["pending"] * 3 == watched.pages(Phase.VECTOR)

        first = watched.claimed()
        assert ["ocr processing", "vector pending"] == watched.document
        assert ["processing", "pending", "pending"] == watched.pages(Phase.OCR)
        (state,) = [each for each in docs.app.documents.pages(watched.document_id) if each.number == 1]
        assert state.phases[Phase.OCR].started_at is not None

        watched.recognize(first)
        # No page is in hand.
        assert ["ocr pending", "vector pending"] == watched.document
        assert ["completed", "pending", "pending"] == watched.pages(Phase.OCR)
        assert ["completed", "pending", "pending"] == watched.pages(Phase.VECTOR)
        (state, *_) = docs.app.documents.pages(watched.document_id)
        assert state.file_path is not None
        assert "Wheel 0" in Path(state.file_path).read_text()

        watched.recognize(watched.claimed())
        assert ["completed", "completed", "pending"] == watched.pages(Phase.OCR)
        watched.recognize(watched.claimed())
        assert ["completed"] * 3 == watched.pages(Phase.OCR)
        assert ["ocr completed", "vector completed"] == watched.document
        DocumentNotifier(docs.app.queue, worker.catalog).process_outbox()
        assert ["scan.pdf"] == docs.found("wheel", mode="keyword")


def test_a_failed_page_fails_the_phase_once_no_other_page_is_open(docs: IndexedFolder):
    with docs.manual_worker(ocr=True) as worker:
        watched = Watched(docs, worker)
        worker.catalog.settle([publication.failed(watched.claimed(), TORN)])
        assert ["failed", "pending", "pending"] == watched.pages(Phase.OCR)
        assert ["ocr pending", "vector pending"] == watched.document

        released = watched.claimed()
        worker.catalog.settle([publication.released(released)])
        assert ["failed", "pending", "pending"] == watched.pages(Phase.OCR)

        for _ in range(2):
            watched.recognize(watched.claimed())
        assert ["failed", "completed", "completed"] == watched.pages(Phase.OCR)
        assert "ocr failed" in watched.document
        (state, *_) = docs.app.documents.pages(watched.document_id)
        assert "ERR_PARSE: the page is torn" == state.error
        DocumentNotifier(docs.app.queue, worker.catalog).process_outbox()
        # The rest of it is published.
        assert docs.app.documents.source(watched.source_id).partial


def test_vectors_wait_for_all_pages_with_the_gate_of_the_document(docs: IndexedFolder):
    with docs.manual_worker(ocr=True) as worker:
        watched = Watched(docs, worker, gate="document")
        for _ in range(2):
            watched.recognize(watched.claimed())
            assert [] == worker.claim(Phase.VECTOR)
        watched.recognize(watched.claimed())
        assert ["ocr completed", "vector pending"] == watched.document
        tasks = worker.claim(Phase.VECTOR)
        assert 3 == len(tasks)
        assert ["ocr completed", "vector processing"] == watched.document
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks))
        assert ["ocr completed", "vector completed"] == watched.document
        DocumentNotifier(docs.app.queue, worker.catalog).process_outbox()


@pytest.mark.parametrize("graph", [True, False])
def test_a_new_document_has_all_phases_pending_that_are_wanted(docs: IndexedFolder, graph: bool):
    """The others are skipped, and say why."""
    with docs.manual_worker(ocr=True) as worker:
        path = docs.put("scan.pdf", scan(picture("Wheel", size=(240, 90)), picture("Gate", size=(240, 90))))
        docs.app.index(path, graph=graph)
        worker.run_jobs()
        source = docs.app.documents.source(str(path))
        (found,) = docs.app.documents.generations(source.source_id)
        pages = docs.app.documents.pages(found.document_id)

    last = "pending" if graph else "skipped"
    expected = {"ocr": "pending", "vector": "pending", "graphrag": last}
    parts: tuple[Document | PageState, ...] = (found, *pages)
    for part in parts:
        assert expected == {str(phase): str(state.status) for phase, state in part.phases.items()}
    assert graph or found.phases[Phase("graphrag")].error
