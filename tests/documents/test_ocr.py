"""Scans: pictures of pages are recognized by tasks of lane ocr and found by search."""

from __future__ import annotations

import io
import shutil
import signal
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.rules import publication
from penstock.catalog.values import NewPage, PageState, Phase, TaskRequest, TaskStatus
from penstock.cli.progress import JobProgress, PageProgress
from penstock.database.factory import open_catalog
from penstock.errors import UnknownDocument
from penstock.handlers.source_files import PageFiles
from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.ocr.pages import OcrSetup
from penstock.pipeline.ocr.protocol import folders
from penstock.queue.job import Status
from penstock.worker.lanes import DocumentTools, Lanes
from penstock.worker.shared_state import SharedState
from penstock.worker.upkeep import OverdueEnder
from tests.documents.conftest import IndexedFolder
from tests.documents.killed_worker import KILLED_AFTER, recognitions, recognizers, served
from tests.pipeline.sample_documents import pdf
from tests.pipeline.scanned_documents import mixed, picture, scan
from tests.pipeline.vision_server import vision_server

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
        assert ["completed", "pending", "completed"] == [page.phases[Phase.OCR].status for page in before]
        document = docs.app.documents.generations(source.source_id)[0]
        assert TaskStatus.PENDING is document.phases[Phase.OCR].status
        (task,) = worker.catalog.claim(TaskRequest(Phase.OCR, "hand", 1, needs_ocr=True))
        (document,) = docs.app.documents.generations(source.source_id)
        assert TaskStatus.PROCESSING is document.phases[Phase.OCR].status
        worker.catalog.settle([publication.released(task)])
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
    # The page was read by a task, after the document was written.
    (warning,) = docs.app.documents.source(str(path)).properties.warnings
    assert "no text was recognized" in warning
    assert (warning,) == docs.app.documents.why(path).warnings


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
        assert "no text, OCR needed" == job.error_message
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


@pytest.mark.long
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


@on_sqlite
def test_only_the_share_of_the_processes_recognizes(docs: IndexedFolder):
    path = docs.put("long.pdf", scan(*(picture(f"Page {number}", size=(200, 90)) for number in range(8))))
    settings = config.load({}, **config.portable_values(docs.app.settings) | {"ocr_workers": 1})
    receipt = docs.app.index(path)

    assert 0 == served(settings, receipt.job_id, "recognitions counted", processes=3)

    assert 8 == len(recognitions(settings.state_dir))
    assert 1 == len(set(recognizers(settings.state_dir)))


@on_sqlite
def test_a_process_without_the_share_leaves_pictures_to_others(docs: IndexedFolder, tmp_path: Path):
    docs.put("mixed.pdf", mixed(["A page with a layer", picture(MILL)]))
    docs.app.index(docs.folder / "mixed.pdf")
    state = SharedState.create(tmp_path / "w1.state")
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        tools = DocumentTools(worker.catalog, worker.phases)
        lanes = Lanes(tools, docs.app.queue, state, "w1", tuple(Phase), recognizes=False)
        assert not lanes.run_piece(lambda _: nullcontext())
        with worker.catalog.snapshot() as snapshot:
            assert 1 == snapshot.open_tasks(Phase.OCR)
        lanes = Lanes(tools, docs.app.queue, state, "w2", tuple(Phase))
        assert lanes.run_piece(lambda _: nullcontext())
    state.close(remove=True)
    assert [("mixed.pdf", 2)] == hits(docs, "river")


