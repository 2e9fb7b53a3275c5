"""Of a delete and an index the one asked for last has the last word, whichever of them runs last."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.catalog.values import Place, Walk
from penstock.job import Claim, ClaimRequest, Job
from tests.documents.conftest import Hand, IndexedFolder

pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)

DELETES: dict[str, Callable[[IndexedFolder], dict[str, Any]]] = {
    "document": lambda desk: _job("delete_document", document_id=str(desk.folder / "sub/mill.md")),
    "document by id": lambda desk: _job("delete_document", document_id=_id(desk, "sub/mill.md")),
    "file": lambda desk: _job("file", file_path=str(desk.folder / "sub/mill.md")),
    "folder": lambda desk: _job("folder", folder_path=str(desk.folder / "sub")),
    "folder above": lambda desk: _job("folder", folder_path=str(desk.folder.parent)),
    "tenant": lambda desk: _job("delete_tenant", tenant_id_to_delete="default"),
}


def _job(item_type: str, **payload: str) -> dict[str, Any]:
    return {"item_type": item_type, "op": "delete", "payload": payload}


def _id(desk: IndexedFolder, name: str) -> str:
    return desk.app.documents.source(str(desk.folder / name)).source_id


def walks(desk: IndexedFolder) -> list[Walk]:
    settings = desk.app.settings
    place = Place(settings.tenant_id, settings.collection, "main")
    with desk.app.documents.catalog.snapshot() as snapshot:
        return snapshot.walks(place, str(desk.folder / "mill.md"))


def claimed(desk: IndexedFolder) -> Claim:
    """The delete is another worker's, who takes his time."""
    (claim,) = desk.app.queue.claim(ClaimRequest("slow", 1, timedelta(seconds=60)))
    return claim


def indexed_meanwhile(desk: IndexedFolder, hand: Hand, what: str = "", **options: Any) -> Job:
    receipt = desk.app.index(desk.folder / what if what else desk.folder, **options)
    hand.drain()
    return desk.app.job(receipt.job_id)


@pytest.mark.parametrize("delete", DELETES)
def test_an_unchanged_file_asked_for_after_a_delete_stays(desk: IndexedFolder, delete: str):
    desk.put("sub/mill.md", "Water drives the wheel.")
    desk.index()
    source_id = _id(desk, "sub/mill.md")
    with desk.by_hand() as hand:
        desk.app.submit(**DELETES[delete](desk))
        claim = claimed(desk)
        assert 1 == indexed_meanwhile(desk, hand).result["unchanged"]

        answer = hand.run(claim)

        assert 0 == answer["removed"]
        hand.drain()
    assert ["mill.md"] == desk.found("wheel", mode="keyword")
    assert source_id == _id(desk, "sub/mill.md")


def test_a_single_file_asked_for_after_a_delete_stays(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.put("other.md", "Another wheel.")
    desk.index()
    with desk.by_hand() as hand:
        desk.app.submit(**_job("folder", folder_path=str(desk.folder)))
        claim = claimed(desk)
        assert "unchanged" == indexed_meanwhile(desk, hand, "mill.md").result["outcome"]

        assert 1 == hand.run(claim)["removed"]

        hand.drain()
    assert ["mill.md"] == desk.found("wheel", mode="keyword")


def test_only_what_the_later_walk_wants_stays(desk: IndexedFolder):
    for name in ("a.md", "b.txt", "gone.md", "left/out.md"):
        desk.put(name, f"Water drives the wheel of {name}.")
    desk.index()
    with desk.by_hand() as hand:
        desk.app.submit(**_job("delete_tenant", tenant_id_to_delete="default"))
        claim = claimed(desk)
        indexed_meanwhile(desk, hand, include=["*.md"], exclude=["left/"])
        (desk.folder / "gone.md").unlink()

        assert 3 == hand.run(claim)["removed"]

        hand.drain()
    assert ["a.md"] == desk.found("wheel", mode="keyword")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delete_in_the_middle_of_a_later_walk_takes_nothing_from_it(desk: IndexedFolder, when: str):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    with desk.by_hand() as hand, desk.by_hand() as slow:
        desk.app.submit(**_job("delete_document", document_id=str(desk.folder / "mill.md")))
        claim = claimed(desk)
        hand.stops.at(when, "announce", lambda: slow.run(claim))

        indexed_meanwhile(desk, hand)

        assert [(when, "announce")] == hand.stops.reached
    assert ["mill.md"] == desk.found("wheel", mode="keyword")


def test_a_walk_that_begins_after_a_later_one_was_heard_is_heard_too(desk: IndexedFolder):
    for name in ("one/mill.md", "two/pond.md"):
        desk.put(name, f"Water drives the wheel of {name}.")
    desk.index()
    with desk.by_hand() as hand, desk.by_hand() as slow:
        desk.app.submit(**_job("folder", folder_path=str(desk.folder)))
        delete = claimed(desk)
        desk.app.index(desk.folder / "one")
        first = claimed(desk)
        indexed_meanwhile(desk, hand, "two")
        slow.stops.at("before", "touch", lambda: hand.run(first))

        assert 0 == slow.run(delete)["removed"]

        hand.drain()
    assert ["mill.md", "pond.md"] == sorted(desk.found("wheel", mode="keyword"))


def test_a_file_removed_while_it_is_found_unchanged_is_looked_at_again(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    with desk.by_hand() as hand, desk.by_hand() as slow:
        desk.app.submit(**_job("folder", folder_path=str(desk.folder)))
        claim = claimed(desk)
        hand.stops.at("before", "touch", lambda: slow.run(claim))
        receipt = desk.app.index(path)
        hand.drain()
        assert [("before", "touch")] == hand.stops.reached

    assert "indexed" == desk.finish(receipt.job_id).result["outcome"]
    assert ["mill.md"] == desk.found("wheel", mode="keyword")


def test_a_delete_asked_for_last_removes_what_was_asked_for_before(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    desk.index()
    assert 1 == len(walks(desk))

    assert 1 == desk.run("folder", "delete", {"folder_path": str(desk.folder)}).result["removed"]

    assert [] == desk.found("wheel", mode="keyword")
    assert [] == walks(desk)
