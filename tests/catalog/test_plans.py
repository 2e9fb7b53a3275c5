"""Plans of catalog statements, with no statistics and with those of a time when the catalog was tiny.

A plan is read node by node. A scan inside a nested loop, or in a subquery asked once a row, must be a lookup
in an index: otherwise its cost is the product of two tables.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from penstock.catalog.sql import removals
from penstock.catalog.sql.postgres import PostgresCatalog, PostgresStatements
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.sql.statements import load
from penstock.database.sqlite import CONNECTION
from tests.servers import postgres

CHUNKS_OF_A_DOCUMENT = 4
WHOLE_TABLES = re.compile(r"audit_|miscounted_|wordless$|stray_|forget_stray|vectorless$|idle_sources$")
READ_IN_FULL = {
    *("statistics", "tenants", "all_spaces", "count_pending_graphrag"),  # sums over all documents
    *("old_arrivals", "old_tombstones", "old_gone", "old_walks"),  # upkeep of small tables
    *("any_ledger", "any_waiting", "outbox"),
    "project_roots",  # a row for each project of a person
    *("outside_stores", "any_vector_copied", "any_graph_copied"),  # two rows, or the first one
    *("any_source", "last_numbers", "continue_rows"),  # the first one, and a few numbers
    # The first and the last rows, in the order of an index.
    *("last_vector_text", "last_graph_text", "outer_vectors", "outer_graph_texts"),
    # The whole graph of a tenant.
    *(
        "graph_nodes_graphrag",
        "graph_edges_graphrag",
        "entities_by_kind_graphrag",
        "relations_by_kind_graphrag",
        "all_shown_graphrag",
    ),
}
"""Statements that may read all of a table once."""
NEVER_LARGE = {"forget_events": "catalog_history", "unnote": "catalog_ledger", "old_walks": "catalog_walk"}
"""Tables that are empty here: of an empty table one plan is as good as another."""
PARTS = re.compile(r"_columns$|_where$|^filter(ed|s)$|^ready_")
JOINED = [
    ("source_columns", "find_where"),
    ("source_columns", "find_all_where"),
    ("source_columns", "get_where"),
    ("source_columns", "sources_where"),
    ("source_columns", "newest_sources_where"),
    ("source_columns", "sources_or_failures_where"),
    ("document_columns", "document_where"),
    ("document_columns", "generations_where"),
    ("progress_columns", "progress_where"),
    ("hydrate_columns", "hydrate_where"),
    ("hydrate_columns", "hydrate_all_where"),
]
GROWN: list[LiteralString] = [
    "INSERT INTO catalog_space VALUES (1, 'static', 4) ON CONFLICT DO NOTHING",
    """
    INSERT INTO sources (key, id, tenant_id, collection, path, family_key, published_id, space_id, page_count,
                         chunk_count, content_hash, asked_at, read_at, published_at, change_seq)
    SELECT n, 's' || n, 'acme', 'docs', '/f/' || n, n, 10000000 + n, 1, 1, 4, 'h', now(), now(), now(), n
    FROM generate_series(%(first)s::int, %(last)s::int) n
    """,
    """
    INSERT INTO documents (key, source_key, filename, state, ocr_status, vector_index_status,
                           graphrag_index_status, ocr_completed, vector_completed, page_count, chunk_count,
                           vector_chunks, space_id, content_hash, asked_at, read_at)
    SELECT 10000000 + n, n, 'f', 'published', 'completed', 'completed', 'skipped', 1, 1, 1, 4, 4, 1,
           'h', now(), now()
    FROM generate_series(%(first)s::int, %(last)s::int) n
    """,
    """
    INSERT INTO task_queue_page (key, document_id, page_number, ocr_status, vector_status, graphrag_status,
                                 chunk_count, vector_completed)
    SELECT 20000000 + source_key, id, 1, 'completed', 'completed', 'skipped', 4, 4
    FROM documents WHERE source_key BETWEEN %(first)s AND %(last)s
    """,
    """
    INSERT INTO catalog_page_text SELECT key, 'text' FROM task_queue_page
    WHERE key BETWEEN 20000000 + %(first)s::int AND 20000000 + %(last)s::int
    """,
    """
    INSERT INTO catalog_content
    SELECT 4 * n + c, n, 4 * n + c, 'text ' || n || ' ' || c
    FROM generate_series(%(first)s::int, %(last)s::int) n, generate_series(0, 3) c
    """,
    """
    INSERT INTO catalog_keyword SELECT id, to_tsvector('catalog_english', text)
    FROM catalog_content WHERE family_key BETWEEN %(first)s AND %(last)s
    """,
    """
    INSERT INTO catalog_vector SELECT id, 1, decode(repeat('00', 16), 'hex')
    FROM catalog_content WHERE family_key BETWEEN %(first)s AND %(last)s
    """,
    """
    INSERT INTO task_queue_chunk (key, page_id, document_id, chunk_id, chunk_index, chunk_content_hash,
                                  content_id, text_key, vector_status, graphrag_status)
    SELECT 30000000 + 4 * d.source_key + c, p.id, d.id, 'c' || d.source_key || '-' || c, c, 'h',
           4 * d.source_key + c, 4 * d.source_key + c, 'completed', 'skipped'
    FROM documents d JOIN task_queue_page p ON p.document_id = d.id, generate_series(0, 3) c
    WHERE d.source_key BETWEEN %(first)s AND %(last)s
    """,
    """
    INSERT INTO catalog_entity
    SELECT 40000000 + n, 'acme', 'name', 'entity ' || n, 'entity ' || n, 'Entity ' || n
    FROM generate_series(%(first)s::int, %(last)s::int) n
    """,
    """
    INSERT INTO catalog_mention
    SELECT 4 * n + c, 40000000 + n, 1
    FROM generate_series(%(first)s::int, %(last)s::int) n, generate_series(0, 3) c
    """,
    """
    INSERT INTO catalog_relation
    SELECT 4 * n, 40000000 + n, 40000000 + n, 'related', 1
    FROM generate_series(%(first)s::int, %(last)s::int) n
    """,
]
Plan = dict[str, Any]


def grow(url: str, first: int, last: int) -> None:
    """Published documents of one page and four chunks each."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL penstock.catalog = 'on'")
        for statement in GROWN:
            connection.execute(statement, {"first": first, "last": last})


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return [name for (name,) in found.fetchall()]