@on_sqlite
def test_pages_are_shown_exported_and_kept_as_files_until_their_document_is_gone(
    docs: IndexedFolder, tmp_path: Path
):
    kept = tmp_path / "kept"
    settings = config.load({}, **config.portable_values(docs.app.settings) | {"pages_dir": str(kept)})
    path = docs.put("deep/mixed.pdf", mixed(["A page with a layer", picture(MILL)]))
    docs.put("note.md", "# Mill\n\n" + "\n\n".join(f"Paragraph {number} of it." * 30 for number in range(9)))
    with Penstock(settings=settings) as app:
        folder = IndexedFolder(app, docs.folder)
        folder.index()
        page = app.documents.page(str(path), 2)
        assert (MILL, "tesseract", True) == (page.text, page.engine, page.exact)
        assert page.confidence is not None
        assert page.page_file_path is not None
        assert f"{MILL}\n" == Path(page.page_file_path).read_text()
        assert kept in Path(page.page_file_path).parents
        assert page.page_file_path.endswith("2_nohf.md")
        layer = app.documents.page(str(path), 1)
        assert ("A page with a layer", None, None) == (layer.text, layer.engine, layer.page_file_path)
        with pytest.raises(UnknownDocument, match="no page 3: it has 2 pages"):
            app.documents.page(str(path), 3)

        done = app.documents.export(tmp_path / "out")
        assert (2, 3, 0) == (done.documents, done.pages, done.unread)
        assert f"{MILL}\n" == (tmp_path / "out/deep/mixed.pdf/0002.md").read_text()
        assert (docs.folder / "note.md").read_text() == (tmp_path / "out/note.md/0001.md").read_text().strip()

        path.unlink()
        folder.index()
        folder.index()  # files are removed after the job, at the latest before the next one
    assert [] == list(kept.iterdir())


