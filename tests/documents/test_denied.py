"""Unreadable folders are not taken for deleted: a walk without permissions removes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.queue.job import Status
from tests.documents.conftest import QUEUES, IndexedFolder
from tests.documents.index_contents import read_index
from tests.servers.stores import given_back

NOBODY = 65534


@contextmanager
def nobody() -> Iterator[None]:
    """Drop privileges if the tests run as root; otherwise run as the current user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(params=["sqlite", "postgres"])
def open_docs(request: pytest.FixtureRequest) -> Iterator[IndexedFolder]:
    """A directory that another user can reach, unlike pytest's."""
    place = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    place.chmod(0o777)
    folder = place / "files"
    folder.mkdir()
    settings = config.load(
        {}, url=QUEUES[request.param](place), state_dir=place / "state", embedder="hashing"
    )
    with Penstock(settings=settings) as app:
        yield IndexedFolder(app, folder)
    given_back(place)
    shutil.rmtree(place)


def readable(place: Path) -> None:
    for path in place.rglob("*"):
        if path.is_file():
            path.chmod(0o666)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o444], ids=["nothing", "list", "list by all"])
def test_a_folder_that_may_not_be_looked_into_keeps_what_is_known_of_it(open_docs: IndexedFolder, mode: int):
    docs = open_docs
    for name in ("a.md", "locked/b.md", "locked/deep/c.md", "z.md"):
        docs.put(name, f"Words of {name}.")
    docs.index()
    before = read_index(docs.app.documents.catalog, docs.folder)
    gone = docs.put("z.md", "Other words.")
    gone.unlink()
    readable(docs.folder.parent)
    (docs.folder / "locked").chmod(mode)

    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder)
        with nobody():
            worker.drain()
    (docs.folder / "locked").chmod(0o755)

    after = read_index(docs.app.documents.catalog, docs.folder)
    job = docs.app.job(receipt.job_id)
    assert Status.DONE is job.status, job.error_message
    assert ["a.md", "locked/b.md", "locked/deep/c.md", "z.md"] == before.paths
    assert ["a.md", "locked/b.md", "locked/deep/c.md"] == after.paths


def test_a_root_that_may_not_be_looked_into_removes_nothing(open_docs: IndexedFolder):
    docs = open_docs
    docs.put("a.md", "Words of a.")
    docs.index()
    readable(docs.folder.parent)
    docs.folder.chmod(0o000)

    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder)
        with nobody():
            worker.run_jobs()
    docs.folder.chmod(0o755)

    assert "ERR_PERMISSION" == docs.app.job(receipt.job_id).error_code
    assert ["a.md"] == read_index(docs.app.documents.catalog, docs.folder).paths


def test_a_file_that_may_not_be_read_keeps_its_last_version(open_docs: IndexedFolder):
    docs = open_docs
    path = docs.put("a.md", "Words of a.")
    docs.index()
    path.write_text("Other words, longer than before.")
    readable(docs.folder.parent)
    path.chmod(0o000)

    with docs.manual_worker() as worker:
        receipt = docs.app.index(docs.folder)
        with nobody():
            worker.drain()
    path.chmod(0o644)

    assert Status.FAILED is docs.app.job(receipt.job_id).status
    (piece,) = read_index(docs.app.documents.catalog, docs.folder).pieces
    assert "Words of a." == piece.text
