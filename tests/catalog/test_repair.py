"""Removal of all data of a tenant, and repair of damage made by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import LedgerEntry, LedgerKind, Phase, Place, Removal, Walk
from tests.catalog.conftest import (
    VECTOR,
    at,
    completed_graph,
    embed,
    found,
    page,
    put,
    settle,
    sweep,
    take,
    vectors,
)
from tests.servers import postgres

OTHER = Place("other", "docs")
OURS = {"catalog_sequence", "catalog_migration", "catalog_fingerprint"}
"""Tables that say nothing of any tenant."""
INSIDE = ("catalog_keyword_data", "catalog_keyword_idx", "catalog_keyword_config")
"""How FTS5 keeps its index; what is in it is counted by its table of sizes."""

Run = Callable[[str], list[tuple[Any, ...]]]


@contextmanager
def raw(catalog: Catalog, place: Path) -> Iterator[Run]:
    """Statements behind the catalog's back."""
    if isinstance(catalog, SqliteCatalog):
        connection: Any = sqlite3.connect(catalog.path, isolation_level=None)
        connection.create_function("keyword_text", 1, keyword_text)
    else:
        connection = psycopg.connect(postgres.store_at(place), autocommit=True)

    def run(statement: str) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []

    try:
        yield run
    finally:
        connection.close()