@on_sqlite
def test_no_file_stays_of_a_page_read_for_a_dropped_document(
    docs: IndexedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = tmp_path / "kept"
    docs.app.index(docs.put("scan.pdf", scan(MILL)))
    state = SharedState.create(tmp_path / "w1.state")
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        worker.phases.page_files = PageFiles(str(kept))
        keep = PageFiles.keep

        def keep_late(files: PageFiles, source_id: str, content_hash: str, page: NewPage) -> NewPage:
            """The document is dropped, and its files removed, just before this one is written."""
            with worker.catalog.snapshot() as snapshot:
                (document,) = snapshot.generations(source_id)
            assert worker.catalog.drop(document.document_id, "cancelled")
            written = keep(files, source_id, content_hash, page)
            assert list(kept.rglob("*_nohf.md"))
            return written

        monkeypatch.setattr(PageFiles, "keep", keep_late)
        lanes = Lanes(DocumentTools(worker.catalog, worker.phases), docs.app.queue, state, "w1", tuple(Phase))
        assert lanes.run_piece(lambda _: nullcontext())
    state.close(remove=True)

    assert [] == list(kept.rglob("*"))


@on_sqlite
def test_a_page_whose_file_cannot_be_written_is_indexed_with_a_warning(docs: IndexedFolder, tmp_path: Path):
    (tmp_path / "taken").write_text("a file, not a directory")
    settings = config.load(
        {}, **config.portable_values(docs.app.settings) | {"pages_dir": str(tmp_path / "taken")}
    )
    path = docs.put("scan.pdf", scan(MILL))
    with Penstock(settings=settings) as app:
        IndexedFolder(app, docs.folder).index()
        page = app.documents.page(str(path), 1)
    assert (MILL, None) == (page.text, page.page_file_path)
    assert ["its Markdown could not be written below"] == [warning[:39] for warning in page.warnings]


@on_sqlite
def test_recognized_pages_are_told(docs: IndexedFolder):
    path = docs.put("scan.pdf", scan(MILL))
    job = docs.index()
    cause = docs.app.documents.why(path).cause
    assert cause.startswith("1 chunk of 1 page; text of 1 page recognized, mean confidence 9")
    assert 1 == docs.app.documents.recognized(job).pages


@on_sqlite
def test_the_progress_of_a_scan_counts_its_pages(docs: IndexedFolder):
    path = docs.put("scan.pdf", mixed(["A page with a layer", picture(MILL), picture(PENSTOCK)]))
    receipt = docs.app.index(path)
    pages_read = PageProgress(lambda: open_catalog(docs.app.settings))
    follower = JobProgress(docs.app, receipt.job_id, page_progress=pages_read)
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        seen = follower.sample()
        assert ("1 of 3 pages", 1 / 3) == (seen.message, seen.share)
        worker.drain()
    follower.close()


@on_sqlite
def test_a_scan_that_makes_progress_is_not_ended_for_its_timeout(
    docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    path = docs.put("scan.pdf", scan(MILL, PENSTOCK))
    receipt = docs.app.index(path)
    queue = docs.app.queue
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        job = docs.app.job(receipt.job_id)
        started, later = job.updated_at, timedelta(seconds=job.timeout_s)
        tasks = worker.catalog.claim(TaskRequest(Phase.OCR, "hand", 1, needs_ocr=True))
        worker.catalog.settle(worker.phases.run(Phase.OCR, tasks), now=started + later)
        monkeypatch.setattr(queue, "now", lambda: started + 1.5 * later)
        OverdueEnder(queue, worker.catalog).run()
        assert not docs.app.job(receipt.job_id).ended
        monkeypatch.setattr(queue, "now", lambda: started + 2.5 * later)
        OverdueEnder(queue, worker.catalog).run()
    assert Status.FAILED is docs.app.job(receipt.job_id).status


@on_sqlite
def test_a_picture_is_a_document(docs: IndexedFolder):
    out = io.BytesIO()
    picture(MILL).save(out, "PNG")
    docs.put("photo.png", out.getvalue())

    docs.index()

    assert [("photo.png", 1)] == hits(docs, "river")


@on_sqlite
def test_pictures_are_sent_to_an_endpoint(docs: IndexedFolder):
    path = docs.put("scan.pdf", mixed(["A page with a layer", picture("?")]))
    with vision_server("# The mill\n\nA **weir** above it.") as server:
        values = {"ocr_endpoint_url": server.url, "ocr_endpoint_key": "sesame"}
        settings = config.load({}, **config.portable_values(docs.app.settings) | values)
        with Penstock(settings=settings) as app:
            IndexedFolder(app, docs.folder).index()
            page = app.documents.page(str(path), 2)

    assert ("# The mill\n\nA **weir** above it.", "dots.ocr") == (page.text, page.engine)
    assert ["Bearer sesame"] == server.keys
    assert [("scan.pdf", 2)] == hits(docs, "weir")


@on_sqlite
def test_a_page_waits_for_an_endpoint_that_is_down_without_spending_retries(docs: IndexedFolder):
    path = docs.put("scan.pdf", scan(MILL))
    endpoint = EndpointOptions(url="http://127.0.0.1:9/v1", model="m", timeout_s=1)
    docs.app.index(path)
    with docs.manual_worker(ocr=OcrSetup(endpoint=endpoint)) as worker:
        worker.run_jobs()
        for attempt in range(6):
            now = clock.now() + timedelta(minutes=attempt)
            (task,) = worker.catalog.claim(TaskRequest(Phase.OCR, "hand", 1, needs_ocr=True), now=now)
            assert task.retry_count <= 1
            worker.catalog.settle(worker.phases.run(Phase.OCR, [task]), now=now)
    source = docs.app.documents.source(str(path))
    assert source.building_id is not None
    (page,) = docs.app.documents.pages(source.building_id)
    assert "ERR_SERVICE_DOWN" in (page.error or "")


@on_sqlite
def test_a_page_that_lacks_a_language_is_read_once_it_is_installed(docs: IndexedFolder, tmp_path: Path):
    models = tmp_path / "models"
    models.mkdir()
    values = {"ocr_languages": "xyz", "ocr_tessdata_dir": str(models)}
    settings = config.load({}, **config.portable_values(docs.app.settings) | values)
    path = docs.put("scan.pdf", scan(MILL))
    with Penstock(settings=settings) as app:
        folder = IndexedFolder(app, docs.folder)
        job = folder.index(path)
        assert (Status.FAILED, "ERR_COMPONENT_MISSING") == (job.status, job.error_code)
        assert "language 'xyz' is not installed" in (job.error_message or "")
        assert "Put xyz.traineddata of the Tesseract project into" in (job.error_message or "")
        # It is remembered: the folder has nothing to do.
        assert 1 == (folder.index().result or {}).get("failed_before")

        (english,) = [file for each in folders() for file in Path(each).glob("eng.traineddata")][:1]
        shutil.copy(english, models / "xyz.traineddata")
        assert Status.DONE is folder.index().status
    assert [("scan.pdf", 1)] == hits(docs, "river")
