"""PostgreSQL only: tables, other programs in the database, concurrent writers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import config
from penstock.catalog.rules.words import as_terms, phrases, searchable
from penstock.catalog.sql.postgres import PostgresCatalog, PostgresStatements
from penstock.catalog.sql.statements import load
from penstock.catalog.values import Filters, Outcome, Phase, Removal, TaskStatus
from penstock.database.factory import open_catalog, open_queue
from penstock.errors import InvalidText, SchemaMismatch, StoreUnavailable
from tests.catalog.conftest import (
    at,
    begin,
    completed_graph,
    embed,
    found,
    generation,
    page,
    put,
    read,
    settle,
    source,
    take,
)
from tests.catalog.test_sqlite_file import INDEXES, SPECIFIED
from tests.conformance.durable_engines import given_back
from tests.servers import postgres

TYPES = {
    "id": "uuid",
    "document_id": "uuid",
    "page_id": "uuid",
    "page_number": "integer",
    "page_file_path": "character varying(1000)",
    "worker_id": "character varying(100)",
    "chunk_id": "character varying(64)",
    "chunk_content_hash": "character varying(64)",
    "status": "task_status",
    "error": "text",
    "heartbeat": "timestamp with time zone",
    "at": "timestamp with time zone",
    "count": "integer",
    "index": "integer",
    "extracted": "integer",
    "retries": "integer",
}
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s::regclass AND a.attnum > 0
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    given_back(tmp_path)


@pytest.fixture
def catalog(place: Path) -> Iterator[PostgresCatalog]:
    catalog = PostgresCatalog(postgres.store_at(place))
    yield catalog
    catalog.close()


@pytest.fixture
def raw(catalog: PostgresCatalog, place: Path) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.store_at(place), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("table", SPECIFIED)
def test_the_columns_of_the_specification_have_its_types(raw: psycopg.Connection[Any], table: str):
    columns = {name: (kind, default) for name, kind, default in raw.execute(COLUMNS, (table,))}

    for name in SPECIFIED[table]:
        ending = next((end for end in TYPES if name == end), name.rpartition("_")[2])
        expected = "character varying(100)" if name.endswith("worker_id") else TYPES[ending]
        assert expected == columns[name][0], name
    assert "gen_random_uuid()" == columns["id"][1]
    assert all("'pending'" in columns[name][1] for name in SPECIFIED[table] if name.endswith("_status"))


def test_names_and_statuses_are_those_of_the_specification(raw: psycopg.Connection[Any]):
    indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
    statuses = "SELECT unnest(enum_range(NULL::task_status))::text"

    assert {name for (name,) in raw.execute(indexes)} >= INDEXES
    assert ["pending", "processing", "completed", "failed", "skipped"] == [
        s for (s,) in raw.execute(statuses)
    ]


def test_what_is_inserted_from_outside_has_defaults_and_goes_with_its_document(raw: psycopg.Connection[Any]):
    raw.execute("INSERT INTO sources (id, tenant_id, collection, path) VALUES ('s', 't', 'c', '/p')")
    raw.execute(
        "INSERT INTO documents (source_key, filename, state, content_hash, asked_at, read_at)"
        " SELECT key, 'p', 'building', 'h', now(), now() FROM sources"
    )
    raw.execute("INSERT INTO task_queue_page (document_id, page_number) SELECT id, 1 FROM documents")
    raw.execute(
        "INSERT INTO task_queue_chunk (page_id, document_id, chunk_id, chunk_index, chunk_content_hash,"
        " content_id, text_key) SELECT id, document_id, 'c', 0, 'h', 0, 0 FROM task_queue_page"
    )
    for twice in (
        "INSERT INTO task_queue_page (document_id, page_number) SELECT id, 1 FROM documents",
        "INSERT INTO task_queue_chunk (page_id, document_id, chunk_id, chunk_index, chunk_content_hash,"
        " content_id, text_key) SELECT id, document_id, 'd', 0, 'h', 0, 0 FROM task_queue_page",
        "INSERT INTO documents (source_key, filename, state, content_hash, asked_at, read_at)"
        " SELECT key, 'p', 'building', 'h', now(), now() FROM sources",
    ):
        with pytest.raises(psycopg.errors.UniqueViolation):
            raw.execute(twice.encode())

    raw.execute("DELETE FROM documents")

    assert [(0,)] == raw.execute("SELECT count(*) FROM task_queue_chunk").fetchall()


def test_every_dialect_has_the_same_statements():
    here, there = set(load("postgres")), set(load("sqlite"))

    only_here = {"next_rows", "any_waiting", "counted_as_empty"}
    assert only_here == {name for name in here - there if not name.startswith("hold_")}
    of_words = {"merge_words", "word_segments", "forget_words", "buffer_words"}
    only_there = {"next_numbers", "audit_orphan_pages"} | of_words
    assert only_there | {"ranked_among", "visible_where"} == there - here


PLANS = {
    "waiting_ocr": "Index Scan using idx_tqp_ocr_status",
    "waiting_vector": "Index Scan using idx_tqc_vector_status",
    "waiting_graphrag": "Index Scan using idx_tqc_graphrag_status",
    "due_vector": "Index Scan using idx_tqc_vector_retry",
    "hold_vector": "Index Scan using task_queue_chunk_key_key",
    "fenced_vector": "Index Scan using task_queue_chunk_key_key",
    "take_vector": "Index Scan using task_queue_chunk_key_key",
    "hold_documents": "Index Scan using documents_key_key",
    "doomed_by_path": "(collection = $2) AND (branch = $3) AND (path >= $4) AND (path < $6))",
    "any_tombstone": "using idx_catalog_tombstone_asked",
    "tombstones": " AND (path = ANY (",
    "known_chunks": "Index Cond: ((document_id = d.id) AND (text_key = ANY",
    "parts": " AND (text_key = c.text_key) AND (content_id = c.content_id))",
}


@pytest.mark.parametrize("name", PLANS)
def test_what_writers_do_follows_an_index_while_there_are_no_statistics(name: str):
    # Not one that other tests have used: the server remembers how full its tables were.
    catalog = PostgresCatalog(postgres.fresh_store())
    statement = load("postgres")[name]
    values = ", ".join(["NULL"] * max(int(number) for number in re.findall(r"\$(\d+)", statement)))
    with catalog._writers.borrowed() as connection:
        connection.execute(f"PREPARE asked AS {statement}".encode())
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN EXECUTE asked({values})".encode()))
        connection.execute("DEALLOCATE asked")
    catalog.close()

    assert PLANS[name] in plan
    assert "Seq Scan" not in plan
    # What is claimed is in its order already.
    assert name == "parts" or "Sort" not in plan or name.startswith("doomed")


def test_behind_a_pooler_nothing_outlives_a_transaction(place: Path):
    catalog = PostgresCatalog(postgres.store_at(place), pooled=True)
    begin(catalog, count=2, graph=True)
    assert catalog.wait(0)
    read(catalog, "mill", "water")
    assert 4 == embed(catalog)
    done = [completed_graph(task, 1, 1) for task in take(catalog, Phase.GRAPHRAG)]
    assert [TaskStatus.COMPLETED] * 4 == settle(catalog, done)

    assert {"1 water", "2 water"} == found(catalog, "water")
    assert [] == catalog.audit()
    with catalog.snapshot() as snapshot:
        rows = snapshot._rows
        assert isinstance(rows, PostgresStatements)
        assert ("off",) == rows.execute("SHOW enable_hashjoin", {}).fetchone()
    catalog.close()


def test_the_queue_and_the_catalog_share_a_database(place: Path):
    settings = config.load(environ={}, url=postgres.store_at(place), state_dir=place)
    assert settings.url == settings.catalog_url
    queue, catalog = open_queue(settings), open_catalog(settings)

    assert Outcome.PUBLISHED == put(catalog).outcome
    assert [] == catalog.check()
    catalog.close()
    queue.close()


def test_a_newer_schema_is_refused(catalog: PostgresCatalog, raw: psycopg.Connection[Any], place: Path):
    raw.execute("INSERT INTO catalog_migration VALUES (9999)")
    try:
        with pytest.raises(SchemaMismatch):
            PostgresCatalog(postgres.store_at(place))
    finally:
        raw.execute("DELETE FROM catalog_migration WHERE number = 9999")


def test_a_server_that_is_not_there_is_told_without_the_password():
    with pytest.raises(StoreUnavailable) as refused:
        PostgresCatalog("postgresql://me:secret@127.0.0.1:1/x", timeout_s=1)

    assert "secret" not in str(refused.value)


def test_texts_that_cannot_be_kept_are_refused_and_nothing_is_changed(catalog: PostgresCatalog):
    for bad in ("/" + "".join(map(str, range(3_000))), "/nul\0"):
        with pytest.raises(InvalidText):
            put(catalog, bad, page("x"))

    assert set() == found(catalog, "x")
    assert [] == catalog.audit()


def test_one_who_stores_while_another_removes_is_removed_or_later(catalog: PostgresCatalog, place: Path):
    """Whoever is first: what was asked for before the delete is not there in the end."""
    other = PostgresCatalog(postgres.store_at(place))
    for number in range(20):
        path = f"/{number}.md"
        stores = threading.Thread(target=put, args=(other, path, page(f"text {number}")))
        stores.start()
        catalog.remove(Removal(tenant_id="acme", path=path, asked_at=at(1)))
        stores.join()
        seen = source(catalog, path)
        assert seen is None or seen.published_id is None
    other.close()
    assert [] == catalog.audit()


def test_the_same_new_path_stored_by_several_is_one_source(place: Path):
    catalogs = [PostgresCatalog(postgres.store_at(place)) for _ in range(3)]
    answers: list[Outcome] = []

    def store(number: int) -> None:
        for n in range(10):
            new = generation(f"/{n}.md", page(f"by {number}"), asked_at=at(number))
            answers.extend(stored.outcome for stored in catalogs[number].store([new]))

    several = [threading.Thread(target=store, args=(number,)) for number in range(3)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()

    assert 30 == len(answers)
    assert {"by 2"} == found(catalogs[0], "by")
    assert [] == catalogs[0].audit()
    for catalog in catalogs:
        catalog.close()


def test_words_are_found_where_sqlite_would_find_them(catalog: PostgresCatalog):
    put(catalog, "/a.md", page("see config.py or src/main_loop.c, e-mail: ada@example.org, v1.2"))
    put(catalog, "/b.md", page("Über straße façade, 東京 tower, to be or not to be"))

    for words in ("config", "main", "loop", "example", "uber", "facade", "tower", '"main_loop"', "e-mail"):
        assert 1 == len(found(catalog, words)), words
    assert 1 == len(found(catalog, '"to be or not"'))
    assert set() == found(catalog, '"not or be"')


def test_rare_words_count_more_than_frequent_ones(catalog: PostgresCatalog):
    for n in range(20):
        put(catalog, f"/{n}.md", page(f"water water water number {n}"))
    put(catalog, "/rare.md", page("water and one penstock among others that are many"))

    with catalog.snapshot() as snapshot:
        best, *_ = snapshot.keyword("water penstock", Filters(tenant_id="acme"))
        (view,) = snapshot.hydrate([best.content_id])
    assert view is not None
    assert "/rare.md" == view.path


def test_only_words_are_left_of_a_text_and_of_a_question():
    assert "see config py" == searchable("see config.py")
    assert ["'config' <-> 'py'"] == as_terms(phrases("config_py"))
    assert ["'red'", "'green'"] == as_terms(phrases("red green"))
    assert "resume" == searchable("Résumé")
    assert [] == as_terms(phrases("' | & ! <->"))
