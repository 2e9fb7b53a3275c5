"""The index beside the disk and beside itself: every difference is listed, and put right when asked."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Penstock
from penstock.service.verifying import Difference, Verifier
from tests.documents.conftest import Desk
from tests.servers import postgres

# The queue has no part in it: one with each catalog is enough.
pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


def behind(app: Penstock, place: Path, sqlite: str, postgresql: str) -> None:
    """A statement behind the catalog's back."""
    if app.settings.url.startswith("sqlite"):
        connection: Any = sqlite3.connect(place / "queue.db", isolation_level=None)
        statement = sqlite
    else:
        connection, statement = psycopg.connect(postgres.store_at(place), autocommit=True), postgresql
    connection.execute(statement)
    connection.close()


def said(found: list[Difference]) -> list[str]:
    return sorted(f"{one.path or ''} {one.what}".strip() for one in found)


def test_every_difference_is_listed_and_put_right(desk: Desk, tmp_path: Path):
    for name in ("words", "vector", "changed", "gone", "sound"):
        desk.put(f"{name}.md", f"Text about {name} and water.")
    desk.index()
    desk.run("content", "ingest", {"content": "A note about water."})
    verifier = Verifier(desk.app.documents.catalog, desk.app)
    assert [] == list(verifier.differences())

    words, vector = (
        f"SELECT id FROM catalog_content WHERE text LIKE 'Text about {name}%'" for name in ("words", "vector")
    )
    behind(
        desk.app,
        tmp_path,
        "INSERT INTO catalog_keyword (catalog_keyword, rowid, text)"
        f" SELECT 'delete', id, text FROM catalog_content WHERE id IN ({words})",
        f"DELETE FROM catalog_keyword WHERE content_id IN ({words})",
    )
    behind(
        desk.app,
        tmp_path,
        f"DELETE FROM catalog_vector WHERE id / 256 IN ({vector})",
        f"DELETE FROM catalog_vector WHERE content_id IN ({vector})",
    )
    desk.put("changed.md", "Text about change and water, and more.")
    (desk.folder / "gone.md").unlink()

    found = list(verifier.differences())

    inside = [one.what.partition(f" of {desk.folder}/")[2] for one in found if one.path is None]
    assert ["vector.md has no vector", "words.md has no keyword entry"] == sorted(inside)
    assert [
        f"{desk.folder}/changed.md has changed since it was indexed",
        f"{desk.folder}/gone.md is indexed, but gone from the disk",
    ] == said([one for one in found if one.path is not None])
    assert [] == desk.found("words", mode="keyword")

    assert 2 == verifier.repair()
    receipts = verifier.fix(found)
    with desk.app.worker_thread():
        for receipt in receipts:
            desk.app.wait(receipt.job_id, timeout=30)
    with desk.by_hand() as hand:
        hand.run_tasks()

    assert [] == list(verifier.differences())
    assert ["words.md"] == desk.found("words", mode="keyword")
    assert "vector.md" in desk.found("vector", mode="vector")
    assert [] == desk.found("gone", mode="keyword")


def test_what_cannot_be_repaired_is_named_and_can_be_made_anew(desk: Desk, tmp_path: Path):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    behind(desk.app, tmp_path, *["DELETE FROM catalog_content"] * 2)
    behind(desk.app, tmp_path, *["UPDATE documents SET chunk_count = 7"] * 2)
    verifier = Verifier(desk.app.documents.catalog, desk.app)

    verifier.repair()

    # The count is put right; a text that is gone cannot be.
    (left,) = [one.what for one in verifier.differences()]
    assert left.endswith(f" of {path} has no text")
    desk.run("delete_document", "delete", {"document_id": str(path)})
    desk.index()
    assert [] == list(verifier.differences())
    assert ["mill.md"] == desk.found("wheel", mode="keyword")
