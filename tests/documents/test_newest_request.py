"""The newest request wins: of a delete and an index, the one requested last decides, in any order of runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.catalog.values import Place, Walk
from penstock.queue.job import Claim, ClaimRequest, Job
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

DELETES: dict[str, Callable[[IndexedFolder], dict[str, Any]]] = {
    "document": lambda docs: _job("delete_document", document_id=str(docs.folder / "sub/mill.md")),
    "document by id": lambda docs: _job("delete_document", document_id=_id(docs, "sub/mill.md")),
    "file": lambda docs: _job("file", file_path=str(docs.folder / "sub/mill.md")),
    "folder": lambda docs: _job("folder", folder_path=str(docs.folder / "sub")),
    "folder above": lambda docs: _job("folder", folder_path=str(docs.folder.parent)),
    "tenant": lambda docs: _job("delete_tenant", tenant_id_to_delete="default"),
}


def _job(item_type: str, **payload: str) -> dict[str, Any]:
    return {"item_type": item_type, "op": "delete", "payload": payload}


def _id(docs: IndexedFolder, name: str) -> str:
    return docs.app.documents.source(str(docs.folder / name)).source_id


def walks(docs: IndexedFolder) -> list[Walk]:
    settings = docs.app.settings
    place = Place(settings.tenant_id, settings.collection, "main")
    with docs.app.documents.catalog.snapshot() as snapshot:
        return snapshot.walks(place, str(docs.folder / "mill.md"))


def claimed(docs: IndexedFolder) -> Claim:
    """A delete that runs slowly in another worker."""
    (claim,) = docs.app.queue.claim(ClaimRequest("slow", 1, timedelta(seconds=60)))
    return claim


def indexed_meanwhile(docs: IndexedFolder, worker: ManualWorker, what: str = "", **options: Any) -> Job:
    receipt = docs.app.index(docs.folder / what if what else docs.folder, **options)
    worker.drain()
    return docs.app.job(receipt.job_id)


@pytest.mark.parametrize("delete", DELETES)
def test_an_unchanged_file_asked_for_after_a_delete_stays(docs: IndexedFolder, delete: str):
    docs.put("sub/mill.md", "Water drives the wheel.")
    docs.index()
    source_id = _id(docs, "sub/mill.md")
    with docs.manual_worker() as worker:
        docs.app.submit(**DELETES[delete](docs))
        claim = claimed(docs)
        assert 1 == indexed_meanwhile(docs, worker).result["unchanged"]

        answer = worker.run(claim)

        assert 0 == answer["removed"]
        worker.drain()
    assert ["mill.md"] == docs.found("wheel", mode="keyword")
    assert source_id == _id(docs, "sub/mill.md")


def test_a_single_file_asked_for_after_a_delete_stays(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("other.md", "Another wheel.")
    docs.index()
    with docs.manual_worker() as worker:
        docs.app.submit(**_job("folder", folder_path=str(docs.folder)))
        claim = claimed(docs)
        assert "unchanged" == indexed_meanwhile(docs, worker, "mill.md").result["outcome"]

        assert 1 == worker.run(claim)["removed"]

        worker.drain()
    assert ["mill.md"] == docs.found("wheel", mode="keyword")


def test_only_what_the_later_walk_wants_stays(docs: IndexedFolder):
    for name in ("a.md", "b.txt", "gone.md", "left/out.md"):
        docs.put(name, f"Water drives the wheel of {name}.")
    docs.index()
    with docs.manual_worker() as worker:
        docs.app.submit(**_job("delete_tenant", tenant_id_to_delete="default"))
        claim = claimed(docs)
        indexed_meanwhile(docs, worker, include=["*.md"], exclude=["left/"])
        (docs.folder / "gone.md").unlink()

        assert 3 == worker.run(claim)["removed"]

        worker.drain()
    assert ["a.md"] == docs.found("wheel", mode="keyword")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delete_in_the_middle_of_a_later_walk_takes_nothing_from_it(docs: IndexedFolder, when: str):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    with docs.manual_worker() as worker, docs.manual_worker() as slow:
        docs.app.submit(**_job("delete_document", document_id=str(docs.folder / "mill.md")))
        claim = claimed(docs)
        worker.paused.at(when, "announce", lambda: slow.run(claim))

        indexed_meanwhile(docs, worker)

        assert [(when, "announce")] == worker.paused.reached
    assert ["mill.md"] == docs.found("wheel", mode="keyword")


def test_a_walk_that_begins_after_a_later_one_was_heard_is_heard_too(docs: IndexedFolder):
    for name in ("one/mill.md", "two/pond.md"):
        docs.put(name, f"Water drives the wheel of {name}.")
    docs.index()
    with docs.manual_worker() as worker, docs.manual_worker() as slow:
        docs.app.submit(**_job("folder", folder_path=str(docs.folder)))
        delete = claimed(docs)
        docs.app.index(docs.folder / "one")
        first = claimed(docs)
        indexed_meanwhile(docs, worker, "two")
        slow.paused.at("before", "touch", lambda: worker.run(first))

        assert 0 == slow.run(delete)["removed"]

        worker.drain()
    assert ["mill.md", "pond.md"] == sorted(docs.found("wheel", mode="keyword"))


def test_a_file_removed_while_it_is_found_unchanged_is_looked_at_again(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    with docs.manual_worker() as worker, docs.manual_worker() as slow:
        docs.app.submit(**_job("folder", folder_path=str(docs.folder)))
        claim = claimed(docs)
        worker.paused.at("before", "touch", lambda: slow.run(claim))
        receipt = docs.app.index(path)
        worker.drain()
        assert [("before", "touch")] == worker.paused.reached

    assert "indexed" == docs.finish(receipt.job_id).result["outcome"]
    assert ["mill.md"] == docs.found("wheel", mode="keyword")


def test_a_delete_asked_for_last_removes_what_was_asked_for_before(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    docs.index()
    assert 1 == len(walks(docs))

    assert 1 == docs.run("folder", "delete", {"folder_path": str(docs.folder)}).result["removed"]

    assert [] == docs.found("wheel", mode="keyword")
    assert [] == walks(docs)
