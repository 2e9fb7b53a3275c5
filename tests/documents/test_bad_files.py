"""Misleading, unreadable and changing files: all other files are indexed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder

NOBODY = 65534


@pytest.fixture
def trouble(docs: IndexedFolder, tmp_path: Path) -> Iterator[dict[str, tuple[str, str]]]:
    """Names in the folder, and the answer of `why` for each."""
    folder = docs.folder
    docs.put("good.md", "Water drives the wheel.")
    docs.put("empty.md", b"")
    docs.put("blank.md", b" \n\t\n ")
    docs.put("liar.txt", b"\x7fELF" + bytes(range(256)) * 20)
    docs.put("torn.pdf", b"%PDF-1.4\nnothing of a document")
    with (folder / "huge.html").open("wb") as file:
        file.truncate(2 << 30)
    os.mkfifo(folder / "pipe.md")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    (folder / "round").symlink_to(folder)
    (tmp_path / "secret.md").write_text("Outside.")
    (folder / "out.md").symlink_to(tmp_path / "secret.md")
    (folder / "gone.md").symlink_to(folder / "never-there.md")
    (folder / os.fsdecode(b"bad\xff.md")).write_text("A name that is no UTF-8.")
    docs.put(".hidden.md", "Hidden.")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.md"))
        yield {
            "good.md": ("indexed", "1 chunk of 1 page"),
            "empty.md": ("indexed", "blank"),
            "blank.md": ("indexed", "blank"),
            "liar.txt": ("failed", "ERR_UNSUPPORTED_TYPE"),
            "torn.pdf": ("failed", "ERR_"),
            "huge.html": ("skipped", "too_large"),
            "pipe.md": ("skipped", "special"),
            "socket.md": ("skipped", "special"),
            "loop.md": ("skipped", "link_"),
            "round": ("skipped", "link_"),
            "out.md": ("skipped", "link_outside"),
            "gone.md": ("skipped", "link_broken"),
            os.fsdecode(b"bad\xff.md"): ("skipped", "name"),
            ".hidden.md": ("skipped", "hidden"),
        }


def test_each_is_listed_with_its_reason_and_the_rest_is_indexed(
    docs: IndexedFolder, trouble: dict[str, tuple[str, str]]
):
    job = docs.index()

    assert (Status.FAILED, 2) == (job.status, job.children_failed)
    assert ["good.md"] == docs.found("wheel")
    for name, (verdict, cause) in trouble.items():
        reason = docs.app.documents.why(docs.folder / name)
        assert (verdict, True) == (reason.verdict, cause in reason.cause), (name, reason)
    whole = docs.app.documents.why(docs.folder)
    assert {"indexed": 3, "failed": 2, "skipped": 9} == whole.counts
    assert 11 == len(whole.below)


def test_a_file_too_large_by_itself_is_refused_before_it_is_read(docs: IndexedFolder):
    path = docs.put("huge.html", b"")
    with path.open("wb") as file:
        file.truncate(2 << 30)

    job = docs.index(path)

    assert (Status.FAILED, "ERR_TOO_LARGE") == (job.status, job.error_code)


@pytest.mark.parametrize("what", ["gone", "grown", "a pipe", "a folder"])
def test_what_changes_between_the_walk_and_the_reading(docs: IndexedFolder, what: str):
    docs.put("good.md", "Water drives the wheel.")
    path = docs.put("other.md", "Bread comes out of the oven.")
    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder)
        worker.run_jobs()
        path.unlink()
        if what == "grown":
            path.write_text("Bread and much more comes out of the oven.")
        elif what == "a pipe":
            os.mkfifo(path)
        elif what == "a folder":
            path.mkdir()
        worker.run_jobs()

    job = docs.app.job(receipt.job_id)
    assert ["good.md"] == docs.found("wheel", mode="keyword")
    if what in ("gone", "grown"):
        assert Status.DONE is job.status
        assert (["other.md"] if what == "grown" else []) == docs.found("bread", mode="keyword")
    else:
        assert (Status.FAILED, 1) == (job.status, job.children_failed)
        assert "failed" == docs.app.documents.why(path).verdict


UNPRIVILEGED = """
import json, os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from penstock import Penstock, config

def indexed(name, folder):
    settings = config.load({{}}, state_dir=Path({place!r}, name), embedder="hashing")
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            job = app.wait(app.index(folder).job_id, timeout=60)
        failed = app.jobs(status="failed", parent_id=job.queue_id)
        why = app.documents.why(folder)
        return [job.status, [child.error_code for child in failed], why.counts,
                {{os.path.basename(one.path): one.cause for one in why.below}}]

folder = {folder!r}
# Everything that is loaded when first needed is: the interpreter itself may be out of reach below.
indexed("warm", folder)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({nobody})
    os.setuid({nobody})
answers = [indexed("state", folder)]
os.chmod(folder + "/closed.md", 0)
os.chmod(folder + "/locked", 0)
os.utime(folder + "/closed.md", (1, 1))
Path(folder, "late.md").write_text("Water of late.md.")
answers.append(indexed("state", folder))
os.chmod(folder + "/locked", 0o755)
print(json.dumps(answers))
"""


def test_what_may_not_be_read_is_listed_and_nothing_below_it_removed():
    """Run as a user without privileges, since root may read anything."""
    place = Path(tempfile.mkdtemp(prefix="penstock-unprivileged-"))
    try:
        folder = place / "files"
        (folder / "locked").mkdir(parents=True)
        for name in ("good.md", "closed.md", "locked/inside.md"):
            (folder / name).write_text(f"Water of {name}.")
        place.chmod(0o777)
        for path in [folder, *folder.rglob("*")]:
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        code = UNPRIVILEGED.format(path=sys.path, place=str(place), folder=str(folder), nobody=NOBODY)
        answer = subprocess.run(
            [sys.executable, "-c", code], cwd="/", capture_output=True, timeout=120, check=False
        )
        assert 0 == answer.returncode, answer.stderr.decode()
        (first, second) = msgspec.json.decode(answer.stdout)
    finally:
        shutil.rmtree(place)

    assert ["done", [], {"indexed": 3}, {}] == first
    assert ["failed", ["ERR_PERMISSION"]] == second[:2]
    # Each path once: the former version of a closed file stays in search.
    assert {"indexed": 3, "failed": 2} == second[2]
    assert {"closed.md", "locked"} == set(second[3])
    assert all("ERR_PERMISSION" in cause for cause in second[3].values())


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_words_of_any_length_fit_into_the_largest_chunk(docs: IndexedFolder):
    """PostgreSQL limits the folded words of a chunk to one entry of 1 MB."""
    words = {
        "one": "x" * 100_000,
        "many": " ".join(f"{number:x}" for number in range(12_000)),
        "folded": "\ufdfa" * 33_000,
        "wide": " ".join(f"{chr(0x4E00 + number)}{chr(0x12000 + number % 900)}" for number in range(11_000)),
    }
    for name, text in words.items():
        docs.put(f"{name}.md", text + " wheel")

    job = docs.index(chunk_size=8_192, chunk_overlap=4_096)

    assert (Status.DONE, 0) == (job.status, job.children_failed)
    assert [f"{name}.md" for name in sorted(words)] == sorted(set(docs.found("wheel", mode="keyword")))
