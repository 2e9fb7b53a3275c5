"""Documents inside documents: attachments and members of archives, below their containers."""

from __future__ import annotations

import shutil

import pytest

from penstock import clock
from penstock.catalog.values import Removal
from penstock.handlers import container_members
from penstock.handlers.removal import remove_all
from penstock.items import ARRIVAL
from penstock.job import Job, Status
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import BREAD, FLOUR, WHEEL, clean, ids, paths, read_by
from tests.pipeline.mail_samples import mail
from tests.pipeline.sample_documents import pdf

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)


def test_attachments_are_documents_below_their_mail(docs: IndexedFolder):
    docs.put("inbox/mail.eml", mail("Grist", "See there.", report__md=FLOUR, notes__txt=BREAD))

    job = docs.index()

    assert Status.DONE is job.status
    assert ["inbox/mail.eml", "inbox/mail.eml/notes.txt", "inbox/mail.eml/report.md"] == paths(docs)
    assert ["report.md"] == docs.found("white", mode="keyword")
    assert clean(docs)


def test_an_unchanged_container_is_not_read_again(docs: IndexedFolder):
    docs.put("mail.eml", mail(report__md=FLOUR))
    docs.index()

    assert [] == read_by(docs, docs.index)
    assert "unchanged" == docs.index().result["outcome"]


def test_a_changed_container_changes_exactly_its_members(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(same__md=FLOUR, edited__txt=BREAD, gone__txt=WHEEL))
    docs.index()
    before = ids(docs)
    path.write_bytes(mail(same__md=FLOUR, edited__txt=b"Bread falls.", new__txt=b"Grain."))

    read = read_by(docs, docs.index)

    assert ["mail.eml", "mail.eml/edited.txt", "mail.eml/new.txt"] == read
    after = ids(docs)
    assert ["mail.eml", "mail.eml/edited.txt", "mail.eml/new.txt", "mail.eml/same.md"] == sorted(after)
    assert {name: before[name] for name in after if "new" not in name}.items() <= after.items()
    assert [] == read_by(docs, docs.index)
    assert clean(docs)


def test_all_attachments_may_go(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    path.write_bytes(mail())
    docs.index()
    assert ["mail.eml"] == paths(docs)


def test_members_go_with_their_container(docs: IndexedFolder):
    path = docs.put("box/mail.eml", mail(a__md=FLOUR))
    docs.put("other.md", WHEEL)
    docs.index()
    path.unlink()
    docs.index()
    assert ["other.md"] == paths(docs)


def test_a_deleted_document_takes_its_members_along(docs: IndexedFolder):
    docs.put("box/mail.eml", mail(a__md=FLOUR))
    docs.put("box/mail2.eml", mail("Another", a__md=FLOUR))
    docs.index()
    docs.run("delete_document", "delete", {"document_id": ids(docs)["box/mail.eml"]})
    assert ["box/mail2.eml", "box/mail2.eml/a.md"] == paths(docs)
    docs.run("file", "delete", {"file_path": str(docs.folder / "box/mail2.eml")})
    assert [] == paths(docs)
    docs.index(force=True)
    assert 4 == len(paths(docs))
    docs.run("folder", "delete", {"folder_path": str(docs.folder / "box")})
    assert [] == paths(docs)


def test_a_deleted_tenant_takes_members_along(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    docs.run("delete_tenant", "delete", {"tenant_id_to_delete": "default"})
    assert [] == paths(docs)


@pytest.mark.parametrize("new", ["a.eml", "z.eml", "deep/mail.eml"])
def test_a_moved_container_keeps_the_ids_of_its_members(docs: IndexedFolder, new: str):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__txt=BREAD))
    docs.put("m.md", WHEEL)
    docs.index()
    before = ids(docs)
    (docs.folder / new).parent.mkdir(exist_ok=True)
    path.rename(docs.folder / new)

    assert [] == read_by(docs, docs.index)

    assert {name.replace("mail.eml", new, 1): found for name, found in before.items()} == ids(docs)
    assert [] == read_by(docs, docs.index)
    assert clean(docs)


def test_a_moved_container_with_a_failed_member_is_read_again(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__pdf=b"%PDF-1.4 broken"))
    docs.put("m.md", WHEEL)
    docs.index()
    path.rename(docs.folder / "new.eml")
    docs.index()
    assert ["m.md", "new.eml", "new.eml/a.md"] == paths(docs)
    (failed,) = docs.app.documents.failures(docs.folder)
    assert failed.path.endswith("new.eml/b.pdf")


