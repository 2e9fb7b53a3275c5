"""Verification of the index: every difference is listed, and repaired on request."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Penstock
from penstock.service.upkeep import Difference
from tests.documents.conftest import IndexedFolder
from tests.servers import postgres

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)


def behind(app: Penstock, place: Path, sqlite: str, postgresql: str) -> None:
    """Change the database directly, without the catalog."""
    if app.settings.url.startswith("sqlite"):
        connection: Any = sqlite3.connect(place / "queue.db", isolation_level=None)
        statement = sqlite
    else:
        connection, statement = psycopg.connect(postgres.store_at(place), autocommit=True), postgresql
    connection.execute(statement)
    connection.close()


def said(found: list[Difference]) -> list[str]:
    return sorted(f"{one.path or ''} {one.what}".strip() for one in found)


def test_every_difference_is_listed_and_put_right(docs: IndexedFolder, tmp_path: Path):
    for name in ("words", "vector", "changed", "gone", "sound"):
        docs.put(f"{name}.md", f"Text about {name} and water.")
    docs.index()
    docs.run("content", "ingest", {"content": "A note about water."})
    verifier = docs.app.verifier
    assert [] == list(verifier.differences())

    words, vector = (
        f"SELECT id FROM catalog_content WHERE text LIKE 'Text about {name}%'" for name in ("words", "vector")
    )
    behind(
        docs.app,
        tmp_path,
        "INSERT INTO catalog_keyword (catalog_keyword, rowid, text)"
        f" SELECT 'delete', id, text FROM catalog_content WHERE id IN ({words})",
        f"DELETE FROM catalog_keyword WHERE content_id IN ({words})",
    )
    behind(
        docs.app,
        tmp_path,
        f"DELETE FROM catalog_vector WHERE id / 256 IN ({vector})",
        f"DELETE FROM catalog_vector WHERE content_id IN ({vector})",
    )
    docs.put("changed.md", "Text about change and water, and more.")
    (docs.folder / "gone.md").unlink()

    found = list(verifier.differences())

    inside = [one.what.partition(f" of {docs.folder}/")[2] for one in found if one.path is None]
    assert ["vector.md has no vector", "words.md has no keyword entry"] == sorted(inside)
    assert [
        f"{docs.folder}/changed.md has changed since it was indexed",
        f"{docs.folder}/gone.md is indexed, but not on the disk",
    ] == said([one for one in found if one.path is not None])
    assert [] == docs.found("words", mode="keyword")

    assert 2 == verifier.repair()
    receipts = verifier.fix(found)
    with docs.app.worker_thread():
        for receipt in receipts:
            docs.app.wait(receipt.job_id, timeout=120)
    with docs.manual_worker() as worker:
        worker.run_tasks()

    assert [] == list(verifier.differences())
    assert ["words.md"] == docs.found("words", mode="keyword")
    assert "vector.md" in docs.found("vector", mode="vector")
    assert [] == docs.found("gone", mode="keyword")


def test_what_cannot_be_repaired_is_named_and_can_be_made_anew(docs: IndexedFolder, tmp_path: Path):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    behind(docs.app, tmp_path, *["DELETE FROM catalog_content"] * 2)
    behind(docs.app, tmp_path, *["UPDATE documents SET chunk_count = 7"] * 2)
    verifier = docs.app.verifier

    verifier.repair()

    # The count is repaired; a lost text cannot be.
    (left,) = [one.what for one in verifier.differences()]
    assert left.endswith(f" of {path} has no text")
    docs.run("delete_document", "delete", {"document_id": str(path)})
    docs.index()
    assert [] == list(verifier.differences())
    assert ["mill.md"] == docs.found("wheel", mode="keyword")


def moved_away(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def emptied(folder: Path) -> None:
    moved_away(folder)
    folder.mkdir()


def a_file_instead(folder: Path) -> None:
    moved_away(folder)
    folder.touch()


AWAY = (moved_away, emptied, a_file_instead)


@pytest.mark.parametrize("how", AWAY)
def test_what_is_away_with_its_root_is_left_alone(docs: IndexedFolder, how: Callable[[Path], None]):
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("gate.md", "Another wheel.")
    docs.index()
    how(docs.folder)
    # Another file is present: by that alone the missing files would count as gone.
    (docs.folder.parent / "other.md").write_text("Something else.")

    found = list(docs.app.verifier.differences())

    assert ["is indexed, but not on the disk"] * 2 == [one.what for one in found]
    assert all(str(docs.folder) in (one.left_alone or "") for one in found)
    assert [] == docs.app.verifier.fix(found)
    assert ["gate.md", "mill.md"] == sorted(docs.found("wheel", mode="keyword"))


def test_a_disk_that_goes_between_the_look_and_the_repair_takes_nothing_along(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("gone.md", "Another wheel.")
    docs.index()
    (docs.folder / "gone.md").unlink()
    (found,) = docs.app.verifier.differences()
    (receipt,) = docs.app.verifier.fix([found])

    docs.folder.rename(docs.folder.with_name("elsewhere"))
    job = docs.finish(receipt.job_id)
    assert ("kept", True) == (job.result["outcome"], str(docs.folder) in job.result["note"])

    docs.folder.with_name("elsewhere").rename(docs.folder)
    (receipt,) = docs.app.verifier.fix([found])
    assert "removed" == docs.finish(receipt.job_id).result["outcome"]


def test_a_single_file_is_gone_only_from_a_folder_that_holds_something(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index(path)
    path.unlink()

    (found,) = docs.app.verifier.differences()
    assert found.left_alone is not None

    (docs.folder / "other.md").touch()
    (found,) = docs.app.verifier.differences()
    assert found.left_alone is None


def test_what_cannot_be_looked_at_is_left_alone(docs: IndexedFolder):
    docs.put("deep/mill.md", "Water drives the wheel.")
    docs.index()
    folder = docs.folder / "deep"
    (folder / "mill.md").unlink()
    folder.rmdir()
    # A loop of links: not even root can read it.
    folder.symlink_to(folder)

    (found,) = docs.app.verifier.differences()

    assert "cannot be read" in found.what
    assert [] == docs.app.verifier.fix([found])


def test_contents_are_compared_where_size_and_time_say_nothing(docs: IndexedFolder):
    first, second = docs.put("a.md", "Water drives the wheel."), docs.put("b.md", "Grain feeds the miller.")
    for path in (first, second):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    docs.index()
    swapped = [second.read_bytes(), first.read_bytes()]
    for path, content in zip((first, second), swapped, strict=True):
        path.write_bytes(content)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    assert [] == list(docs.app.verifier.differences())
    found = list(docs.app.verifier.differences(checksum=True))
    assert [f"{path} has changed content, but the same size and time" for path in (first, second)] == said(
        found
    )

    for receipt in docs.app.verifier.fix(found):
        assert "indexed" == docs.finish(receipt.job_id).result["outcome"]
    assert [] == list(docs.app.verifier.differences(checksum=True))
    assert ["b.md"] == docs.found("wheel", mode="keyword")


def test_a_plain_request_for_the_file_does_not_stand_in_for_the_repair_of_its_content(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the mill.")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    docs.index()
    path.write_text("Water drives the duck.")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (receipt,) = docs.app.verifier.fix(list(docs.app.verifier.differences(checksum=True)))
    docs.app.index(path)

    assert "indexed" == docs.finish(receipt.job_id).result["outcome"]
    assert [] == list(docs.app.verifier.differences(checksum=True))
