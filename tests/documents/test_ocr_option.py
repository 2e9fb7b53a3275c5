"""OCR switched off or on for one request: what is read, and what a later request reads again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import paths, read_by
from tests.pipeline.mail_samples import mail
from tests.pipeline.sample_documents import pdf
from tests.pipeline.scanned_documents import mixed, picture, scan

MILL = "The old water mill\nstands by the river"

# Stores do not matter here.
pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


def drawn(text: str) -> bytes:
    out = io.BytesIO()
    picture(text).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def folder(docs: IndexedFolder) -> IndexedFolder:
    """A folder with a scan, a picture, a document of both kinds of pages, one with text, and a note."""
    docs.put("scan.pdf", scan(MILL))
    docs.put("sign.png", drawn(MILL))
    docs.put("mixed.pdf", mixed(["A layer about wheels", picture(MILL)]))
    docs.put("text.pdf", pdf("A layer about bread"))
    docs.put("note.md", "A note about the weir")
    return docs


def test_pictures_that_were_left_are_read_by_the_next_run_with_ocr_and_nothing_else(folder: IndexedFolder):
    job = folder.index(ocr=False)

    assert Status.FAILED is job.status
    assert ["mixed.pdf", "note.md", "text.pdf"] == paths(folder)
    failed = {Path(one.path).name: one for one in folder.app.documents.failures(folder.folder)}
    assert ["scan.pdf", "sign.png"] == sorted(failed)
    assert {"ERR_NO_TEXT"} == {one.code for one in failed.values()}
    assert all("Index again with --ocr" in one.remedy for one in failed.values())
    (missing,) = folder.app.documents.why(str(folder.folder / "mixed.pdf")).missing
    assert "page 2: ERR_NO_TEXT: no text, OCR needed. Remedy: Index again with --ocr." == missing
    assert [] == read_by(folder, lambda: folder.index(ocr=False))

    read = read_by(folder, folder.index)

    assert ["mixed.pdf", "scan.pdf", "sign.png"] == read
    assert ["mixed.pdf", "scan.pdf", "sign.png"] == sorted(folder.found("river", mode="keyword"))
    assert [] == folder.app.documents.failures(folder.folder)
    assert [] == read_by(folder, folder.index)


def test_recognized_text_stays_where_a_later_request_wants_no_ocr(folder: IndexedFolder):
    folder.index()
    assert [] == read_by(folder, lambda: folder.index(ocr=False))
    assert ["scan.pdf"] == read_by(folder, lambda: folder.index(folder.folder / "scan.pdf", ocr=False))
    assert 3 == len(folder.found("river", mode="keyword"))
    assert [] == read_by(folder, folder.index)

    other = config.load({}, **config.portable_values(folder.app.settings) | {"ocr_dpi": 200})
    with Penstock(settings=other) as app:
        docs = IndexedFolder(app, folder.folder)
        assert [] == read_by(docs, lambda: docs.index(ocr=False))

    # Reading all again is another matter. Files that fail then keep their former versions in search.
    folder.index(ocr=False, force=True)
    assert ["scan.pdf", "sign.png"] == sorted(folder.found("river", mode="keyword"))


def test_a_changed_scan_without_ocr_keeps_its_former_version(docs: IndexedFolder):
    path = docs.put("scan.pdf", scan(MILL))
    docs.index()
    docs.put("scan.pdf", scan("Bread rises slowly"))
    job = docs.index(path, ocr=False)
    assert (Status.FAILED, "ERR_NO_TEXT") == (job.status, job.error_code)
    assert ["scan.pdf"] == docs.found("river", mode="keyword")
    docs.index()
    assert [["scan.pdf"], []] == [docs.found(word, mode="keyword") for word in ("slowly", "river")]


def test_a_request_may_want_ocr_where_the_setting_is_off(folder: IndexedFolder):
    off = config.load({}, **config.portable_values(folder.app.settings) | {"ocr": False})
    with Penstock(settings=off) as app:
        docs = IndexedFolder(app, folder.folder)
        docs.index()
        assert ["mixed.pdf", "note.md", "text.pdf"] == paths(docs)

        assert ["mixed.pdf", "scan.pdf", "sign.png"] == read_by(docs, lambda: docs.index(ocr=True))

        assert 3 == len(docs.found("river", mode="keyword"))
        assert [] == read_by(docs, docs.index)
    assert [] == read_by(folder, folder.index)


def test_attachments_follow_the_request_for_their_mail(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__pdf=scan(MILL), b__pdf=pdf("A layer about bread")))
    docs.index(path, ocr=False)
    assert ["mail.eml", "mail.eml/b.pdf"] == paths(docs)

    assert ["mail.eml", "mail.eml/a.pdf"] == read_by(docs, lambda: docs.index(path, ocr=True))

    assert ["mail.eml", "mail.eml/a.pdf", "mail.eml/b.pdf"] == paths(docs)


def test_the_pages_of_a_long_document_follow_its_request(docs: IndexedFolder):
    long = [f"Page {number} has a layer" for number in range(1, 40)]
    docs.put("long.pdf", mixed([*long, picture(MILL)]))
    assert Status.DONE is docs.index(ocr=False).status
    source = docs.app.documents.source(str(docs.folder / "long.pdf"))
    assert source.partial
    assert ["long.pdf"] == read_by(docs, docs.index)
    assert ["long.pdf"] == docs.found("river", mode="keyword")


def test_another_language_reads_documents_with_pictures_again_and_no_others(folder: IndexedFolder):
    folder.index()
    other = config.load({}, **config.portable_values(folder.app.settings) | {"ocr_dpi": 200})
    with Penstock(settings=other) as app:
        docs = IndexedFolder(app, folder.folder)
        assert ["mixed.pdf", "scan.pdf", "sign.png"] == read_by(docs, docs.index)
