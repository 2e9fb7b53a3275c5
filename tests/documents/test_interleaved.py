"""Interleaved requests: another request runs at a named point of an ingest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from penstock.catalog.values import Phase
from tests.documents.conftest import IndexedFolder, ManualWorker, book
from tests.documents.index_contents import IndexContents, fresh_index, read_index, settled
from tests.pipeline.sample_documents import pdf
from tests.servers.stores import FIRST, others_later

on_both = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

NOTHING = IndexContents([], {})
POINTS = [
    ("before", "store"),
    ("after", "store"),
    ("after", "claim"),
    ("before", "settle"),
]
"""Points: generation read but not stored; stored; tasks claimed; tasks done but not settled."""

LONG = pytest.mark.long
LATER = {"before": LONG, "after": pytest.mark.chaos}


def folder(docs: IndexedFolder) -> None:
    """A small file, and one with tasks for pages and vectors."""
    docs.put("sub/small.md", "Water drives the wheel.")
    docs.put("sub/paper.pdf", pdf(*(f"Words of page {number}." for number in range(34))))


def submit(docs: IndexedFolder, item_type: str, op: str, **payload: object) -> None:
    docs.app.submit(item_type=item_type, op=op, payload=payload)


def delete_folder(docs: IndexedFolder) -> None:
    submit(docs, "folder", "delete", folder_path=str(docs.folder))


def delete_tenant(docs: IndexedFolder) -> None:
    submit(docs, "delete_tenant", "delete", tenant_id_to_delete="default")


def rename_folder(docs: IndexedFolder) -> None:
    old, new = docs.folder / "sub", docs.folder / "moved"
    old.rename(new)
    submit(docs, "rename", "update", old_path=str(old), new_path=str(new), is_folder=True)


def rename_files(docs: IndexedFolder) -> None:
    for old in (docs.folder / "sub").iterdir():
        new = old.with_name(f"new-{old.name}")
        old.rename(new)
        submit(docs, "rename", "update", old_path=str(old), new_path=str(new), is_folder=False)


def edit(docs: IndexedFolder) -> None:
    for path in (docs.folder / "sub").iterdir():
        if path.suffix == ".pdf":
            path.write_bytes(pdf(*(f"Other words of page {number}." for number in range(35))))
        else:
            path.write_text(path.read_text() + "\n\nAnd more.")
        submit(docs, "file", "update", file_path=str(path))


def remove_files(docs: IndexedFolder) -> None:
    for path in (docs.folder / "sub").iterdir():
        path.unlink()
        submit(docs, "file", "ingest", file_path=str(path))


def index_below(docs: IndexedFolder) -> None:
    """Two requests for overlapping folders."""
    docs.app.index(docs.folder / "sub")


def index_files(docs: IndexedFolder) -> None:
    """A job for each file and a walk of their folder."""
    for path in (docs.folder / "sub").iterdir():
        docs.app.index(path)


def delete_and_add_again(docs: IndexedFolder) -> None:
    delete_folder(docs)
    docs.app.index(docs.folder)
    docs.app.index(docs.folder / "sub")


ACTIONS: list[Callable[[IndexedFolder], None]] = [
    delete_folder,
    delete_tenant,
    rename_folder,
    rename_files,
    edit,
    remove_files,
    index_below,
    index_files,
    delete_and_add_again,
]


def begun(docs: IndexedFolder, worker: ManualWorker) -> None:
    """The walk is done; the jobs of its files come next."""
    docs.app.index(docs.folder)
    worker.run_jobs()


def compare(docs: IndexedFolder, expected: IndexContents) -> None:
    settled(docs.app)
    assert expected == read_index(docs.app.documents.catalog, docs.folder)


def meetings() -> list[ParameterSet]:
    """Every action at every point: half of them on SQLite in `make test`, each action at two points."""
    found = []
    for number, action in enumerate(ACTIONS):
        for place, point in enumerate(POINTS):
            of = f"{' '.join(point)}-{action.__name__}"
            now = (number + place) % 2 == 0
            found += [
                pytest.param("sqlite", point, action, id=f"sqlite {of}", marks=[LONG] * (not now)),
                # The order of locks is decided where generations and results are written.
                pytest.param("postgres", point, action, id=f"postgres {of}", marks=LATER[point[0]]),
            ]
    return found


@pytest.mark.parametrize(("docs", "point", "action"), meetings(), indirect=["docs"])
def test_a_first_ingest_is_met_by_another_request(
    docs: IndexedFolder, tmp_path: Path, point: tuple[str, str], action: Callable[[IndexedFolder], None]
):
    folder(docs)
    with docs.manual_worker() as worker, docs.manual_worker() as other:
        begun(docs, worker)

        def interrupt() -> None:
            action(docs)
            other.run_jobs()

        worker.paused.at(*point, interrupt)
        worker.drain()
        assert [point] == worker.paused.reached

    wanted = action not in (delete_folder, delete_tenant)
    compare(docs, fresh_index(tmp_path, docs.folder) if wanted else NOTHING)


@on_both
def test_an_edit_taken_back_before_the_old_is_swept_loses_nothing(docs: IndexedFolder, tmp_path: Path):
    path = docs.put("book.md", book(260))
    first = path.read_text()
    with docs.manual_worker() as worker:
        for text in (first, first.replace("subject7.", "topic7."), first):
            path.write_text(text)
            docs.app.index(path)
            while worker.run_jobs() is not None:
                continue
            # Tasks only: deletions in the outbox wait for the end.
            while tasks := [task for lane in Phase for task in worker.claim(lane)]:
                worker.catalog.settle(worker.phases.run(tasks[0].lane, tasks))
        worker.drain()

    compare(docs, fresh_index(tmp_path, docs.folder))


@on_both
def test_a_file_that_became_a_folder_or_a_link_is_forgotten(docs: IndexedFolder, tmp_path: Path):
    for name in ("a.md", "b.md", "c.md"):
        docs.put(name, f"Words of {name}.")
    docs.index()
    for name in ("a.md", "b.md"):
        (docs.folder / name).unlink()
    docs.put("a.md/inside.md", "Words inside.")
    (docs.folder / "b.md").symlink_to(docs.folder / "c.md")

    docs.index()

    compare(docs, fresh_index(tmp_path, docs.folder))


@on_both
def test_a_folder_that_became_a_file_is_forgotten(docs: IndexedFolder, tmp_path: Path):
    inside = docs.put("a.md/inside.md", "Words inside.")
    docs.put("b.md", "Words of b.")
    docs.index()
    inside.unlink()
    inside.parent.rmdir()
    docs.put("a.md", "Words of a.")

    docs.index()

    compare(docs, fresh_index(tmp_path, docs.folder))


@on_both
@pytest.mark.parametrize("told", [True, False])
def test_another_suffix_is_another_kind_of_file(docs: IndexedFolder, tmp_path: Path, told: bool):
    names = {"a.md": "a.txt", "b.md": "b.markdown", "c.txt": "c.html"}
    for name in names:
        docs.put(name, f"# Heading\n\ndef words():\n    return '{name}'\n")
    docs.index()
    for old, new in names.items():
        (docs.folder / old).rename(docs.folder / new)
        if told:
            paths = {"old_path": str(docs.folder / old), "new_path": str(docs.folder / new)}
            submit(docs, "rename", "update", **paths, is_folder=False)

    docs.index()

    compare(docs, fresh_index(tmp_path, docs.folder))
