"""Texts beyond the limit: their beginning is indexed with a warning, and no more is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.queue.job import Job, Status
from penstock.service.upkeep import Verifier
from penstock.vocabulary import shown_size
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.documents.index_contents import Piece, read_index

pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)
LIMIT = 20_000
LIMITS = ExtractLimits(file_bytes=LIMIT, text_bytes=LIMIT)


@pytest.fixture
def worker(docs: IndexedFolder) -> Iterator[ManualWorker]:
    with docs.manual_worker(limits=LIMITS) as worker:
        yield worker


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes read of each file, by name."""
    counts: dict[str, int] = {}
    read, pread = os.read, os.pread

    def count(fd: int, data: bytes) -> bytes:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        counts[name] = counts.get(name, 0) + len(data)
        return data

    monkeypatch.setattr(os, "read", lambda fd, size: count(fd, read(fd, size)))
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: count(fd, pread(fd, size, offset)))
    return counts


def log_of(lines: int, first: int = 0) -> str:
    return "".join(
        f"line{number} of the mill, where water is low\n" for number in range(first, first + lines)
    )


def indexed(docs: IndexedFolder, worker: ManualWorker, path: Path | None = None) -> Job:
    receipt = docs.app.index(path or docs.folder)
    worker.drain()
    return docs.app.job(receipt.job_id)


def found(docs: IndexedFolder, word: str) -> list[str]:
    return docs.found(word, mode="keyword")


def pieces(docs: IndexedFolder) -> list[Piece]:
    return sorted(read_index(docs.app.documents.catalog, docs.folder).pieces, key=lambda piece: piece.span)


def result(job: Job) -> dict[str, Any]:
    return dict(job.result or {})


@pytest.mark.parametrize("name", ["mill.log", "mill.md", "mill.jsonl", "dump.sql", "syslog.1"])
def test_the_beginning_is_indexed_with_a_warning(docs: IndexedFolder, worker: ManualWorker, name: str):
    path = docs.put(name, log_of(1_000))

    job = indexed(docs, worker, path)

    assert Status.DONE is job.status
    assert f"indexed the first 19.5 KB of {shown_size(path.stat().st_size)}" in result(job)["warnings"]
    assert ([name], []) == (found(docs, "line5"), found(docs, "line999"))
    last = pieces(docs)[-1]
    assert last.text.endswith("where water is low")
    assert last.lines[1] == int(last.text.rpartition("line")[2].split()[0]) + 1


def test_a_folder_passes_large_texts_on_and_leaves_large_pages_out(docs: IndexedFolder, worker: ManualWorker):
    docs.put("mill.log", log_of(1_000))
    page = docs.put("mill.html", log_of(1_000))

    job = indexed(docs, worker)

    assert Status.DONE is job.status
    assert ["mill.log"] == found(docs, "line5")
    assert ("skipped", True) == ((why := docs.app.documents.why(page)).verdict, "limit" in why.cause)
    assert "ERR_TOO_LARGE" == indexed(docs, worker, page).error_code


def test_no_more_is_read_than_indexed(docs: IndexedFolder, worker: ManualWorker, bytes_read: dict[str, int]):
    path = docs.put("mill.log", log_of(1_000))
    os.truncate(path, 2 << 30)

    job = indexed(docs, worker, path)

    assert Status.DONE is job.status
    assert "indexed the first 19.5 KB of 2 GB" in result(job)["warnings"]
    assert LIMIT + SNIFFED == bytes_read["mill.log"]


def test_an_unchanged_text_is_not_read_again_and_a_longer_one_not_indexed_again(
    docs: IndexedFolder, worker: ManualWorker, bytes_read: dict[str, int]
):
    path = docs.put("mill.log", log_of(1_000))
    indexed(docs, worker)
    before, document = dict(bytes_read), docs.app.documents.source(str(path))

    assert 1 == result(indexed(docs, worker))["unchanged"]
    assert before == bytes_read
    with path.open("a") as log:
        log.write("one more line\n")
    changed = indexed(docs, worker, path)

    assert "unchanged" == result(changed)["outcome"]
    after = docs.app.documents.source(str(path))
    assert (document.published_id, path.stat().st_size) == (after.published_id, after.size)
    assert 1 == result(indexed(docs, worker))["unchanged"]