def test_an_announced_rename_takes_members_along(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    before = ids(docs)
    path.rename(docs.folder / "new.eml")
    docs.run(
        "rename",
        "update",
        {"old_path": str(path), "new_path": str(docs.folder / "new.eml"), "is_folder": False},
    )
    assert {"new.eml": before["mail.eml"], "new.eml/a.md": before["mail.eml/a.md"]} == ids(docs)
    assert clean(docs)


def test_a_container_renamed_to_another_type_loses_its_members(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    path.rename(docs.folder / "mail.txt")
    new = {"old_path": str(path), "new_path": str(docs.folder / "mail.txt"), "is_folder": False}
    docs.run("rename", "update", new)
    assert ["mail.txt"] == paths(docs)
    assert clean(docs)


def test_a_moved_folder_takes_members_along(docs: IndexedFolder):
    docs.put("old/mail.eml", mail(a__md=FLOUR))
    docs.index()
    before = ids(docs)
    (docs.folder / "old").rename(docs.folder / "new")
    docs.index()
    assert {name.replace("old", "new"): found for name, found in before.items()} == ids(docs)


def test_a_saved_copy_does_not_take_the_place_of_the_attachment(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    before = ids(docs)
    docs.put("a.md", FLOUR)
    docs.index()
    assert before == {name: found for name, found in ids(docs).items() if name != "a.md"}
    assert 3 == len(ids(docs))


def test_a_failing_attachment_fails_alone_and_is_remembered(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR, b__pdf=b"%PDF-1.4 broken"))

    job = docs.index()

    assert Status.FAILED is job.status
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)
    (failed,) = docs.app.documents.failures(docs.folder)
    assert (str(docs.folder / "mail.eml/b.pdf"), "ERR_PARSE") == (failed.path, failed.code)
    assert [] == read_by(docs, docs.index)
    assert ["mail.eml/b.pdf"] == read_by(docs, lambda: docs.index(retry_failed=True))
    assert clean(docs)


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


def test_what_was_left_out_is_named_in_the_result(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(b__exe=b"MZ\x90\x00"))
    job = docs.index(path)
    assert ["1 file inside it is left out by a rule: b.exe"] == job.result["warnings"]


# Long members, rebuilding, delivered files.


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


# Races and crashes.


def test_a_container_that_becomes_a_folder(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__md=BREAD))
    docs.index()
    path.unlink()
    docs.put("mail.eml/a.md", b"Grain of the field.")
    docs.index()
    assert ["mail.eml/a.md"] == paths(docs)
    assert ["a.md"] == docs.found("grain", mode="keyword")
    shutil.rmtree(path)
    docs.put("mail.eml", mail(b__md=BREAD))
    docs.index()
    assert ["mail.eml", "mail.eml/b.md"] == paths(docs)
    assert clean(docs)


def test_a_folder_that_becomes_a_file(docs: IndexedFolder):
    for name in ("sub", "mail.eml"):
        docs.put(f"{name}/a.md", FLOUR)
    docs.index()
    for name in ("sub", "mail.eml"):
        shutil.rmtree(docs.folder / name)
    docs.put("sub", BREAD)
    docs.put("mail.eml", mail())
    docs.index()
    assert ["mail.eml", "sub"] == paths(docs)
    assert clean(docs)


def test_a_member_whose_job_was_lost_is_read_by_the_next_walk(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__md=FLOUR, b__md=BREAD))
    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder)
        worker.run_jobs(1)
        worker.run_jobs(1)
        docs.app.cancel(receipt.job_id)
    assert ["mail.eml"] == paths(docs)
    assert "waiting" == docs.app.documents.why(str(path / "a.md")).verdict

    assert ["mail.eml/a.md", "mail.eml/b.md"] == read_by(docs, docs.index)

    assert ["mail.eml", "mail.eml/a.md", "mail.eml/b.md"] == paths(docs)


def test_a_job_that_dies_before_the_container_is_stored_starts_again(
    docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    docs.put("mail.eml", mail(a__md=FLOUR))
    warnings = container_members.ContainerMembers._warnings

    def died(_: object) -> tuple[str, ...]:
        monkeypatch.setattr(container_members.ContainerMembers, "_warnings", warnings)
        raise KeyboardInterrupt

    with docs.manual_worker() as worker:
        docs.app.index(docs.folder)
        worker.run_jobs(1)
        monkeypatch.setattr(container_members.ContainerMembers, "_warnings", died)
        worker.run_jobs(1)
        assert [] == paths(docs)
    (docs.folder / "mail.eml").unlink()
    docs.put("m.md", WHEEL)
    docs.index()
    assert ["m.md"] == paths(docs)


def test_an_older_delete_leaves_members_that_a_newer_walk_wants(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    asked_at = clock.now()
    docs.index()
    removal = Removal(tenant_id="default", collection="default", path=str(docs.folder), asked_at=asked_at)
    remove_all(docs.app.documents.catalog, removal)
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)


def test_one_job(docs: IndexedFolder):
    """The job of a container waits for its members, and is a child of the walk."""
    docs.put("mail.eml", mail(a__md=FLOUR))
    job = docs.index()
    (container,) = docs.app.jobs(item_type="file", parent_id=job.queue_id)
    (member,) = docs.app.jobs(item_type="file", parent_id=container.queue_id)
    assert str(docs.folder / "mail.eml/a.md") == member.payload["file_path"]
    assert isinstance(container, Job)
    assert container.finished_at is not None
    assert member.finished_at is not None
    assert container.finished_at >= member.finished_at
