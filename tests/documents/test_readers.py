"""Readers during changes: each document appears once, whole, and in one version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.queue.job import Status
from tests.documents.conftest import WAIT_S, IndexedFolder
from tests.documents.search_reader import EVERYWHERE, complaint, marked, reader
from tests.documents.test_model_change import changed, rebuild
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

SMALL, PARTS, LONG_PARTS = 12, 4, 300
LASTING = list(range(SMALL + 1))
FLEETING = range(100, 110)


class Library:
    """Short documents, one long enough for tasks, and some temporary ones."""

    def __init__(self, docs: IndexedFolder) -> None:
        self._desk = docs
        self.home = "a"

    def write(self, version: int) -> None:
        for number in range(SMALL):
            self._desk.put(f"{self.home}/{number}.md", marked(number, PARTS, version))
        self._desk.put(f"{self.home}/long.md", marked(SMALL, LONG_PARTS, version))
        for number in FLEETING:
            self._desk.put(f"fleeting/{number}.md", marked(number, PARTS, version, may_go=True))

    def done(self, item_type: str, op: str, **payload: Any) -> None:
        receipt = self._desk.app.submit(item_type=item_type, op=op, payload=payload)
        assert Status.DONE is self._desk.app.wait(receipt.job_id, timeout=WAIT_S).status

    @property
    def folder(self) -> Path:
        return self._desk.folder

    def index(self) -> None:
        self.done("folder", "ingest", folder_path=str(self.folder))


def edited(library: Library, turn: int) -> None:
    library.write(turn)
    library.index()


def renamed(library: Library, turn: int) -> None:
    old, library.home = library.home, f"home{turn}"
    (library.folder / old).rename(library.folder / library.home)
    paths = {"old_path": str(library.folder / old), "new_path": str(library.folder / library.home)}
    library.done("rename", "update", **paths, is_folder=True)


def moved_unreported(library: Library, turn: int) -> None:
    """Move the temporary documents: until a walk finds them, they may be missing."""
    for path in list((library.folder / "fleeting").iterdir()):
        path.rename(path.with_name(f"turn{turn}-{path.name[-6:]}"))
    library.index()


def deleted(library: Library, turn: int) -> None:
    library.done("folder", "delete", folder_path=str(library.folder / "fleeting"))
    library.index()


CHANGES: list[Callable[[Library, int], None]] = [edited, renamed, moved_unreported, deleted]
"""Each change is repeated while the reader runs."""


def watched(docs: IndexedFolder, change: Callable[[Library, int], None], turns: int) -> int:
    library = Library(docs)
    library.write(1)
    docs.index()
    with docs.app.worker_thread(), reader(docs.app.settings, LASTING) as search_reader:
        for turn in range(2, turns + 2):
            change(library, turn)
            assert search_reader.alive, search_reader.stopped()
        return search_reader.stopped()


SOME_CHANGES = [
    pytest.param(change, marks=[pytest.mark.long] * (change not in (edited, deleted))) for change in CHANGES
]


@pytest.mark.parametrize("change", SOME_CHANGES, ids=lambda change: change.__name__)
def test_no_reader_sees_a_document_missing_doubled_or_mixed(
    docs: IndexedFolder, change: Callable[[Library, int], None]
):
    assert watched(docs, change, 1)


def test_no_reader_sees_the_model_change(docs: IndexedFolder):
    """The reader keeps the old model, like a process started before."""
    Library(docs).write(1)
    docs.index()
    with reader(docs.app.settings, LASTING) as search_reader, changed(docs) as app:
        _, jobs = rebuild(app)

        assert {Status.DONE} == {job.status for job in jobs}
        assert search_reader.stopped()


def test_a_reader_complains_of_what_is_wrong(docs: IndexedFolder):
    """Check of the reader itself: missing, doubled and half-edited documents are found."""
    library = Library(docs)
    library.write(1)
    docs.index()
    hits = docs.app.search(EVERYWHERE, mode="keyword", limit=1_000, per_source=None)
    changed = msgspec.structs.replace(hits[0], text=hits[0].text.replace("version1", "version2"))

    assert None is complaint(hits, LASTING)
    assert "missing: [99]" == complaint(hits, [99])
    assert "parts" in (complaint([*hits, hits[0]], LASTING) or "")
    assert "mixed" in (complaint([changed, *hits[1:]], LASTING) or "")


@pytest.mark.chaos
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_reader_sees_any_of_many_changes(docs: IndexedFolder, change: Callable[[Library, int], None]):
    assert watched(docs, change, 30) > 10
