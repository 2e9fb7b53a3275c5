"""The file of a backup: anything but the whole file is refused, and the place is named."""

from __future__ import annotations

import tempfile
import zlib
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.backup import archive
from penstock.backup.archive import (
    FIRST_LINE,
    ArchiveReader,
    ArchiveWriter,
    Header,
    PartHeader,
)
from penstock.errors import BackupDamaged, PenstockError, SchemaMismatch

HEADER = Header(
    version="1", created_at="2026-01-01", id="1", queue="sqlite:///q", catalog="c", numbers={"row": 1}
)
ROWS: list[list[Any]] = [[1, "text", None], [2, "other", b"\0\xff"]]


def written(**changes: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        writer = ArchiveWriter(file, msgspec.structs.replace(HEADER, **changes))
        writer.begin(PartHeader("queue/jobs", ("a", "b", "c")))
        writer.add(ROWS)
        writer.add([[3, "x" * 10_000, 1.5]])
        writer.end()
        writer.begin(PartHeader("catalog/none", ("a",)))
        writer.end()
        writer.finish()
        file.seek(0)
        return file.read()


def read(data: bytes) -> list[tuple[str, int]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return [(part.header.part, len(part.rows)) for part in ArchiveReader(file, "x.backup").rows()]


def test_rows_come_back_part_by_part() -> None:
    parts = [("queue/jobs", 0), ("queue/jobs", 2), ("queue/jobs", 1), ("catalog/none", 0)]
    assert parts == read(written())


def test_a_file_cut_anywhere_is_refused() -> None:
    data = written()
    for end in range(len(data)):
        with pytest.raises(BackupDamaged):
            read(data[:end])


def test_a_cut_file_names_the_part_where_it_ends() -> None:
    data = written()
    with pytest.raises(BackupDamaged, match="truncated: it ends in part queue/jobs"):
        read(data[: data.index(b"queue/jobs") + 60])


def test_a_changed_byte_is_seen() -> None:
    data = written()
    seen = 0
    for at in range(len(FIRST_LINE), len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            read(changed)
        except PenstockError:
            seen += 1
    # Only letters of the header, such as those of the version, may differ without harm.
    header = data.index(b"P", data.index(b"numbers"))
    assert seen >= len(data) - header


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"SQLite format 3\0" * 9, b"\0" * 100])
def test_foreign_files_are_refused(data: bytes) -> None:
    with pytest.raises(BackupDamaged, match="not a backup of Penstock"):
        read(data)


def test_a_later_format_is_refused_by_name() -> None:
    with pytest.raises(SchemaMismatch, match="format 2, this version reads up to 1"):
        read(written(format=2))


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(BackupDamaged, match="goes on after its end"):
        read(written() + b"\n")


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written()
    bomb = zlib.compress(msgspec.msgpack.encode([["x" * 2_000_000, 1, 1]]), 9)
    begin = data.index(b"R\0\0")
    forged = data[:begin] + b"R" + len(bomb).to_bytes(4, "big") + bomb
    with pytest.raises(BackupDamaged, match="truncated"):
        read(forged)
    monkeypatch.setattr(archive, "MOST_BYTES", 1_000_000)
    with pytest.raises(BackupDamaged, match="damaged in part queue/jobs"):
        read(forged)


def test_rows_that_no_compression_makes_smaller_are_stored_as_they_are() -> None:
    noise = Random(7).randbytes(200_000)
    with tempfile.TemporaryFile() as file:
        writer = ArchiveWriter(file, HEADER)
        writer.begin(PartHeader("catalog/noise", ("id", "vector")))
        for number in range(5):
            writer.add([(number, noise)])
            writer.add([(number, b"a" * 400_000)])
        writer.end()
        writer.finish()
        file.seek(0)
        data = file.read()

    # The noise is copied, and the rest loses nearly all of its bytes.
    assert 5 * len(noise) < len(data) < 5 * len(noise) + 20_000
    assert [("catalog/noise", number) for number in (0, *[1] * 10)] == read(data)


@pytest.mark.parametrize("sizes", [(40,), (1, 39), (15, 16, 9)])
def test_the_checksum_does_not_depend_on_the_batches(sizes: tuple[int, ...]) -> None:
    rows, checksum = [[number, "x" * number] for number in range(40)], archive.RowChecksum()
    single = archive.RowChecksum()
    for row in rows:
        single.add([row])
    for size in sizes:
        batch, rows = rows[:size], rows[size:]
        checksum.add(batch)
    assert single.summary("p") == checksum.summary("p")
