"""Renames and deletes: the index equals the disk, and nothing is embedded again."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.identity import text_hash
from penstock.errors import JobNotFound, UnknownDocument
from penstock.queue.job import Status
from tests.documents.conftest import QUEUES, IndexedFolder
from tests.servers.stores import others_later

pytestmark = pytest.mark.parametrize("docs", others_later(QUEUES), indirect=True)


def rename(docs: IndexedFolder, old: str, new: str, *, folder: bool = False):
    payload = {"old_path": str(docs.folder / old), "new_path": str(docs.folder / new), "is_folder": folder}
    return docs.run("rename", "update", payload)


def paths(docs: IndexedFolder) -> list[str]:
    found = docs.app.documents.sources(limit=100)
    return sorted(source.path.removeprefix(f"{docs.folder}/") for source in found)


def embedded(docs: IndexedFolder) -> int:
    jobs = docs.app.jobs(item_type="file", limit=100)
    return sum((job.result or {}).get("embedded", 0) for job in jobs)


def test_a_renamed_file_keeps_what_was_made_of_it(docs: IndexedFolder):
    docs.put("old.md", "Water drives the wheel.")
    docs.index()
    (before,) = docs.app.documents.sources()
    made = embedded(docs)
    (docs.folder / "old.md").rename(docs.folder / "new.md")

    assert Status.DONE is rename(docs, "old.md", "new.md").status

    (after,) = docs.app.documents.sources()
    assert (before.source_id, "new.md") == (after.source_id, paths(docs)[0])
    assert made == embedded(docs)
    assert ["new.md"] == docs.found("wheel")


def test_a_file_renamed_to_another_type_is_read_as_that(docs: IndexedFolder):
    path = docs.put("old.txt", "# Wheel\n\nWater drives the wheel.")
    docs.index()
    (before,) = docs.app.documents.sources()
    path.rename(docs.folder / "new.md")

    rename(docs, "old.txt", "new.md")

    (hit,) = docs.app.search("wheel", mode="keyword", file_type="md")
    assert (before.source_id, "Wheel") == (hit.source_id, hit.heading)


def test_a_renamed_folder_takes_everything_below_it_along(docs: IndexedFolder):
    for name in ("a/1.md", "a/b/2.md", "ab.md"):
        docs.put(name, f"Text of {name}.")
    docs.index()
    made = embedded(docs)
    (docs.folder / "a").rename(docs.folder / "c")

    assert Status.DONE is rename(docs, "a", "c", folder=True).status

    assert ["ab.md", "c/1.md", "c/b/2.md"] == paths(docs)
    assert made == embedded(docs)


def test_a_rename_that_is_overtaken_ends_as_the_disk_is(docs: IndexedFolder):
    docs.put("a.md", "Water drives the wheel.")
    docs.index()
    (docs.folder / "a.md").rename(docs.folder / "c.md")
    docs.index()

    # Reported late, for an intermediate path.
    rename(docs, "a.md", "b.md")

    assert ["c.md"] == paths(docs)


def test_a_rename_over_another_file_replaces_it(docs: IndexedFolder):
    docs.put("a.md", "Water drives the wheel.")
    docs.put("b.md", "Bread comes out of the oven.")
    docs.index()
    (docs.folder / "a.md").replace(docs.folder / "b.md")

    rename(docs, "a.md", "b.md")

    assert ["b.md"] == paths(docs)
    assert [] == docs.found("bread", mode="keyword")
    assert ["b.md"] == docs.found("wheel", mode="keyword")


def test_a_copy_is_no_rename(docs: IndexedFolder):
    docs.put("a.md", "Water drives the wheel.")
    docs.index()
    docs.put("b.md", "Water drives the wheel.")

    rename(docs, "a.md", "b.md")

    assert ["a.md", "b.md"] == paths(docs)


def test_a_document_is_deleted_by_id_or_path_and_foreign_points_are_reported(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the wheel.")
    docs.put("b.md", "Bread comes out of the oven.")
    docs.index()
    (hit,) = docs.app.search("bread", mode="keyword")

    by_path = docs.run("delete_document", "delete", {"document_id": str(path), "point_ids": [hit.chunk_id]})
    by_id = docs.run("delete_document", "delete", {"document_id": hit.source_id, "point_ids": [hit.chunk_id]})

    assert {"outcome": "removed", "removed": 1, "not_its_own": [hit.chunk_id]} == by_path.result
    assert {"outcome": "removed", "removed": 1} == by_id.result
    assert [] == paths(docs)
    unknown = docs.run("delete_document", "delete", {"document_id": hit.source_id})
    assert (Status.FAILED, "ERR_UNKNOWN_DOCUMENT") == (unknown.status, unknown.error_code)


def test_a_tenant_goes_with_everything_and_leaves_the_others(docs: IndexedFolder):
    for number in range(30):
        docs.put(f"{number}.md", f"Text number {number}.")
    docs.index(tenant_id="acme")
    docs.index(tenant_id="other")

    job = docs.run("delete_tenant", "delete", {"tenant_id_to_delete": "acme"})

    assert {"outcome": "removed", "removed": 30, "jobs": 31} == job.result
    assert [("other", 30)] == [
        (tenant.tenant_id, tenant.sources) for tenant in docs.app.documents.overview().tenants
    ]
    assert [] == docs.app.documents.catalog.outbox()
    with docs.app.documents.catalog.snapshot() as snapshot:
        space = snapshot.spaces("other")[0].name
        hashes = [text_hash(f"Text number {number}.") for number in range(30)]
        assert {} == snapshot.vectors("acme", space, hashes)


def test_what_is_asked_for_again_after_a_deletion_comes_back(docs: IndexedFolder):
    """One live job serves both requests; the deletion came between them."""
    path = docs.put("a.md", "Water drives the wheel.")
    docs.app.pause(tenant_id="acme")
    docs.app.index(path, tenant_id="acme")
    deletion = docs.app.submit(
        item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"}
    )
    receipt = docs.app.index(path, tenant_id="acme")
    assert receipt.dedupe_hit
    docs.finish(deletion.job_id)

    docs.app.resume(tenant_id="acme")
    with docs.app.worker_thread():
        job = docs.app.wait(receipt.job_id, timeout=60)

    assert "indexed" == (job.result or {})["outcome"]


def test_what_was_asked_for_before_a_deletion_stays_away(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the wheel.")
    docs.app.pause(tenant_id="acme")
    receipt = docs.app.index(path, tenant_id="acme")
    docs.run("delete_tenant", "delete", {"tenant_id_to_delete": "acme"})

    docs.app.resume(tenant_id="acme")
    with pytest.raises(JobNotFound):
        docs.app.job(receipt.job_id)
    assert [] == docs.app.documents.overview().tenants


def test_what_was_removed_is_gone_before_it_is_swept(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    path = docs.put("oven.md", "Bread comes out of the oven.")
    docs.index()
    path.unlink()
    path.mkdir()

    with docs.manual_worker() as worker:
        docs.app.index(docs.folder)
        while worker.run_jobs() is not None:
            continue

        with pytest.raises(UnknownDocument):
            docs.app.documents.source(str(path))
        assert {"indexed": 1} == docs.app.documents.why(docs.folder).counts
        assert "folder" == docs.app.documents.removal(str(path))["item_type"]
        worker.drain()