def tables(catalog: Catalog, run: Run) -> list[str]:
    """All tables of the catalog, read from the schema so new ones are counted too."""
    if isinstance(catalog, SqliteCatalog):
        named = run("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    else:
        named = run(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
            " AND table_type = 'BASE TABLE'"
        )
    return sorted(name for (name,) in named if name not in OURS and name not in INSIDE)


def counted(catalog: Catalog, run: Run) -> dict[str, int]:
    return {name: run(f"SELECT count(*) FROM {name}")[0][0] for name in tables(catalog, run)}


def live_a_life(catalog: Catalog, place: Place) -> None:
    """A tenant with something in every table."""
    for number in range(3):
        put(catalog, f"/{number}.md", page("shared text", f"text {number}"), place=place)
    put(catalog, "/0.md", page("shared text", "edited"), place=place, asked_at=at(1), now=at(1))
    put(catalog, "/long.md", page("waits", vector=None), place=place, job_id="job_1")
    catalog.remember(place.tenant_id, "static", {"a" * 64: VECTOR}, now=at(1))
    note = LedgerEntry(
        place=place, path="/x.bin", kind=LedgerKind.SKIPPED, rule="binary", cause="NUL", at=at(1)
    )
    catalog.note([note], now=at(1))
    put(catalog, "/graph.md", page("with entities"), place=place, graph=True)
    settle(catalog, [completed_graph(task, 2, 1) for task in take(catalog, Phase.GRAPHRAG)])
    catalog.expect([(place, "/0.md", "/incoming/0.md")], now=at(1))
    catalog.announce(Walk(place=place, root="/", rules="{}", asked_at=at(1)))
    catalog.remove(Removal(tenant_id=place.tenant_id, path="/1.md", asked_at=at(2)), now=at(2))


def test_nothing_of_a_deleted_tenant_is_left_in_any_table(catalog: Catalog, tmp_path: Path):
    with raw(catalog, tmp_path) as run:
        live_a_life(catalog, OTHER)
        sweep(catalog, now=at(5))
        before = counted(catalog, run)
        live_a_life(catalog, Place("acme", "docs"))
        sweep(catalog, now=at(5))
        filled = counted(catalog, run)

        removal = Removal(tenant_id="acme", asked_at=at(10))
        while catalog.remove(removal, limit=2, now=at(10)).more:
            continue
        sweep(catalog, now=at(11))
        catalog.clear([entry.entry_id for entry in catalog.outbox()], now=at(11))
        while not catalog.forget("acme", limit=2):
            continue
        left = counted(catalog, run)
        catalog.sweep(at(100))
        columns = {name for name in tables(catalog, run) if "tenant_id" in _columns(run, name)}

        # What others need to learn of it stays for a while: tombstones, and numbers of sources that are gone.
        grown = {name for name, number in left.items() if number > before[name]}
        assert grown <= {"catalog_tombstone", "catalog_gone"}
        assert dict.fromkeys(columns, 0) == {
            name: run(f"SELECT count(*) FROM {name} WHERE tenant_id = 'acme'")[0][0] for name in columns
        }
        assert {"sources", "catalog_vector_cache", "catalog_ledger", "catalog_history"} <= columns
        kept = {name for name in left if filled[name] > before[name] and name not in grown}
        assert {
            "documents",
            "task_queue_page",
            "task_queue_chunk",
            "catalog_content",
            "catalog_vector",
        } <= kept


def _columns(run: Run, table: str) -> list[str]:
    try:
        return [row[1] for row in run(f"PRAGMA table_info({table})")]
    except psycopg.Error:
        return [
            row[0]
            for row in run(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'")
        ]


def broken(catalog: Catalog, statements: dict[str, str], place: Path) -> list[str]:
    engine = "sqlite" if isinstance(catalog, SqliteCatalog) else "postgres"
    assert [] == catalog.audit()
    with raw(catalog, place) as run:
        run(statements[engine])
    complaints = catalog.audit()
    while catalog.repair(now=at(1)):
        continue
    return complaints


def test_a_missing_keyword_entry_is_written_again(catalog: Catalog, tmp_path: Path):
    put(catalog, "/a.md", page("water wheel"))

    (complaint,) = broken(
        catalog,
        {
            "sqlite": "INSERT INTO catalog_keyword (catalog_keyword, rowid, text)"
            " SELECT 'delete', id, text FROM catalog_content",
            "postgres": "DELETE FROM catalog_keyword",
        },
        tmp_path,
    )

    assert complaint.endswith("of /a.md has no keyword entry")
    assert {"water wheel"} == found(catalog, "wheel")


def test_a_keyword_entry_without_a_text_goes(catalog: Catalog, tmp_path: Path):
    put(catalog, "/a.md", page("water wheel"))

    (complaint,) = broken(
        catalog,
        {
            "sqlite": "INSERT INTO catalog_keyword (rowid, text) VALUES (999999, 'stray wheel')",
            "postgres": "INSERT INTO catalog_keyword VALUES (999999, 'stray')",
        },
        tmp_path,
    )

    assert "keyword entry 999999 belongs to no text" == complaint
    assert {"water wheel"} == found(catalog, "wheel")


def test_a_chunk_without_its_vector_waits_for_another_and_is_found_meanwhile(
    catalog: Catalog, tmp_path: Path
):
    put(catalog, "/a.md", page("water wheel", "bread oven"))
    put(catalog, "/b.md", page("gate"))

    complaints = broken(
        catalog,
        {
            engine: f"DELETE FROM catalog_vector WHERE {content} IN"
            " (SELECT id FROM catalog_content WHERE text = 'water wheel')"
            for engine, content in (("sqlite", "id / 256"), ("postgres", "content_id"))
        },
        tmp_path,
    )

    assert ["has no vector"] == [complaint.partition(" of /a.md ")[2] for complaint in complaints]
    assert {"water wheel"} == found(catalog, "wheel")
    assert 2 == vectors(catalog)
    assert 1 == embed(catalog, now=at(2))
    assert 3 == vectors(catalog)


@pytest.mark.parametrize(
    ("sqlite", "postgresql", "said"),
    [
        (
            "INSERT INTO catalog_vector VALUES (999999 * 256 + 1, zeroblob(16))",
            "INSERT INTO catalog_vector VALUES (999999, 1, decode(repeat('00', 16), 'hex'))",
            "belongs to no text",
        ),
        (
            "INSERT INTO catalog_content VALUES (999999, 1, 1, 'stray')",
            "INSERT INTO catalog_content VALUES (999999, 1, 1, 'stray')",
            "text 999999 belongs to no chunk",
        ),
        (
            "INSERT INTO sources (key, id, tenant_id, collection, path, family_key, created_at, updated_at)"
            " VALUES (999999, 'stray', 'acme', 'docs', '/stray', 999999, '2026', '2026')",
            "INSERT INTO sources (key, id, tenant_id, collection, path)"
            " VALUES (999999, 'stray', 'acme', 'docs', '/stray')",
            "source stray has no generation",
        ),
    ],
    ids=["vector", "text", "source"],
)
def test_what_belongs_to_nothing_goes(
    catalog: Catalog, tmp_path: Path, sqlite: str, postgresql: str, said: str
):
    put(catalog, "/a.md", page("water wheel"))

    complaints = broken(catalog, {"sqlite": sqlite, "postgres": postgresql}, tmp_path)

    assert any(said in complaint for complaint in complaints)
    assert {"water wheel"} == found(catalog, "wheel")


def test_a_generation_that_fell_out_of_the_outbox_is_swept(catalog: Catalog, tmp_path: Path):
    put(catalog, "/a.md", page("water wheel"))
    put(catalog, "/a.md", page("bread"), asked_at=at(1))

    with raw(catalog, tmp_path) as run:
        run("DELETE FROM catalog_outbox")
    assert ["is neither seen, being built nor in the outbox"] == [
        complaint.partition(" ")[2].partition(" ")[2] for complaint in catalog.audit()
    ]
    catalog.repair(now=at(2))
    sweep(catalog, now=at(3))

    assert {"bread"} == found(catalog, "bread wheel")


def test_a_sound_catalog_needs_no_repair(catalog: Catalog):
    put(catalog, "/a.md", page("water wheel"))
    put(catalog, "/b.md", page("elsewhere", vector=b""), space="outside")

    assert 0 == catalog.repair(now=at(1))


COUNTS = {
    "page": ("task_queue_page", "does not stand where its chunks do"),
    "document": ("documents", "of /a.md does not stand where its pages do"),
    "source": ("sources", "source /a.md has wrong counters of its published parts"),
}


@pytest.mark.parametrize("of", COUNTS)
def test_a_wrong_count_is_told_and_counted_again(catalog: Catalog, tmp_path: Path, of: str):
    put(catalog, "/a.md", page("water wheel", "bread oven"))
    put(catalog, "/b.md", page("gate"))
    table, said = COUNTS[of]
    wrong = f"UPDATE {table} SET chunk_count = 7 WHERE chunk_count = 2"
    wrong = wrong if of == "source" else wrong.replace(" = 7", " = 7, vector_completed = 5")
    before = _counted(catalog, tmp_path)

    complaints = broken(catalog, dict.fromkeys(("sqlite", "postgres"), wrong), tmp_path)

    assert any(complaint.endswith(said) for complaint in complaints)
    assert [] == catalog.audit()
    assert before == _counted(catalog, tmp_path)


def _counted(catalog: Catalog, place: Path) -> list[list[tuple[Any, ...]]]:
    with raw(catalog, place) as run:
        return [
            sorted(run(f"SELECT chunk_count{', vector_completed' * (of != 'source')} FROM {table}"))
            for of, (table, _) in COUNTS.items()
        ]


def test_a_generation_that_only_waited_for_a_wrong_count_is_published(catalog: Catalog, tmp_path: Path):
    put(catalog, "/a.md", page("water wheel", "bread oven", vector=None))
    with raw(catalog, tmp_path) as run:
        run("UPDATE documents SET vector_waiting = vector_waiting + 1")
    embed(catalog, now=at(1))
    assert set() == found(catalog, "wheel")

    while catalog.repair(now=at(2)):
        continue

    assert {"water wheel"} == found(catalog, "wheel")
    assert [] == catalog.audit()
