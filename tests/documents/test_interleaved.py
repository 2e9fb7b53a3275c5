"""Somebody else acts at a named point of an ingest: the index ends as the disk is, or as it was told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.catalog.values import Phase
from tests.documents.conftest import Hand, IndexedFolder, book
from tests.documents.index_contents import Shown, fresh, settled, shown
from tests.pipeline.sample_documents import pdf

on_both = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)

NOTHING = Shown([], {})
POINTS = [
    ("before", "store"),
    ("after", "store"),
    ("after", "claim"),
    ("before", "settle"),
]
"""A generation is read but not stored; is stored; its tasks are claimed; are done but not settled."""

MEETINGS = [pytest.param("sqlite", point, id=f"sqlite {' '.join(point)}") for point in POINTS] + [
    # Who takes which lock when is decided where generations and results are written.
    pytest.param(
        "postgres",
        point,
        id=f"postgres {' '.join(point)}",
        marks=() if point[0] == "before" else pytest.mark.chaos,
    )
    for point in POINTS
]


def folder(desk: IndexedFolder) -> None:
    """One for the short path, and one with tasks for pages and then for vectors."""
    desk.put("sub/small.md", "Water drives the wheel.")
    desk.put("sub/paper.pdf", pdf(*(f"Words of page {number}." for number in range(34))))


def submit(desk: IndexedFolder, item_type: str, op: str, **payload: object) -> None:
    desk.app.submit(item_type=item_type, op=op, payload=payload)


def delete_folder(desk: IndexedFolder) -> None:
    submit(desk, "folder", "delete", folder_path=str(desk.folder))


def delete_tenant(desk: IndexedFolder) -> None:
    submit(desk, "delete_tenant", "delete", tenant_id_to_delete="default")


def rename_folder(desk: IndexedFolder) -> None:
    old, new = desk.folder / "sub", desk.folder / "moved"
    old.rename(new)
    submit(desk, "rename", "update", old_path=str(old), new_path=str(new), is_folder=True)


def rename_files(desk: IndexedFolder) -> None:
    for old in (desk.folder / "sub").iterdir():
        new = old.with_name(f"new-{old.name}")
        old.rename(new)
        submit(desk, "rename", "update", old_path=str(old), new_path=str(new), is_folder=False)


def edit(desk: IndexedFolder) -> None:
    for path in (desk.folder / "sub").iterdir():
        if path.suffix == ".pdf":
            path.write_bytes(pdf(*(f"Other words of page {number}." for number in range(35))))
        else:
            path.write_text(path.read_text() + "\n\nAnd more.")
        submit(desk, "file", "update", file_path=str(path))


def remove_files(desk: IndexedFolder) -> None:
    for path in (desk.folder / "sub").iterdir():
        path.unlink()
        submit(desk, "file", "ingest", file_path=str(path))


def index_below(desk: IndexedFolder) -> None:
    """Two requests for overlapping folders."""
    desk.app.index(desk.folder / "sub")


def index_files(desk: IndexedFolder) -> None:
    """A job for each file against the walk of their folder."""
    for path in (desk.folder / "sub").iterdir():
        desk.app.index(path)


def delete_and_add_again(desk: IndexedFolder) -> None:
    delete_folder(desk)
    desk.app.index(desk.folder)
    desk.app.index(desk.folder / "sub")


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


def begun(desk: IndexedFolder, hand: Hand) -> None:
    """The walk is over, its files are next."""
    desk.app.index(desk.folder)
    hand.run_jobs()


def compare(desk: IndexedFolder, expected: Shown) -> None:
    settled(desk.app)
    assert expected == shown(desk.app.documents.catalog, desk.folder)


@pytest.mark.parametrize(("desk", "point"), MEETINGS, indirect=["desk"])
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_first_ingest_is_met_by_another_request(
    desk: IndexedFolder, tmp_path: Path, point: tuple[str, str], action: Callable[[IndexedFolder], None]
):
    folder(desk)
    with desk.by_hand() as hand, desk.by_hand() as other:
        begun(desk, hand)

        def interrupt() -> None:
            action(desk)
            other.run_jobs()

        hand.stops.at(*point, interrupt)
        hand.drain()
        assert [point] == hand.stops.reached

    wanted = action not in (delete_folder, delete_tenant)
    compare(desk, fresh(tmp_path, desk.folder) if wanted else NOTHING)


@on_both
def test_an_edit_taken_back_before_the_old_is_swept_loses_nothing(desk: IndexedFolder, tmp_path: Path):
    path = desk.put("book.md", book(260))
    first = path.read_text()
    with desk.by_hand() as hand:
        for text in (first, first.replace("subject7.", "topic7."), first):
            path.write_text(text)
            desk.app.index(path)
            while hand.run_jobs() is not None:
                continue
            # Tasks, but no sweep: what the outbox is to delete stays for the end.
            while tasks := [task for lane in Phase for task in hand.claim(lane)]:
                hand.catalog.settle(hand.phases.run(tasks[0].lane, tasks))
        hand.drain()

    compare(desk, fresh(tmp_path, desk.folder))


@on_both
def test_a_file_that_became_a_folder_or_a_link_is_forgotten(desk: IndexedFolder, tmp_path: Path):
    for name in ("a.md", "b.md", "c.md"):
        desk.put(name, f"Words of {name}.")
    desk.index()
    for name in ("a.md", "b.md"):
        (desk.folder / name).unlink()
    desk.put("a.md/inside.md", "Words inside.")
    (desk.folder / "b.md").symlink_to(desk.folder / "c.md")

    desk.index()

    compare(desk, fresh(tmp_path, desk.folder))


@on_both
def test_a_folder_that_became_a_file_is_forgotten(desk: IndexedFolder, tmp_path: Path):
    inside = desk.put("a.md/inside.md", "Words inside.")
    desk.put("b.md", "Words of b.")
    desk.index()
    inside.unlink()
    inside.parent.rmdir()
    desk.put("a.md", "Words of a.")

    desk.index()

    compare(desk, fresh(tmp_path, desk.folder))


@on_both
@pytest.mark.parametrize("told", [True, False])
def test_another_suffix_is_another_kind_of_file(desk: IndexedFolder, tmp_path: Path, told: bool):
    names = {"a.md": "a.txt", "b.md": "b.markdown", "c.txt": "c.html"}
    for name in names:
        desk.put(name, f"# Heading\n\ndef words():\n    return '{name}'\n")
    desk.index()
    for old, new in names.items():
        (desk.folder / old).rename(desk.folder / new)
        if told:
            paths = {"old_path": str(desk.folder / old), "new_path": str(desk.folder / new)}
            submit(desk, "rename", "update", **paths, is_folder=False)

    desk.index()

    compare(desk, fresh(tmp_path, desk.folder))
