"""Jobs of documents inside documents: results, tasks, rebuilding, delivered files, crashes."""

from __future__ import annotations

import io
import shutil

import pytest
from pypdfium2 import PdfDocument

from penstock.handlers import containers
from penstock.queue.job import Job, Status
from penstock.queue.payloads import ARRIVAL
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import FLOUR, WHEEL, paths, read_by
from tests.pipeline.mail_samples import mail
from tests.pipeline.sample_documents import pdf

# Stores do not matter here; see test_members.
pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


def test_why_explains_members(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR, b__exe=b"MZ\x90\x00", c__pdf=b"%PDF-1.4 broken"))
    docs.index()

    def verdict(name: str) -> tuple[str, str]:
        reason = docs.app.documents.why(str(docs.folder / "mail.eml" / name))
        return reason.verdict, reason.cause

    assert "indexed" == verdict("a.md")[0]
    assert ("skipped", "binary: files of its type hold no text") == verdict("b.exe")
    assert "failed" == verdict("c.pdf")[0]
    assert ("unknown", True) == (verdict("d.txt")[0], "no file of this name" in verdict("d.txt")[1])


def test_what_was_left_out_is_named_in_the_result_and_the_warnings(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(b__exe=b"MZ\x90\x00"))
    job = docs.index(path)
    assert ["1 file inside it is left out by a rule: b.exe"] == job.result["warnings"]
    assert ("1 file inside it is left out by a rule: b.exe",) == docs.app.documents.why(path).warnings


def test_the_pages_of_a_long_attachment_are_read_by_tasks(docs: IndexedFolder):
    long = pdf(*(f"Words of page {number}, water{number} too." for number in range(1, 61)))
    docs.put("mail.eml", mail(a__pdf=long))
    job = docs.index()
    assert Status.DONE is job.status
    (hit,) = docs.app.search("water57", mode="keyword")
    assert (str(docs.folder / "mail.eml/a.pdf"), 57) == (hit.path, hit.page)


def test_a_rebuild_reads_all_members(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    assert ["mail.eml", "mail.eml/a.md"] == read_by(docs, lambda: docs.index(force=True))
    assert ["mail.eml"] == read_by(docs, lambda: docs.index(checksum=True))
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)


def test_another_chunk_size_reaches_the_members(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    read = read_by(docs, lambda: docs.index(chunk_size=64))
    assert ["mail.eml", "mail.eml/a.md"] == read
    assert [] == read_by(docs, lambda: docs.index(chunk_size=64))


def test_members_of_a_delivered_file_are_known_by_its_final_path(docs: IndexedFolder):
    source = docs.put("in/x", mail(a__md=FLOUR, b__pdf=pdf(*(f"Page {n} wheel{n}." for n in range(1, 41)))))
    final = docs.folder / "done" / "mail.eml"
    job = docs.run(
        "file",
        "ingest",
        {"file_path": str(final)},
        metadata={ARRIVAL: {"read_from": str(source), "tags": ["mill"]}},
    )
    assert Status.DONE is job.status
    assert ["done/mail.eml", "done/mail.eml/a.md", "done/mail.eml/b.pdf"] == paths(docs)
    (hit,) = docs.app.search("wheel40", mode="keyword")
    assert (str(final / "b.pdf"), ("mill",)) == (hit.path, hit.tags)
    final.parent.mkdir()
    shutil.move(source, final)
    assert [] == read_by(docs, lambda: docs.index(docs.folder / "done"))
    assert 3 == len(paths(docs))


def test_a_job_that_dies_before_the_container_is_stored_starts_again(
    docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    docs.put("mail.eml", mail(a__md=FLOUR))
    warnings = containers.ContainerMembers._warnings

    def died(_: object) -> tuple[str, ...]:
        monkeypatch.setattr(containers.ContainerMembers, "_warnings", warnings)
        raise KeyboardInterrupt

    with docs.manual_worker() as worker:
        docs.app.index(docs.folder)
        worker.run_jobs(1)
        monkeypatch.setattr(containers.ContainerMembers, "_warnings", died)
        worker.run_jobs(1)
        assert [] == paths(docs)
    (docs.folder / "mail.eml").unlink()
    docs.put("m.md", WHEEL)
    docs.index()
    assert ["m.md"] == paths(docs)


def test_the_job_of_a_container_waits_for_its_members(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    job = docs.index()
    (container,) = docs.app.jobs(item_type="file", parent_id=job.queue_id)
    (member,) = docs.app.jobs(item_type="file", parent_id=container.queue_id)
    assert str(docs.folder / "mail.eml/a.md") == member.payload["file_path"]
    assert isinstance(container, Job)
    assert container.finished_at is not None
    assert member.finished_at is not None
    assert container.finished_at >= member.finished_at


def test_files_embedded_in_a_pdf_are_documents_below_it(docs: IndexedFolder):
    docs.put("paper.pdf", with_attachment(pdf("Words of the paper."), "../data/table.csv", b"a,b\nwheel,2\n"))

    job = docs.index()

    assert Status.DONE is job.status
    assert ["paper.pdf", "paper.pdf/table.csv"] == paths(docs)
    assert ["table.csv"] == docs.found("wheel", mode="keyword")
    assert [] == read_by(docs, docs.index)


def test_the_job_of_a_long_pdf_fails_with_a_file_inside_it(docs: IndexedFolder):
    """The file inside fails while tasks read the other pages."""
    long = pdf(*(f"Words of page {number}, water{number} too." for number in range(1, 61)))
    path = docs.put("paper.pdf", with_attachment(long, "broken.pdf", b"%PDF-1.4 broken"))
    receipt = docs.app.index(path)
    with docs.manual_worker(ocr=True) as worker:
        worker.run_jobs()
        worker.drain()

    job = docs.app.job(receipt.job_id)
    assert (Status.FAILED, "ERR_CHILDREN_FAILED", 1) == (job.status, job.error_code, job.children_failed)
    assert 60 == job.result["pages"]
    assert "indexed" == docs.app.documents.why(path).verdict
    assert [57] == [hit.page for hit in docs.app.search("water57", mode="keyword")]


def with_attachment(data: bytes, name: str, attached: bytes) -> bytes:
    document = PdfDocument(data)
    document.new_attachment(name).set_data(attached)
    out = io.BytesIO()
    document.save(out)
    document.close()
    return out.getvalue()


def test_a_container_fails_with_a_member_that_fails_before_it_ends(
    docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    path = docs.put("mail.eml", mail(a__pdf=b"%PDF-1.4 broken"))
    warnings = containers.ContainerMembers._warnings

    def after_the_member(members: containers.ContainerMembers) -> tuple[str, ...]:
        monkeypatch.setattr(containers.ContainerMembers, "_warnings", warnings)
        with docs.manual_worker() as other:
            other.run_jobs(1)
        return warnings(members)

    monkeypatch.setattr(containers.ContainerMembers, "_warnings", after_the_member)
    with docs.manual_worker() as worker:
        receipt = docs.app.index(path)
        worker.drain()
    job = docs.app.job(receipt.job_id)
    assert (Status.FAILED, "ERR_CHILDREN_FAILED") == (job.status, job.error_code)
    assert 1 == job.result["chunks"]
    assert ["mail.eml"] == paths(docs)
