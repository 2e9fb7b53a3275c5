"""Plans of catalog statements, made for tables that the server counted in another state than now."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from penstock.catalog.sql.postgres import PostgresCatalog
from tests.catalog import test_plans
from tests.catalog.test_plans import count, grow

catalog, url = test_plans.catalog, test_plans.url
DOCUMENTS = 250
TABLES = {
    "task_queue_chunk": "key > 30000000 + 4 * %(after)s::int",
    "catalog_page_text": "page_key > 20000000 + %(after)s::int",
    "task_queue_page": "key > 20000000 + %(after)s::int",
    "documents": "source_key > %(after)s",
    "sources": "key > %(after)s",
    "catalog_keyword": "content_id > 4 * %(after)s::int",
    "catalog_vector": "content_id > 4 * %(after)s::int",
    "catalog_content": "id > 4 * %(after)s::int",
    "catalog_entity": "id > 40000000 + %(after)s::int",
    "catalog_mention": "content_id > 4 * %(after)s::int",
    "catalog_relation": "content_id > 4 * %(after)s::int",
}


def clear(url: str, after: int = 0) -> None:
    """Delete all documents after a number of them; their pages of the tables stay."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for table, condition in TABLES.items():
            connection.execute(f"DELETE FROM {table} WHERE {condition}".encode(), {"after": after})


def counted_when_empty(url: str) -> None:
    count(url)
    grow(url, 1, DOCUMENTS)


def counted_when_emptied(url: str) -> None:
    """No rows in many pages: also the count during a transaction that adds rows."""
    grow(url, 1, DOCUMENTS)
    clear(url)
    count(url)
    grow(url, 1, DOCUMENTS)


def counted_when_large(url: str) -> None:
    grow(url, 1, 4 * DOCUMENTS)
    count(url)
    clear(url, after=2)


STATES = {"counted when empty": counted_when_empty, "counted when large": counted_when_large}
IN_ORDER = ("source_columns+newest_sources_where",)
"""Read from the last document on, also those of other tenants while there are few."""


def faults(catalog: PostgresCatalog) -> list[str]:
    return [fault for fault in test_plans.all_faults(catalog) if not fault.startswith(IN_ORDER)]


@pytest.mark.parametrize("state", STATES)
def test_no_statement_multiplies_two_tables(catalog: PostgresCatalog, url: str, state: str) -> None:
    STATES[state](url)

    assert [] == faults(catalog)


def test_upkeep_counts_tables_again_that_were_counted_as_empty(catalog: PostgresCatalog, url: str) -> None:
    """Before, half of all statements would read a table in full, until the server counts it by itself."""
    counted_when_emptied(url)
    before = faults(catalog)

    catalog.sweep(datetime(2026, 1, 1, tzinfo=UTC))

    assert len(before) > 50
    assert [] == faults(catalog)


def test_a_hit_is_looked_up_in_tables_that_were_counted_as_empty(catalog: PostgresCatalog, url: str) -> None:
    """A search would compare each hit with all sources and pages until upkeep counts them, for minutes."""
    counted_when_emptied(url)

    assert [] == [fault for fault in faults(catalog) if fault.startswith(("hydrate", "visible"))]


def test_upkeep_counts_no_table_without_a_change_and_none_of_others(
    catalog: PostgresCatalog, url: str
) -> None:
    grow(url, 1, DOCUMENTS)
    clear(url)
    count(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE diary AS SELECT generate_series(1, 5000) AS day")
        connection.execute("DELETE FROM diary")
        connection.execute("ANALYZE diary")
        connection.execute("INSERT INTO diary VALUES (1)")

    assert set() == _counted_by_sweep(catalog, url)

    grow(url, 1, 1)
    counted = _counted_by_sweep(catalog, url)
    assert {"sources", "documents", "task_queue_page", "task_queue_chunk"} <= counted
    assert "diary" not in counted


def _counted_by_sweep(catalog: PostgresCatalog, url: str) -> set[str]:
    """The tables that a sweep counts."""
    asked = b"SELECT relname, last_analyze FROM pg_stat_user_tables WHERE schemaname = current_schema()"
    with psycopg.connect(url, autocommit=True) as connection:
        before: dict[str, datetime | None] = dict(connection.execute(asked).fetchall())
        catalog.sweep(datetime(2026, 1, 1, tzinfo=UTC))
        return {table for table, at in connection.execute(asked).fetchall() if at != before[table]}
