"""Scans: pictures of pages are recognized by tasks of lane ocr and found by search."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.catalog.values import TaskStatus
from penstock.catalog.views import PageState
from penstock.job import Status
from tests.documents.conftest import IndexedFolder
from tests.documents.killed_worker import KILLED_AFTER, recognitions, served
from tests.pipeline.sample_documents import pdf
from tests.pipeline.scanned_documents import mixed, picture, scan

MILL = "The old water mill\nstands by the river"
PENSTOCK = "Penstocks carry the water\nto the turbine"

on_sqlite = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


def pages(docs: IndexedFolder, path: Path) -> list[PageState]:
    source = docs.app.documents.source(str(path))
    assert source.published_id is not None
    return docs.app.documents.pages(source.published_id)


def hits(docs: IndexedFolder, query: str) -> list[tuple[str, int]]:
    """Files and pages with a word. A document of one page has no page in its hits."""
    found = docs.app.search(query, mode="keyword")
    return [(Path(hit.path).name, hit.page or 1) for hit in found]


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_a_scan_is_found_by_its_pages(docs: IndexedFolder):
    path = docs.put("scan.pdf", scan(MILL, PENSTOCK))

    job = docs.index()

    assert Status.DONE is job.status
    assert [("scan.pdf", 2)] == hits(docs, "turbine")
    assert [("scan.pdf", 1)] == hits(docs, "river")
    for page in pages(docs, path):
        assert "tesseract" == page.engine
        assert page.confidence is not None
        assert page.confidence > 80


@on_sqlite
def test_text_pages_of_a_mixed_document_are_stored_at_once_and_each_page_once(docs: IndexedFolder):
    path = docs.put("mixed.pdf", mixed(["A page with a layer", picture(MILL), "The last page"]))
    docs.app.index(path)
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        source = docs.app.documents.source(str(path))
        assert source.building_id is not None
        before = docs.app.documents.pages(source.building_id)
        assert ["completed", "pending", "completed"] == [page.phases["ocr"].status for page in before]
        document = docs.app.documents.generations(source.source_id)[0]
        assert TaskStatus.PENDING is document.phases["ocr"].status
        worker.drain()

    assert [("mixed.pdf", 2)] == hits(docs, "river")
    assert [("mixed.pdf", 3)] == hits(docs, "last")
    assert ["", "tesseract", ""] == [page.engine for page in pages(docs, path)]


@on_sqlite
def test_a_turned_page_is_read(docs: IndexedFolder):
    docs.put("turned.pdf", scan(picture(MILL, turned=180)))

    docs.index()

    assert [("turned.pdf", 1)] == hits(docs, "river")


@on_sqlite
def test_a_picture_without_text_is_said_to_have_none(docs: IndexedFolder):
    path = docs.put("blank.pdf", scan(picture("")))

    job = docs.index()

    assert Status.DONE is job.status
    (page,) = pages(docs, path)
    assert 0 == page.chunk_count
    assert any("no text was recognized" in warning for warning in page.warnings)


@on_sqlite
def test_with_ocr_off_a_scan_fails_with_a_remedy_until_ocr_is_on(docs: IndexedFolder):
    path = docs.put("scan.pdf", scan(MILL))
    text = docs.put("text.pdf", pdf("A page with a layer"))
    off = config.load({}, **config.portable_values(docs.app.settings) | {"ocr": False})
    with Penstock(settings=off) as app:
        docs_off = IndexedFolder(app, docs.folder)
        assert Status.DONE is docs_off.index(text).status
        job = docs_off.index(path)
        assert (Status.FAILED, "ERR_NO_TEXT") == (job.status, job.error_code)
        assert "no text on any of 1 page, OCR needed" == job.error_message
        reason = app.documents.why(path)
        assert "PENSTOCK_OCR=true" in reason.remedy

    assert Status.DONE is docs.index().status
    assert [("scan.pdf", 1)] == hits(docs, "river")


@on_sqlite
def test_other_ocr_settings_read_pictures_again_and_nothing_else(docs: IndexedFolder):
    paths = [docs.put("scan.pdf", scan(MILL)), docs.put("note.md", "A note about the weir")]
    docs.index()
    before = [docs.app.documents.source(str(path)).published_id for path in paths]
    other = config.load({}, **config.portable_values(docs.app.settings) | {"ocr_dpi": 200})

    with Penstock(settings=other) as app:
        IndexedFolder(app, docs.folder).index()

    after = [docs.app.documents.source(str(path)).published_id for path in paths]
    assert [True, False] == [old != new for old, new in zip(before, after, strict=True)]


@on_sqlite
def test_a_kill_in_the_middle_of_a_scan_costs_the_page_in_hand(docs: IndexedFolder):
    count = 12
    path = docs.put("long.pdf", scan(*(picture(f"Page {number}", size=(200, 90)) for number in range(count))))
    settings = docs.app.settings
    receipt = docs.app.index(path)

    assert -signal.SIGKILL == served(settings, receipt.job_id, "recognized, not settled")
    source = docs.app.documents.source(str(path))
    assert source.building_id is not None
    progress = docs.app.documents.progress(source.building_id)
    assert progress is not None
    # Progress is seen meanwhile: all pages but the one in hand are done.
    assert (KILLED_AFTER - 1, count) == (progress.ocr_completed_pages, progress.total_pages)
    assert 0 == served(settings, receipt.job_id, "recognitions counted")

    read = Counter(recognitions(settings.state_dir))
    assert set(range(1, count + 1)) == set(read)
    assert 1 == read.total() - count
    assert Status.DONE is docs.app.job(receipt.job_id).status
    assert count == len(pages(docs, path))
