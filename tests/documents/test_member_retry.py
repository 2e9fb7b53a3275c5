"""Members of an unchanged container that are to be read: failed ones, lost ones, and with other settings."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.phases import EXTRACTING
from penstock.errors import DocumentDamaged
from penstock.pipeline.extract import structured
from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import BREAD, FLOUR, clean, later, paths, read_by
from tests.pipeline.mail_samples import mail, message, zipped

BROKEN = b"%PDF-1.4 broken"

# Stores do not matter here; see test_members.
pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


def test_failed_attachments_of_an_unchanged_mail_are_read_again_when_asked_for(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__pdf=BROKEN, c__pdf=BROKEN + b"2"))
    docs.index(path)
    before = {one.path: one.job_id for one in docs.app.documents.failures(path)}

    assert ["mail.eml"] == read_by(docs, lambda: docs.index(path))
    expected = ["mail.eml", "mail.eml/b.pdf", "mail.eml/c.pdf"]
    assert expected == read_by(docs, lambda: docs.index(path, retry_failed=True))

    after = {one.path: one.job_id for one in docs.app.documents.failures(path)}
    assert before.keys() == after.keys()
    assert set(before.values()).isdisjoint(after.values())
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)
    assert clean(docs)


def test_an_attachment_that_can_be_read_now_is_indexed(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__srt=b"1\n00:00:01,000 --> 00:00:02,000\nBread rises.\n"))

    def torn(*_: object) -> None:
        raise DocumentDamaged("the file is torn")

    with monkeypatch.context() as faults:
        faults.setattr(structured.SubtitleExtractor, "extract", torn)
        assert Status.FAILED is docs.index(path).status
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)

    job = docs.index(path, retry_failed=True)

    assert (Status.DONE, "unchanged") == (job.status, job.result["outcome"])
    assert ["mail.eml", "mail.eml/a.md", "mail.eml/b.srt"] == paths(docs)
    assert [] == docs.app.documents.failures(path)
    assert clean(docs)


def test_failed_members_of_inner_containers_are_sent_once(docs: IndexedFolder):
    inner = zipped({"good.md": BREAD, "bad.pdf": BROKEN})
    torn = zipped({"x.md": BREAD})[:40]
    path = docs.put(
        "mail.eml", mail(a__zip=inner, b__zip=torn, m__eml=message("x", d__pdf=BROKEN).as_bytes())
    )
    docs.index(path, archives=True)

    read = read_by(docs, lambda: docs.index(path, retry_failed=True))

    assert ["mail.eml", "mail.eml/a.zip/bad.pdf", "mail.eml/b.zip", "mail.eml/m.eml/d.pdf"] == read
    codes = {one.path.rpartition("/")[2]: one.code for one in docs.app.documents.failures(path)}
    assert {"bad.pdf": "ERR_PARSE", "b.zip": "ERR_PARSE", "d.pdf": "ERR_PARSE"} == codes


def test_failed_members_are_read_again_also_where_contents_are_compared(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__pdf=BROKEN))
    docs.index()
    later(path)
    read = read_by(docs, lambda: docs.index(retry_failed=True, checksum=True))
    assert ["mail.eml", "mail.eml/b.pdf"] == read
    later(path)
    assert ["mail.eml"] == read_by(docs, lambda: docs.index(path))
    assert [] == read_by(docs, docs.index)


def test_a_member_whose_job_was_lost_is_read_by_a_request_for_its_container(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__md=BREAD))
    with docs.manual_worker() as worker:
        receipt = docs.app.index(path)
        worker.run_jobs(1)
        docs.app.cancel(receipt.job_id)
    assert ["mail.eml"] == paths(docs)

    assert Status.DONE is docs.index(path).status

    assert ["mail.eml", "mail.eml/a.md", "mail.eml/b.md"] == paths(docs)


def extracted(docs: IndexedFolder) -> list[str]:
    """The fingerprint of the extracted entities for each document; empty without entities."""
    return [getattr(source.fingerprints, EXTRACTING) for source in docs.app.documents.sources()]


def test_entities_asked_for_an_unchanged_mail_are_those_of_its_attachments_too(docs: IndexedFolder):
    text = b"Ada Miller built the mill in Holm. Ada Miller lives in Holm."
    path = docs.put("mail.eml", mail(a__md=text))
    docs.index()
    for asked in (path, None):
        docs.index(asked, graph=True)
        found = {
            source.path: getattr(source.fingerprints, EXTRACTING) for source in docs.app.documents.sources()
        }
        assert all(found.values()), found
        assert [] == read_by(docs, lambda: docs.index(graph=True))
        docs.index(asked, graph=False)
        found = {
            source.path: getattr(source.fingerprints, EXTRACTING) for source in docs.app.documents.sources()
        }
        assert not any(found.values()), found
