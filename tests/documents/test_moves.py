"""Renames and deletes: the index shows what the disk has, and nothing is embedded again."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.identity import text_hash
from penstock.errors import JobNotFound, UnknownDocument
from penstock.job import Status
from tests.documents.conftest import IndexedFolder


def rename(desk: IndexedFolder, old: str, new: str, *, folder: bool = False):
    payload = {"old_path": str(desk.folder / old), "new_path": str(desk.folder / new), "is_folder": folder}
    return desk.run("rename", "update", payload)


def paths(desk: IndexedFolder) -> list[str]:
    found = desk.app.documents.sources(limit=100)
    return sorted(source.path.removeprefix(f"{desk.folder}/") for source in found)


def embedded(desk: IndexedFolder) -> int:
    jobs = desk.app.jobs(item_type="file", limit=100)
    return sum((job.result or {}).get("embedded", 0) for job in jobs)


def test_a_renamed_file_keeps_what_was_made_of_it(desk: IndexedFolder):
    desk.put("old.md", "Water drives the wheel.")
    desk.index()
    (before,) = desk.app.documents.sources()
    made = embedded(desk)
    (desk.folder / "old.md").rename(desk.folder / "new.md")

    assert Status.DONE is rename(desk, "old.md", "new.md").status

    (after,) = desk.app.documents.sources()
    assert (before.source_id, "new.md") == (after.source_id, paths(desk)[0])
    assert made == embedded(desk)
    assert ["new.md"] == desk.found("wheel")


def test_a_file_renamed_to_another_type_is_read_as_that(desk: IndexedFolder):
    path = desk.put("old.txt", "# Wheel\n\nWater drives the wheel.")
    desk.index()
    (before,) = desk.app.documents.sources()
    path.rename(desk.folder / "new.md")

    rename(desk, "old.txt", "new.md")

    (hit,) = desk.app.search("wheel", mode="keyword", file_type="md")
    assert (before.source_id, "Wheel") == (hit.source_id, hit.heading)


def test_a_renamed_folder_takes_everything_below_it_along(desk: IndexedFolder):
    for name in ("a/1.md", "a/b/2.md", "ab.md"):
        desk.put(name, f"Text of {name}.")
    desk.index()
    made = embedded(desk)
    (desk.folder / "a").rename(desk.folder / "c")

    assert Status.DONE is rename(desk, "a", "c", folder=True).status

    assert ["ab.md", "c/1.md", "c/b/2.md"] == paths(desk)
    assert made == embedded(desk)


def test_a_rename_that_is_overtaken_ends_as_the_disk_is(desk: IndexedFolder):
    desk.put("a.md", "Water drives the wheel.")
    desk.index()
    (desk.folder / "a.md").rename(desk.folder / "c.md")
    desk.index()

    # Told late, and of a place it passed on its way.
    rename(desk, "a.md", "b.md")

    assert ["c.md"] == paths(desk)


def test_a_rename_over_another_file_replaces_it(desk: IndexedFolder):
    desk.put("a.md", "Water drives the wheel.")
    desk.put("b.md", "Bread comes out of the oven.")
    desk.index()
    (desk.folder / "a.md").replace(desk.folder / "b.md")

    rename(desk, "a.md", "b.md")

    assert ["b.md"] == paths(desk)
    assert [] == desk.found("bread", mode="keyword")
    assert ["b.md"] == desk.found("wheel", mode="keyword")


def test_a_copy_is_no_rename(desk: IndexedFolder):
    desk.put("a.md", "Water drives the wheel.")
    desk.index()
    desk.put("b.md", "Water drives the wheel.")

    rename(desk, "a.md", "b.md")

    assert ["a.md", "b.md"] == paths(desk)


def test_a_document_is_deleted_by_id_or_path_and_foreign_points_are_reported(desk: IndexedFolder):
    path = desk.put("a.md", "Water drives the wheel.")
    desk.put("b.md", "Bread comes out of the oven.")
    desk.index()
    (hit,) = desk.app.search("bread", mode="keyword")

    by_path = desk.run("delete_document", "delete", {"document_id": str(path), "point_ids": [hit.chunk_id]})
    by_id = desk.run("delete_document", "delete", {"document_id": hit.source_id, "point_ids": [hit.chunk_id]})

    assert {"outcome": "removed", "removed": 1, "not_its_own": [hit.chunk_id]} == by_path.result
    assert {"outcome": "removed", "removed": 1} == by_id.result
    assert [] == paths(desk)
    unknown = desk.run("delete_document", "delete", {"document_id": hit.source_id})
    assert (Status.FAILED, "ERR_UNKNOWN_DOCUMENT") == (unknown.status, unknown.error_code)


def test_a_tenant_goes_with_everything_and_leaves_the_others(desk: IndexedFolder):
    for number in range(30):
        desk.put(f"{number}.md", f"Text number {number}.")
    desk.index(tenant_id="acme")
    desk.index(tenant_id="other")

    job = desk.run("delete_tenant", "delete", {"tenant_id_to_delete": "acme"})

    assert {"outcome": "removed", "removed": 30, "jobs": 31} == job.result
    assert [("other", 30)] == [
        (tenant.tenant_id, tenant.sources) for tenant in desk.app.documents.overview().tenants
    ]
    assert [] == desk.app.documents.catalog.outbox()
    with desk.app.documents.catalog.snapshot() as snapshot:
        space = snapshot.spaces("other")[0].name
        hashes = [text_hash(f"Text number {number}.") for number in range(30)]
        assert {} == snapshot.vectors("acme", space, hashes)


def test_what_is_asked_for_again_after_a_deletion_comes_back(desk: IndexedFolder):
    """One live job answers for both requests; the deletion came between them."""
    path = desk.put("a.md", "Water drives the wheel.")
    desk.app.pause(tenant_id="acme")
    desk.app.index(path, tenant_id="acme")
    deletion = desk.app.submit(
        item_type="delete_tenant", op="delete", payload={"tenant_id_to_delete": "acme"}
    )
    receipt = desk.app.index(path, tenant_id="acme")
    assert receipt.dedupe_hit
    desk.finish(deletion.job_id)

    desk.app.resume(tenant_id="acme")
    with desk.app.worker_thread():
        job = desk.app.wait(receipt.job_id, timeout=60)

    assert "indexed" == (job.result or {})["outcome"]


def test_what_was_asked_for_before_a_deletion_stays_away(desk: IndexedFolder):
    path = desk.put("a.md", "Water drives the wheel.")
    desk.app.pause(tenant_id="acme")
    receipt = desk.app.index(path, tenant_id="acme")
    desk.run("delete_tenant", "delete", {"tenant_id_to_delete": "acme"})

    desk.app.resume(tenant_id="acme")
    with pytest.raises(JobNotFound):
        desk.app.job(receipt.job_id)
    assert [] == desk.app.documents.overview().tenants


def test_what_was_removed_is_gone_before_it_is_swept(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    path = desk.put("oven.md", "Bread comes out of the oven.")
    desk.index()
    path.unlink()
    path.mkdir()

    with desk.by_hand() as hand:
        desk.app.index(desk.folder)
        while hand.run_jobs() is not None:
            continue

        with pytest.raises(UnknownDocument):
            desk.app.documents.source(str(path))
        assert {"indexed": 1} == desk.app.documents.why(desk.folder).counts
        assert "folder" == desk.app.documents.removal(str(path))["item_type"]
        hand.drain()