def count(url: str) -> None:
    """Let the server count the rows of this catalog alone: other tests use the same database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ANALYZE {', '.join(tables(connection))}".encode())


@pytest.fixture
def url() -> str:
    # Not one that other tests have used: the server remembers how full its tables were.
    return postgres.fresh_store("plans")


@pytest.fixture
def catalog(url: str) -> Iterator[PostgresCatalog]:
    catalog = PostgresCatalog(url)
    # The server must not count rows by itself meanwhile: in the middle of a transaction it would find none.
    with psycopg.connect(url, autocommit=True) as connection:
        for table in tables(connection):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
    yield catalog
    catalog.close()


def _executed() -> dict[str, str]:
    """All statements in executable form, with select lists and conditions joined."""
    statements = load("postgres")
    whole = {name: text for name, text in statements.items() if not PARTS.search(name)}
    joined = {f"{one}+{two}": f"{statements[one]}\n{statements[two]}" for one, two in JOINED}
    # Locking a table is not planned.
    return {name: text for name, text in (whole | joined).items() if not text.startswith("LOCK")}


def _scans(plan: Plan, *, repeated: bool = False) -> Iterator[tuple[Plan, bool]]:
    """Every scan of a table, and whether it is done once for each row of something else."""
    if "Relation Name" in plan and plan["Node Type"] != "ModifyTable":
        yield plan, repeated
    for part in plan.get("Plans", []):
        if plan["Node Type"] == "Limit" and part["Node Type"] == "Seq Scan" and "Filter" not in part:
            continue  # a sample: it ends after so many rows, whichever they are
        relation = part["Parent Relationship"]
        inner = plan["Node Type"] == "Nested Loop" and relation == "Inner"
        yield from _scans(part, repeated=repeated or inner or relation == "SubPlan")


def _is_lookup(scan: Plan) -> bool:
    if "Bitmap" in scan["Node Type"] and "Plans" in scan:
        return all(map(_is_lookup, scan["Plans"]))
    return "Index Cond" in scan or "TID Cond" in scan


def _is_small(scan: Plan) -> bool:
    """Spaces and sequences are few; a partial index holds only what waits or is under way."""
    few = {"catalog_space", "catalog_sequence", "catalog_fingerprint", "catalog_outside_store", "pg_class"}
    partial = re.search(
        r"_status$|_retry$|_failed$|_held$|_heartbeat$|_building$|_leftover$", scan.get("Index Name", "")
    )
    return scan["Relation Name"] in few or partial is not None


def _faults(name: str, plan: Plan) -> list[str]:
    found = []
    for scan, repeated in _scans(plan):
        if _is_lookup(scan) or _is_small(scan):
            continue
        in_full = name in READ_IN_FULL or WHOLE_TABLES.match(name) or name in NEVER_LARGE
        if repeated or not in_full:
            often = "once a row" if repeated else "once"
            found.append(f"{name} reads all of {scan['Relation Name']} {often}: {scan['Node Type']}")
    return found


def all_faults(catalog: PostgresCatalog) -> list[str]:
    found = []
    for name, statement in _executed().items():
        with (
            catalog._writers.borrowed()
            if _writes(name, statement)
            else catalog._readers.borrowed() as connection
        ):
            rows = PostgresStatements(connection)
            connection.execute("BEGIN")
            explain = f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {statement}".encode()
            if WHOLE_TABLES.match(name):
                with rows.whole_tables():
                    ((plan,),) = connection.execute(explain).fetchall()
            else:
                ((plan,),) = connection.execute(explain).fetchall()
            connection.execute("ROLLBACK")
        found += _faults(name, plan[0]["Plan"])
    return found


def _writes(name: str, statement: str) -> bool:
    locks = re.search(r"FOR (NO KEY )?UPDATE|INSERT INTO|UPDATE \w|DELETE FROM", statement) is not None
    return locks or WHOLE_TABLES.match(name) is not None


SIZES = [
    1_000,
    pytest.param(10_000, marks=pytest.mark.long),
    pytest.param(100_000, marks=pytest.mark.chaos),
]


@pytest.mark.parametrize("chunks", SIZES)
def test_no_statement_multiplies_two_tables_without_statistics(
    catalog: PostgresCatalog, url: str, chunks: int
):
    grow(url, 1, chunks // CHUNKS_OF_A_DOCUMENT)

    assert [] == all_faults(catalog)


@pytest.mark.parametrize("chunks", SIZES)
def test_no_statement_multiplies_two_tables_when_statistics_are_old(
    catalog: PostgresCatalog, url: str, chunks: int
):
    grow(url, 1, 1)
    count(url)
    grow(url, 2, chunks // CHUNKS_OF_A_DOCUMENT)

    assert [] == all_faults(catalog)


LISTS = [f"source_columns+{name}where" for name in ("sources_", "newest_sources_", "sources_or_failures_")]


def _nodes(plan: Plan) -> Iterator[str]:
    yield plan["Node Type"]
    for part in plan.get("Plans", []):
        yield from _nodes(part)


def test_a_page_of_documents_is_read_in_order_and_not_sorted(catalog: PostgresCatalog, url: str):
    grow(url, 1, 250)
    with psycopg.connect(url) as connection:
        for name in LISTS:
            explain = f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {_executed()[name]}"
            ((plan,),) = connection.execute(explain.encode()).fetchall()

            assert "Sort" not in set(_nodes(plan[0]["Plan"])), name


def test_a_page_of_documents_is_read_in_order_and_not_sorted_in_sqlite(tmp_path: Path):
    SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL").close()
    raw = sqlite3.connect(tmp_path / "catalog.db", factory=CONNECTION)
    raw.create_function("catalog_glob", -1, lambda *_: True)
    statements = load("sqlite")
    for name in LISTS:
        one, _, two = name.partition("+")
        explain = f"EXPLAIN QUERY PLAN {statements[one]} {statements[two]}"
        plan = [text for *_, text in raw.execute(explain, (None,) * 13)]

        assert any("USING INDEX idx_sources_listed" in text for text in plan), name
        assert not any("TEMP B-TREE" in text for text in plan), name
    raw.close()


def _rows_read(plan: Plan) -> int:
    removed = sum(count for name, count in plan.items() if name.startswith("Rows Removed"))
    own = (plan.get("Actual Rows", 0) + removed) * plan.get("Actual Loops", 0)
    return int(own) + sum(_rows_read(part) for part in plan.get("Plans", []))


def _read_by_audit(catalog: PostgresCatalog) -> dict[str, int]:
    found = {}
    with catalog._readers.borrowed() as connection:
        rows = PostgresStatements(connection)
        connection.execute("BEGIN")
        with rows.whole_tables():
            for name, statement in load("postgres").items():
                if name.startswith(("audit_", "miscounted_")):
                    asked = statement.replace("$1", "1000000")
                    explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {asked}"
                    ((plan,),) = connection.execute(explain.encode()).fetchall()
                    found[name] = _rows_read(plan[0]["Plan"])
        connection.execute("ROLLBACK")
    return found


@pytest.mark.parametrize("old_statistics", [False, True])
def test_an_audit_reads_rows_in_proportion_to_the_catalog(
    catalog: PostgresCatalog, url: str, old_statistics: bool
):
    grow(url, 1, 1)
    if old_statistics:
        count(url)
    grow(url, 2, 250)
    assert [] == catalog.audit()
    small = _read_by_audit(catalog)
    grow(url, 251, 1_000)
    assert [] == catalog.audit()

    large = _read_by_audit(catalog)

    # Four times the rows, with room for another order of joins; a product of two tables would be sixteen.
    assert {} == {name: (small[name], read) for name, read in large.items() if read > 8 * small[name] + 100}


def test_an_audit_leaves_the_settings_of_the_session_alone(catalog: PostgresCatalog):
    with catalog.snapshot() as snapshot:
        rows = snapshot._rows
        assert isinstance(rows, PostgresStatements)
        before = rows.execute("SELECT name, setting FROM pg_settings", {}).fetchall()

        removals.findings(snapshot.rows)

        assert before == rows.execute("SELECT name, setting FROM pg_settings", {}).fetchall()


def test_no_statement_multiplies_two_tables_in_sqlite(tmp_path: Path):
    SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL").close()
    raw = sqlite3.connect(tmp_path / "catalog.db", factory=CONNECTION)
    raw.create_function("catalog_glob", -1, lambda *_: True)
    found = {}
    for name, statement in load("sqlite").items():
        if not PARTS.search(name) and re.match(r"(?i)\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", statement):
            found[name] = _sqlite_scans(raw, statement)
    raw.close()

    assert {} == {name: scans for name, scans in found.items() if any(len(level) > 1 for level in scans)}


def _sqlite_scans(raw: sqlite3.Connection, statement: str) -> list[list[str]]:
    """Tables read in full, by the loop they are nested in."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    wanted = max(numbered, default=statement.count("?"))
    rows = raw.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * wanted).fetchall()
    levels: dict[int, list[str]] = {}
    for _, parent, _, text in rows:
        if text.startswith("SCAN") and not re.search(
            r"VIRTUAL|json_each|CONSTANT|USING COVERING INDEX .*_(status|held)", text
        ):
            levels.setdefault(parent, []).append(text)
    return list(levels.values())
