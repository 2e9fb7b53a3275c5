"""Archives and compressed files: members, limits, hostile names and sizes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from penstock.errors import DocumentDamaged, DocumentTooLarge, UnsupportedType
from penstock.pipeline.extract import archives
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.member_names import NAME_BYTES, PART_BYTES, MemberNames
from penstock.pipeline.extract.protocol import Attachment, Content, ExtractLimits
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.mail_samples import encrypted_zip, mail, tarred, zipped

MEMBERS = {"read/me.txt": b"Water drives the wheel.", "report.eml": mail()}


def members(data: bytes, name: str = "x.zip", limits: ExtractLimits | None = None) -> list[Attachment]:
    """All members, read in batches."""
    found: list[Attachment] = []
    while True:
        some = extract(Content(name, data), limits, pages=range(len(found) + 1, 1 << 30)).attachments
        if not some:
            return found
        found += some


def names_of(*names: str) -> list[str]:
    given = MemberNames()
    return [given.add(name) for name in names]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.zip", zipped(MEMBERS)),
        ("x.tar", tarred(MEMBERS)),
        ("x.tar.gz", tarred(MEMBERS, "gz")),
        ("x.tgz", tarred(MEMBERS, "gz")),
        ("x.tar.bz2", tarred(MEMBERS, "bz2")),
        ("x.tar.xz", tarred(MEMBERS, "xz")),
    ],
)
def test_members_are_read_and_listed(name: str, data: bytes):
    assert MEMBERS == {one.name: one.data for one in members(data, name)}
    listed = extract(Content(name, data))
    assert f"# {name}\n\n- read/me.txt\n- report.eml" == listed.pages[0].text
    assert () == listed.attachments


def test_members_come_in_batches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "BATCH_BYTES", 10)
    data = zipped({f"{number}.txt": b"123456" for number in range(5)})
    assert 2 == len(extract(Content("x.zip", data), pages=range(1, 100)).attachments)
    assert [f"{number}.txt" for number in range(5)] == [one.name for one in members(data)]


def test_an_encrypted_member_fails_alone():
    found = {one.name: one for one in members(encrypted_zip("secret.txt"))}
    assert "DocumentEncrypted" == found["secret.txt"].error
    assert ("", b"The mill is open.") == (found["open.txt"].error, found["open.txt"].data)


def test_links_and_devices_of_a_tar_archive_are_left_out():
    link, device = tarfile.TarInfo("link"), tarfile.TarInfo("null")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    data = tarred({"link": link, "null": device, "a.txt": b"x"})
    assert ["a.txt"] == [one.name for one in members(data, "x.tar")]
    assert ("2 links or devices are left out",) == extract(Content("x.tar", data)).warnings


def test_a_member_that_unpacks_too_far_fails_alone():
    data = zipped({"bomb.txt": b"\0" * (8 << 20), "a.txt": b"x"})
    found = members(data)
    assert [("bomb.txt", "DocumentTooLarge"), ("a.txt", "")] == [(one.name, one.error) for one in found]
    assert "the limit is 250 times" in found[0].message


def test_the_unpacked_size_is_limited():
    limits = ExtractLimits(file_bytes=2000)
    found = members(zipped({f"{number}": bytes(1900) for number in range(12)}), limits=limits)
    assert ["", "", "", "", "", "", "", ""] + ["DocumentTooLarge"] * 4 == [one.error for one in found]
    found = members(tarred({"big": bytes(5000), "a": b"x"}, "gz"), "x.tgz", limits)
    assert [("big", "DocumentTooLarge"), ("a", "")] == [(one.name, one.error) for one in found]
    bomb = tarred({"a": b"x", "big": bytes(50_000), "b": b"x"}, "gz")
    assert ["a", "big"] == [one.name for one in members(bomb, "x.tgz", limits)]
    assert "more than the limit" in extract(Content("x.tgz", bomb), limits).warnings[0]


def test_a_size_that_lies_is_noticed():
    data = bytearray(zipped({"a.txt": b"x" * 5000}))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (100).to_bytes(4, "little")
    assert members(bytes(data))[0].error in ("DocumentTooLarge", "DocumentDamaged")


def test_the_number_of_entries_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    many = {f"{number}.txt": b"x" for number in range(5)}
    for name, data in (("x.zip", zipped(many)), ("x.tar", tarred(many))):
        assert 3 == len(members(data, name))
        assert "only the first 3 entries are read" in extract(Content(name, data)).warnings[0]


def test_a_million_entries_are_refused_before_the_directory_is_read():
    entry = b"PK\x01\x02" + bytes(42)
    data = b"PK\x03\x04" + entry * 1_000_000
    with pytest.raises(DocumentTooLarge, match="more than 100,000 entries"):
        extract(Content("x.zip", data))


def test_nested_bombs_are_not_opened_by_their_archive():
    inner = zipped({f"{number}.txt": b"\0" * (1 << 20) for number in range(16)})
    for _ in range(4):
        inner = zipped({f"{number}.zip": inner for number in range(16)})
    with Sandbox() as sandbox:
        found = sandbox.extract(Content("x.zip", inner), pages=range(1, 100))
    assert 16 == len(found.attachments)
    assert archives.BATCH_BYTES > sum(len(one.data) for one in found.attachments)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.zip", zipped({"a": b"x" * 99})[:60]),
        ("x.zip", b"PK\x05\x06" + bytes(3)),
        ("x.tgz", tarred({"a": b"x"}, "gz")[:20]),
        ("x.tar", b"a" * 257 + b"ustar" + b"b" * 800),
    ],
)
def test_damaged_archives_are_refused(name: str, data: bytes):
    with pytest.raises(DocumentDamaged):
        extract(Content(name, data))


def test_an_archive_cut_off_in_the_middle_gives_its_first_members():
    data = tarred({f"{number}.txt": bytes(range(256)) * 40 for number in range(5)})[:35_000]
    assert [*(f"{number}.txt" for number in range(4))] == [one.name for one in members(data, "x.tar")][:4]
    assert "could be read" in extract(Content("x.tar", data)).warnings[0]


# Names.


def test_names_stay_below_their_container():
    hostile = ["../../a", "/etc/passwd", "..", "a/../../b", "C:\\x\\y.txt", "./c", "", "   ", "//", "\x00"]
    for name in names_of(*hostile):
        assert not name.startswith("/")
        assert {"", ".", ".."}.isdisjoint(name.split("/"))
    assert ["a", "etc/passwd", "unnamed"] == names_of("../../a", "/etc/passwd", "..")


def test_names_are_unique_and_none_is_the_folder_of_another():
    assert ["a.txt", "a (2).txt", "a (3).txt"] == names_of("a.txt", "a.txt", "a.txt")
    assert ["a", "a (2)/b"] == names_of("a", "a/b")
    assert ["a/b", "a (2)"] == names_of("a/b", "a")
    assert 20_000 == len(set(names_of(*["same.txt"] * 20_000)))


def test_safe_names_stay_when_they_are_made_safe_again():
    first = names_of("../a", "a", "a/b", "x\ny.txt", "z" * 500 + ".txt", "d/" * 300 + "f", "...", "C:\\a.txt")
    assert first == names_of(*first)


def test_names_are_printable_and_short():
    shown, right_to_left, long = names_of("a\nb\r\x1b[2J.txt", "exe.\u202efdp", "x" * 10_000 + ".pdf")
    assert shown.isprintable()
    assert right_to_left.isprintable()
    assert long.endswith(".pdf")
    assert PART_BYTES >= len(long.encode())
    assert NAME_BYTES >= len(names_of("/".join(["d" * 100] * 200) + "/f.txt")[0].encode())
    assert names_of("\udcff\ud800.txt")[0].encode()


def test_names_of_zip_members_without_a_mark_are_utf_8_if_they_can_be():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("ab.txt", b"x")
    data = out.getvalue().replace(b"ab.txt", "ü.txt".encode())
    assert ["ü.txt"] == [one.name for one in members(data)]


# Compressed single files.


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("notes.txt.gz", gzip.compress),
        ("log.1.gz", gzip.compress),
        ("a.md.bz2", bz2.compress),
        ("a.txt.xz", lzma.compress),
    ],
)
def test_a_compressed_file_is_read_as_the_file_inside(name: str, pack: object):
    found = extract(Content(name, pack(b"# Mill\n\nWater drives the wheel.")))  # type: ignore[operator]
    assert "# Mill\n\nWater drives the wheel." == found.pages[0].text
    assert ("text/markdown" if ".md" in name else "text/plain") == found.file_type.media_type


def test_compressed_bombs_and_damage_are_refused():
    with pytest.raises(DocumentTooLarge):
        extract(Content("a.txt.gz", gzip.compress(bytes(10_000))), ExtractLimits(file_bytes=5_000))
    with pytest.raises(DocumentDamaged):
        extract(Content("a.txt.gz", gzip.compress(b"water " * 99)[:30]))
    assert "text/plain" == extract(Content("a.txt.gz", b"plain text")).file_type.media_type
    with pytest.raises(UnsupportedType):
        extract(Content("a.gz.gz", gzip.compress(gzip.compress(b"x"))))


def test_a_broken_map_of_a_sparse_file_is_damage():
    header = bytearray(tarfile.TarInfo("a").tobuf())
    header[156:157], header[482:483], header[148:156] = b"S", b"\1", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)

    with pytest.raises(DocumentDamaged):
        extract(Content("a.tar", bytes(header)))
