"""Archives as folders, and containers inside containers."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from penstock.handlers import members
from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder
from tests.documents.member_checks import BREAD, FLOUR, WHEEL, clean, ids, later, paths, read_by
from tests.pipeline.mail_samples import encrypted_zip, mail, message, tarred, zipped

# Stores do not matter here; see test_members.
pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz"])
def test_archives_are_skipped_unless_asked_for(docs: IndexedFolder, name: str):
    inside = {"docs/a.md": FLOUR, "b.txt": BREAD, "node_modules/c.txt": WHEEL, ".git/config": WHEEL}
    path = docs.put(name, zipped(inside) if name == "x.zip" else tarred(inside, "gz" if "gz" in name else ""))
    docs.put("m.md", WHEEL)

    assert {"archive": 1} == docs.index().result["skipped_by"]
    assert "--archives" in docs.app.documents.why(str(path)).cause
    job = docs.index(path)
    assert (Status.FAILED, "ERR_ARCHIVE") == (job.status, job.error_code)
    assert ["m.md"] == paths(docs)

    docs.index(archives=True)
    expected = ["m.md", name, f"{name}/b.txt", f"{name}/docs/a.md"]
    assert expected == paths(docs)
    assert [] == read_by(docs, lambda: docs.index(archives=True))
    # A narrower request removes nothing.
    assert [] == read_by(docs, docs.index)
    assert expected == paths(docs)
    later(path)
    docs.index(archives=True)
    assert expected == paths(docs)
    assert clean(docs)


def test_a_compressed_text_is_one_document(docs: IndexedFolder):
    docs.put("notes.txt.gz", gzip.compress(BREAD))
    docs.put("program.exe.gz", gzip.compress(b"x"))
    docs.index()
    assert ["notes.txt.gz"] == docs.found("bread", mode="keyword")
    assert ["notes.txt.gz"] == paths(docs)


def test_containers_inside_containers(docs: IndexedFolder):
    packed = zipped({"y.eml": mail(x__txt=WHEEL)})
    inner = message("Inner", "Bread rises slowly.", leaf__md=FLOUR, z__zip=packed)
    docs.put("all.zip", zipped({"mails/one.eml": mail(inner=inner)}))

    docs.index(archives=True)

    one = "all.zip/mails/one.eml"
    expected = [
        "all.zip",
        one,
        f"{one}/Inner.eml",
        f"{one}/Inner.eml/leaf.md",
        f"{one}/Inner.eml/z.zip",
        f"{one}/Inner.eml/z.zip/y.eml",
    ]
    assert expected == paths(docs)
    deepest = docs.app.documents.why(str(docs.folder / f"{one}/Inner.eml/z.zip/y.eml/x.txt"))
    assert ("skipped", "too_deep: inside more than 4 files") == (deepest.verdict, deepest.cause)
    assert [] == read_by(docs, lambda: docs.index(archives=True))
    later(docs.folder / "all.zip")
    assert ["all.zip"] == read_by(docs, lambda: docs.index(archives=True))
    assert clean(docs)


def test_a_changed_inner_container_changes_its_own_members(docs: IndexedFolder):
    same = mail("Same", s__md=FLOUR)
    path = docs.put("all.zip", zipped({"same.eml": same, "one.eml": mail(leaf__txt=BREAD, old__txt=WHEEL)}))
    docs.index(archives=True)
    before = ids(docs)
    path.write_bytes(zipped({"same.eml": same, "one.eml": mail(leaf__txt=b"Bread falls.")}))
    later(path)
    read = read_by(docs, lambda: docs.index(archives=True))
    assert ["all.zip", "all.zip/one.eml", "all.zip/one.eml/leaf.txt"] == read
    after = ids(docs)
    assert set(before) - set(after) == {"all.zip/one.eml/old.txt"}
    assert [] == read_by(docs, lambda: docs.index(archives=True))
    path.write_bytes(zipped({"same.eml": same}))
    docs.index(archives=True)
    assert ["all.zip", "all.zip/same.eml", "all.zip/same.eml/s.md"] == paths(docs)
    assert clean(docs)


def test_archives_inside_an_unchanged_mail_are_opened_when_asked_for(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__zip=zipped({"x.txt": WHEEL, "y.txt": BREAD})))
    docs.index()
    assert ["mail.eml"] == paths(docs)
    assert "archive" == docs.app.documents.why(str(path / "a.zip")).cause.split(":")[0]

    docs.index(archives=True)

    assert ["mail.eml", "mail.eml/a.zip", "mail.eml/a.zip/x.txt", "mail.eml/a.zip/y.txt"] == paths(docs)
    assert [] == read_by(docs, lambda: docs.index(archives=True))
    assert clean(docs)


def test_rules_of_members_that_are_gone_are_forgotten(docs: IndexedFolder):
    path = docs.put("mail.eml", mail(a__exe=b"x", b__exe=b"x"))
    docs.index()
    path.write_bytes(mail(b__exe=b"x"))
    later(path)
    docs.index()
    assert ["skipped", "unknown"] == [
        docs.app.documents.why(str(path / name)).verdict for name in ("b.exe", "a.exe")
    ]


def test_an_encrypted_member_fails_with_its_reason(docs: IndexedFolder):
    docs.put("x.zip", encrypted_zip("secret.txt"))
    docs.index(archives=True)
    (failed,) = docs.app.documents.failures(docs.folder)
    assert (str(docs.folder / "x.zip/secret.txt"), "ERR_ENCRYPTED") == (failed.path, failed.code)
    assert ["x.zip", "x.zip/open.txt"] == paths(docs)
    assert [] == read_by(docs, lambda: docs.index(archives=True))


def test_hostile_names_stay_below_their_archive(docs: IndexedFolder):
    hostile = ["../../up.txt", "/etc/abs.txt", "a\nb.txt", "x\u202egnp.txt", "y" * 5000 + ".txt"]
    docs.put("x.zip", zipped({name: f"Grain {name[:9]}".encode() for name in hostile}))
    docs.index(archives=True)
    found = paths(docs)
    assert 6 == len(found)
    assert all(name == "x.zip" or name.startswith("x.zip/") for name in found)
    assert all(name.isprintable() and ".." not in name.split("/") for name in found)
    assert not (docs.folder.parent / "up.txt").exists()


def test_a_container_is_opened_once_for_many_members(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    opened = []
    read = members.Container._read

    def counted(self: members.Container, first: int) -> Any:
        opened.append(first)
        return read(self, first)

    monkeypatch.setattr(members.Container, "_read", counted)
    docs.put("x.zip", zipped({f"{number:03}.txt": f"Grain {number}" for number in range(150)}))
    docs.index(archives=True)
    assert 151 == len(paths(docs))
    # Once to compare, and once per batch of jobs of one or two members of the pool.
    assert 10 > len(opened)