def test_a_change_of_the_beginning_is_indexed(docs: IndexedFolder, worker: ManualWorker):
    path = docs.put("mill.log", log_of(1_000))
    indexed(docs, worker)
    path.write_text("rotated\n" + log_of(1_000))

    assert "indexed" == result(indexed(docs, worker, path))["outcome"]
    assert ["mill.log"] == found(docs, "rotated")


@pytest.mark.parametrize(
    ("text_bytes", "names"), [(30_000, ["mill.log"]), (5_000, []), (100_000, ["mill.log"])]
)
def test_another_limit_reads_only_the_texts_it_concerns_again(
    docs: IndexedFolder, worker: ManualWorker, text_bytes: int, names: list[str]
):
    docs.put("mill.log", log_of(1_000))
    docs.put("small.log", log_of(10, 5_000))
    indexed(docs, worker)

    with docs.manual_worker(limits=ExtractLimits(file_bytes=LIMIT, text_bytes=text_bytes)) as other:
        job = indexed(docs, other)
        again = indexed(docs, other)

    assert (1, 1) == (result(job)["unchanged"], result(job)["changed"])
    assert 2 == result(again)["unchanged"]
    assert names == found(docs, "line600")


def test_verification_compares_what_was_read(docs: IndexedFolder, worker: ManualWorker):
    path = docs.put("mill.log", log_of(1_000))
    indexed(docs, worker)
    app = docs.app
    verifier = Verifier(app.documents.catalog, app.verifier._jobs, app.verifier._vector_copies, LIMITS)
    assert [] == list(verifier.differences(checksum=True))

    status = path.stat()
    with path.open("r+b") as log:
        log.write(b"LINE0")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert ["has changed content, but the same size and time"] == [
        one.what for one in verifier.differences(checksum=True)
    ]


def test_a_large_text_that_was_moved_keeps_its_document(docs: IndexedFolder, worker: ManualWorker):
    path = docs.put("mill.log", log_of(1_000))
    indexed(docs, worker)
    document = docs.app.documents.source(str(path))
    target = path.rename(docs.folder / "moved.log")

    assert 1 == result(indexed(docs, worker))["moved"]
    moved = docs.app.documents.source(str(target))
    assert document.source_id == moved.source_id


def test_a_declared_hash_is_not_compared_with_that_of_a_part(docs: IndexedFolder, worker: ManualWorker):
    path = docs.put("mill.log", log_of(1_000))
    payload = {"file_path": str(path), "file_hash": "sha256:" + "0" * 64, "size_bytes": 7}
    receipts = []
    for _ in range(2):
        receipts.append(docs.app.submit(item_type="file", op="ingest", payload=payload))
        worker.drain()

    for receipt in receipts:
        found = result(docs.app.job(receipt.job_id))
        assert [f"size_bytes: declared 7, found {path.stat().st_size:,}"] == found["mismatches"]


def test_binary_data_behind_the_name_of_a_text_is_refused_by_its_first_bytes(
    docs: IndexedFolder, worker: ManualWorker, bytes_read: dict[str, int]
):
    path = docs.put("mill.log", b"\x7fELF" + bytes(range(256)) * 200)

    assert "ERR_UNSUPPORTED_TYPE" == indexed(docs, worker, path).error_code
    assert 2 * SNIFFED == bytes_read["mill.log"]


def test_a_row_is_not_cut_within_a_cell(docs: IndexedFolder, worker: ManualWorker):
    rows = "".join(f'row{number},"two\nlines, ""quoted"" and more"\n' for number in range(1_000))
    path = docs.put("mill.csv", "name,text\n" + rows)

    indexed(docs, worker, path)

    lines = [line for piece in pieces(docs) for line in piece.text.split("\n")][1:]
    assert {'two lines, "quoted" and more'} == {line.partition(" | ")[2] for line in lines}
