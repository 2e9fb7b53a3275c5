"""Documents inside documents: attachments and members of archives, below their containers."""

from __future__ import annotations

import shutil

import pytest

from penstock import clock
from penstock.catalog.values import Removal
from penstock.handlers.removal import remove_all
from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import BREAD, FLOUR, WHEEL, clean, ids, paths, read_by
from tests.pipeline.mail_samples import mail
from tests.servers.stores import FIRST, others_later

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


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


def test_an_older_delete_leaves_members_that_a_newer_walk_wants(docs: IndexedFolder):
    docs.put("mail.eml", mail(a__md=FLOUR))
    docs.index()
    asked_at = clock.now()
    docs.index()
    removal = Removal(tenant_id="default", collection="default", path=str(docs.folder), asked_at=asked_at)
    remove_all(docs.app.documents.catalog, removal)
    assert ["mail.eml", "mail.eml/a.md"] == paths(docs)
