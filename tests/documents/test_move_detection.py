"""Files moved without notice: a walk detects the move, and the source is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import clock
from penstock.catalog.values import Place
from penstock.handlers.missing_files import MoveDetection, unknown_at
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.queue.job import Job
from tests.documents.conftest import IndexedFolder, book
from tests.servers.stores import FIRST, others_later

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


def ids(docs: IndexedFolder, **where: str) -> dict[str, str]:
    found = docs.app.documents.sources(limit=1000, **where)
    return {source.path.removeprefix(f"{docs.folder}/"): source.source_id for source in found}


def chunk_ids(docs: IndexedFolder, query: str) -> list[str]:
    return [hit.chunk_id for hit in docs.app.search(query, mode="keyword", per_source=None)]


def files_read(docs: IndexedFolder, job: Job) -> int:
    return len(docs.app.jobs(item_type="file", parent_id=job.queue_id, limit=1000))


def told(job: Job) -> dict[str, Any]:
    counts: dict[str, Any] = job.result or (job.progress or {})["counts"]
    return counts


def test_a_moved_folder_keeps_every_id_and_adds_no_job(docs: IndexedFolder):
    for number in range(30):
        docs.put(f"old/{number % 3}/{number}.md", f"Text number{number} of the mill.")
    docs.index()
    before, chunks = ids(docs), chunk_ids(docs, "number7")
    (docs.folder / "old").rename(docs.folder / "new")

    job = docs.index()

    assert {name.replace("old/", "new/"): found for name, found in before.items()} == ids(docs)
    assert chunks == chunk_ids(docs, "number7")
    assert ("moved", 30, 0) == (told(job)["outcome"], told(job)["moved"], files_read(docs, job))
    assert "unchanged" == told(docs.index())["outcome"]


@pytest.mark.parametrize(("old", "new"), [("a.md", "z.md"), ("z.md", "a.md")], ids=["down", "up"])
def test_it_does_not_matter_which_path_the_walk_meets_first(docs: IndexedFolder, old: str, new: str):
    docs.put("m.md", "Bread comes out of the oven.")
    path = docs.put(old, "Water drives the wheel.")
    docs.index()
    before = ids(docs)[old]
    path.rename(docs.folder / new)

    docs.index()

    assert {"m.md", new} == set(ids(docs))
    assert before == ids(docs)[new]


def test_a_copy_that_took_the_place_of_the_file_is_the_same_source(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.put("other.md", "Bread comes out of the oven.")
    docs.index()
    before = ids(docs)["old.md"]
    docs.put("deep/new.md", path.read_bytes())
    path.unlink()

    docs.index()

    assert before == ids(docs)["deep/new.md"]


def test_a_copy_beside_the_file_is_another_source(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.index()
    before = ids(docs)["old.md"]
    docs.put("copy.md", path.read_bytes())

    docs.index()

    assert {"copy.md", "old.md"} == set(ids(docs))
    assert before == ids(docs)["old.md"] != ids(docs)["copy.md"]


def test_files_of_equal_content_go_by_their_names_and_none_twice(docs: IndexedFolder):
    for name in ("a/LICENSE.md", "b/LICENSE.md", "c/COPYING.md"):
        docs.put(name, "Do what you like with the water.")
    docs.index()
    before = ids(docs)
    for name in "abc":
        (docs.folder / name).rename(docs.folder / f"new-{name}")
    (docs.folder / "new-b" / "LICENSE.md").unlink()
    docs.put("one-more.md", "Do what you like with the water.")
    docs.put("and-more.md", "Do what you like with the water.")

    docs.index()

    after = ids(docs)
    assert 4 == len(set(after.values()))
    assert before["c/COPYING.md"] == after["new-c/COPYING.md"]
    assert after["new-a/LICENSE.md"] in (before["a/LICENSE.md"], before["b/LICENSE.md"])
    assert set(before.values()) < set(after.values())


def test_a_file_moved_and_edited_is_removed_and_added(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.put("other.md", "Bread comes out of the oven.")
    docs.index()
    before = ids(docs)["old.md"]
    path.unlink()
    docs.put("new.md", "Water drives the wheel. And bread.")

    docs.index()

    assert {"new.md", "other.md"} == set(ids(docs))
    assert before != ids(docs)["new.md"]


def test_a_file_moved_from_one_indexed_folder_to_another(docs: IndexedFolder):
    for name in ("one/a.md", "one/b.md", "two/c.md"):
        docs.put(name, f"Text of {name}.")
    docs.index(docs.folder / "one")
    docs.index(docs.folder / "two")
    before = ids(docs)["one/a.md"]
    (docs.folder / "one" / "a.md").rename(docs.folder / "two" / "a.md")

    docs.index(docs.folder / "two")

    assert before == ids(docs)["two/a.md"]
    docs.index(docs.folder / "one")
    assert {"one/b.md", "two/a.md", "two/c.md"} == set(ids(docs))


def test_what_lies_on_a_disk_that_is_away_is_not_taken_for_moved(docs: IndexedFolder, tmp_path: Path):
    disk = tmp_path / "disk"
    for name in ("a.md", "b.md"):
        docs.put(f"../disk/{name}", f"Text of {name}.")
    docs.index(disk)
    before = ids(docs)
    disk.rename(tmp_path / "elsewhere")
    disk.mkdir()
    docs.put("a.md", "Text of a.md.")

    docs.index()

    assert before.items() <= ids(docs).items()
    assert 3 == len(ids(docs))


def test_another_place_is_another_source(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.index(collection="one")
    docs.index(collection="two")
    before = ids(docs, collection="one")
    path.rename(docs.folder / "new.md")

    docs.index(collection="one")

    assert before["old.md"] == ids(docs, collection="one")["new.md"]
    assert {"old.md"} == set(ids(docs, collection="two"))


def test_a_moved_document_of_many_tasks_keeps_them_done(docs: IndexedFolder):
    path = docs.put("book.md", book(300))
    docs.index()
    before = ids(docs)["book.md"]
    path.rename(docs.folder / "tome.md")

    assert 1 == told(docs.index())["moved"]

    assert {"tome.md": before} == ids(docs)
    assert ["tome.md"] == docs.found("subject277", mode="keyword")


def test_a_moved_file_that_is_indexed_by_its_name_is_found_too(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.put("other.md", "Bread comes out of the oven.")
    docs.index()
    before = ids(docs)["old.md"]

    job = docs.index(path.rename(docs.folder / "new.md"))

    assert ({"outcome": "unchanged"}, before) == (job.result, ids(docs)["new.md"])


def test_what_was_cut_otherwise_is_moved_and_cut_anew(docs: IndexedFolder):
    path = docs.put("old.md", book(3))
    docs.index()
    before = ids(docs)["old.md"]
    path.rename(docs.folder / "new.md")

    job = docs.index(chunk_size=64)

    assert (1, 1) == (told(job)["moved"], told(job)["changed"])
    assert {"new.md": before} == ids(docs)


def test_a_walk_that_died_halfway_is_finished_by_the_next(docs: IndexedFolder):
    for number in range(10):
        docs.put(f"old/{number}.md", f"Text number{number} of the mill.")
    docs.index()
    before = ids(docs)
    (docs.folder / "old").rename(docs.folder / "new")
    half = [str(docs.folder / f"new/{number}.md") for number in range(5)]
    place = Place(docs.app.settings.tenant_id, docs.app.settings.collection)
    twins = MoveDetection(docs.app.documents.catalog, place, limits=ExtractLimits())
    assert 5 == len(twins.move([file for path in half for file in unknown_at(path)], clock.now()))

    job = docs.index()

    assert 5 == told(job)["moved"]
    assert {name.replace("old/", "new/"): found for name, found in before.items()} == ids(docs)


def test_a_note_with_the_text_of_a_file_stays_a_note(docs: IndexedFolder):
    docs.run("content", "ingest", {"content": "Water drives the wheel."})
    docs.put("other", "Bread comes out of the oven.")
    docs.index()
    docs.put("README", "Water drives the wheel.")

    docs.index()

    assert 3 == len(ids(docs))
    assert 1 == sum(path.startswith("note:") for path in ids(docs))
