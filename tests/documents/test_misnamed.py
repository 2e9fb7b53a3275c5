"""Files whose name stands for another type: read once, and again when what reads them changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handlers import members
from penstock.handlers.members import read_file
from penstock.pipeline.extract.pdf.document import PdfExtractor
from penstock.pipeline.extract.text import TextExtractor
from penstock.queue.job import Job
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.pipeline.sample_documents import pdf
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)
TORN = b"%PDF-1.4\nnothing of a document"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that jobs have read."""
    names: list[str] = []

    def recorded(path: str, *arguments, **named):
        found = read_file(path, *arguments, **named)
        names.extend([Path(path).name] if found is not None else [])
        return found

    monkeypatch.setattr(members, "read_file", recorded)
    return names


@pytest.fixture
def misnamed(docs: IndexedFolder) -> IndexedFolder:
    docs.put("report.txt", pdf("Water drives the wheel."))
    docs.put("torn.txt", TORN)
    docs.put("notes.txt", "The gate holds the water back.")
    return docs


@pytest.fixture
def worker(misnamed: IndexedFolder) -> Iterator[ManualWorker]:
    with misnamed.manual_worker() as worker:
        yield worker


def indexed(docs: IndexedFolder, worker: ManualWorker, path: Path | None = None, **options) -> Job:
    receipt = docs.app.index(path or docs.folder, **options)
    worker.drain()
    return docs.app.job(receipt.job_id)


def test_a_second_run_reads_nothing(misnamed: IndexedFolder, worker: ManualWorker, opened: list[str]):
    indexed(misnamed, worker)
    assert ["notes.txt", "report.txt", "torn.txt"] == sorted(opened)
    opened.clear()

    indexed(misnamed, worker)
    indexed(misnamed, worker, misnamed.folder / "report.txt")

    assert [] == opened
    source = misnamed.app.documents.source(str(misnamed.folder / "report.txt"))
    assert "application/pdf" == source.properties.media_type
    assert ("named .txt, but is a PDF",) == source.properties.warnings


def test_the_extractor_of_the_content_decides_about_reading_again(
    misnamed: IndexedFolder, opened: list[str], monkeypatch: pytest.MonkeyPatch
):
    with misnamed.manual_worker() as worker:
        indexed(misnamed, worker)
    opened.clear()

    monkeypatch.setattr(PdfExtractor, "version", "next")
    with misnamed.manual_worker() as worker:
        indexed(misnamed, worker)
        assert ["report.txt", "torn.txt"] == sorted(opened)
        opened.clear()
        indexed(misnamed, worker)
        assert [] == opened

    monkeypatch.setattr(TextExtractor, "version", "next")
    with misnamed.manual_worker() as worker:
        indexed(misnamed, worker)
        assert ["notes.txt"] == opened


def test_a_long_misnamed_pdf_is_read_page_by_page(misnamed: IndexedFolder, worker: ManualWorker):
    path = misnamed.put("long.txt", pdf(*[f"Words of page {number}." for number in range(40)]))
    job = misnamed.app.index(path)
    worker.run_jobs()
    assert misnamed.open_tasks()

    worker.drain()

    assert "done" == misnamed.app.job(job.job_id).status
    assert 40 == misnamed.app.documents.source(str(path)).page_count


def test_the_content_decides_about_the_filter_by_type(misnamed: IndexedFolder, worker: ManualWorker):
    misnamed.put("honest.pdf", pdf("Water is clear."))
    indexed(misnamed, worker)

    def found(suffix: str) -> list[str]:
        hits = misnamed.app.search("water", mode="keyword", file_type=suffix)
        return sorted(Path(hit.path).name for hit in hits)

    assert (["honest.pdf", "report.txt"], ["notes.txt"]) == (found("pdf"), found("txt"))
