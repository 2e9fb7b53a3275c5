"""Files that were moved on the disk without a word: a walk finds out, and the source stays what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import clock
from penstock.catalog.values import Place
from penstock.handlers.move_detection import MoveDetection, unknown_at
from penstock.job import Job
from tests.documents.conftest import IndexedFolder, book

# The queue has no part in it: one with each catalog is enough.
pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


def ids(desk: IndexedFolder, **where: str) -> dict[str, str]:
    found = desk.app.documents.sources(limit=1000, **where)
    return {source.path.removeprefix(f"{desk.folder}/"): source.source_id for source in found}


def chunk_ids(desk: IndexedFolder, query: str) -> list[str]:
    return [hit.chunk_id for hit in desk.app.search(query, mode="keyword", per_source=None)]


def files_read(desk: IndexedFolder, job: Job) -> int:
    return len(desk.app.jobs(item_type="file", parent_id=job.queue_id, limit=1000))


def told(job: Job) -> dict[str, Any]:
    counts: dict[str, Any] = job.result or (job.progress or {})["counts"]
    return counts


def test_a_moved_folder_keeps_every_id_and_adds_no_job(desk: IndexedFolder):
    for number in range(30):
        desk.put(f"old/{number % 3}/{number}.md", f"Text number{number} of the mill.")
    desk.index()
    before, chunks = ids(desk), chunk_ids(desk, "number7")
    (desk.folder / "old").rename(desk.folder / "new")

    job = desk.index()

    assert {name.replace("old/", "new/"): found for name, found in before.items()} == ids(desk)
    assert chunks == chunk_ids(desk, "number7")
    assert ("moved", 30, 0) == (told(job)["outcome"], told(job)["moved"], files_read(desk, job))
    assert "unchanged" == told(desk.index())["outcome"]


@pytest.mark.parametrize(("old", "new"), [("a.md", "z.md"), ("z.md", "a.md")], ids=["down", "up"])
def test_it_does_not_matter_which_path_the_walk_meets_first(desk: IndexedFolder, old: str, new: str):
    desk.put("m.md", "Bread comes out of the oven.")
    path = desk.put(old, "Water drives the wheel.")
    desk.index()
    before = ids(desk)[old]
    path.rename(desk.folder / new)

    desk.index()

    assert {"m.md", new} == set(ids(desk))
    assert before == ids(desk)[new]


def test_a_copy_that_took_the_place_of_the_file_is_the_same_source(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.put("other.md", "Bread comes out of the oven.")
    desk.index()
    before = ids(desk)["old.md"]
    desk.put("deep/new.md", path.read_bytes())
    path.unlink()

    desk.index()

    assert before == ids(desk)["deep/new.md"]


def test_a_copy_beside_the_file_is_another_source(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.index()
    before = ids(desk)["old.md"]
    desk.put("copy.md", path.read_bytes())

    desk.index()

    assert {"copy.md", "old.md"} == set(ids(desk))
    assert before == ids(desk)["old.md"] != ids(desk)["copy.md"]


def test_files_of_equal_content_go_by_their_names_and_none_twice(desk: IndexedFolder):
    for name in ("a/LICENSE.md", "b/LICENSE.md", "c/COPYING.md"):
        desk.put(name, "Do what you like with the water.")
    desk.index()
    before = ids(desk)
    for name in "abc":
        (desk.folder / name).rename(desk.folder / f"new-{name}")
    (desk.folder / "new-b" / "LICENSE.md").unlink()
    desk.put("one-more.md", "Do what you like with the water.")
    desk.put("and-more.md", "Do what you like with the water.")

    desk.index()

    after = ids(desk)
    assert 4 == len(set(after.values()))
    assert before["c/COPYING.md"] == after["new-c/COPYING.md"]
    assert after["new-a/LICENSE.md"] in (before["a/LICENSE.md"], before["b/LICENSE.md"])
    assert set(before.values()) < set(after.values())


def test_a_file_moved_and_edited_is_removed_and_added(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.put("other.md", "Bread comes out of the oven.")
    desk.index()
    before = ids(desk)["old.md"]
    path.unlink()
    desk.put("new.md", "Water drives the wheel. And bread.")

    desk.index()

    assert {"new.md", "other.md"} == set(ids(desk))
    assert before != ids(desk)["new.md"]


def test_a_file_moved_from_one_indexed_folder_to_another(desk: IndexedFolder):
    for name in ("one/a.md", "one/b.md", "two/c.md"):
        desk.put(name, f"Text of {name}.")
    desk.index(desk.folder / "one")
    desk.index(desk.folder / "two")
    before = ids(desk)["one/a.md"]
    (desk.folder / "one" / "a.md").rename(desk.folder / "two" / "a.md")

    desk.index(desk.folder / "two")

    assert before == ids(desk)["two/a.md"]
    desk.index(desk.folder / "one")
    assert {"one/b.md", "two/a.md", "two/c.md"} == set(ids(desk))


def test_what_lies_on_a_disk_that_is_away_is_not_taken_for_moved(desk: IndexedFolder, tmp_path: Path):
    disk = tmp_path / "disk"
    for name in ("a.md", "b.md"):
        desk.put(f"../disk/{name}", f"Text of {name}.")
    desk.index(disk)
    before = ids(desk)
    disk.rename(tmp_path / "elsewhere")
    disk.mkdir()
    desk.put("a.md", "Text of a.md.")

    desk.index()

    assert before.items() <= ids(desk).items()
    assert 3 == len(ids(desk))


def test_another_place_is_another_source(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.index(collection="one")
    desk.index(collection="two")
    before = ids(desk, collection="one")
    path.rename(desk.folder / "new.md")

    desk.index(collection="one")

    assert before["old.md"] == ids(desk, collection="one")["new.md"]
    assert {"old.md"} == set(ids(desk, collection="two"))


def test_a_moved_document_of_many_tasks_keeps_them_done(desk: IndexedFolder):
    path = desk.put("book.md", book(300))
    desk.index()
    before = ids(desk)["book.md"]
    path.rename(desk.folder / "tome.md")

    assert 1 == told(desk.index())["moved"]

    assert {"tome.md": before} == ids(desk)
    assert ["tome.md"] == desk.found("subject277", mode="keyword")


def test_a_moved_file_that_is_indexed_by_its_name_is_found_too(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.put("other.md", "Bread comes out of the oven.")
    desk.index()
    before = ids(desk)["old.md"]

    job = desk.index(path.rename(desk.folder / "new.md"))

    assert ({"outcome": "unchanged"}, before) == (job.result, ids(desk)["new.md"])


def test_what_was_cut_otherwise_is_moved_and_cut_anew(desk: IndexedFolder):
    path = desk.put("old.md", book(3))
    desk.index()
    before = ids(desk)["old.md"]
    path.rename(desk.folder / "new.md")

    job = desk.index(chunk_size=64)

    assert (1, 1) == (told(job)["moved"], told(job)["changed"])
    assert {"new.md": before} == ids(desk)


def test_a_walk_that_died_halfway_is_finished_by_the_next(desk: IndexedFolder):
    for number in range(10):
        desk.put(f"old/{number}.md", f"Text number{number} of the mill.")
    desk.index()
    before = ids(desk)
    (desk.folder / "old").rename(desk.folder / "new")
    half = [str(desk.folder / f"new/{number}.md") for number in range(5)]
    place = Place(desk.app.settings.tenant_id, desk.app.settings.collection)
    twins = MoveDetection(desk.app.documents.catalog, place, most_bytes=1000)
    assert 5 == len(twins.move([file for path in half for file in unknown_at(path)], clock.now()))

    job = desk.index()

    assert 5 == told(job)["moved"]
    assert {name.replace("old/", "new/"): found for name, found in before.items()} == ids(desk)


def test_a_note_with_the_text_of_a_file_stays_a_note(desk: IndexedFolder):
    desk.run("content", "ingest", {"content": "Water drives the wheel."})
    desk.put("other", "Bread comes out of the oven.")
    desk.index()
    desk.put("README", "Water drives the wheel.")

    desk.index()

    assert 3 == len(ids(desk))
    assert 1 == sum(path.startswith("note:") for path in ids(desk))
