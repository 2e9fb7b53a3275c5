"""SQLite only: the file, the schema, other programs."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from penstock import config
from penstock.catalog.rules.publication import Portions
from penstock.catalog.sql.sqlite import SqliteCatalog, is_worth_merging
from penstock.catalog.sql.statements import load, migrations
from penstock.catalog.values import Document, Filters, Outcome, Source
from penstock.database import sqlite
from penstock.database.factory import open_catalog, open_queue
from penstock.database.sqlite import CONNECTION
from penstock.errors import SchemaMismatch, UnknownScheme
from tests.catalog.conftest import CATALOGS, begin, embed, found, page, put, vectors

SPECIFIED = {
    "documents": (
        "ocr_status vector_index_status graphrag_index_status ocr_started_at ocr_completed_at ocr_error "
        "vector_started_at vector_completed_at vector_error graphrag_started_at graphrag_completed_at "
        "graphrag_error current_worker_id last_heartbeat"
    ).split(),
    "task_queue_page": [
        *"id document_id page_number page_file_path chunk_count max_retries created_at updated_at".split(),
        *(
            f"{phase}_{name}"
            for phase in ("ocr", "vector", "graphrag")
            for name in "status worker_id started_at completed_at error retry_count last_heartbeat".split()
        ),
    ],
    "task_queue_chunk": [
        *"id page_id document_id chunk_id chunk_index chunk_content_hash entities_extracted".split(),
        *"relationships_extracted max_retries created_at updated_at".split(),
        *(
            f"{phase}_{name}"
            for phase in ("vector", "graphrag")
            for name in "status worker_id started_at completed_at error retry_count last_heartbeat".split()
        ),
    ],
}
INDEXES = {
    *(
        f"idx_tqp_{phase}_{what}"
        for phase in ("ocr", "vector", "graphrag")
        for what in ("status", "heartbeat")
    ),
    *(f"idx_tqc_{phase}_{what}" for phase in ("vector", "graphrag") for what in ("status", "heartbeat")),
    "idx_tqp_document",
    "idx_tqc_page",
    "idx_tqc_document",
}


@pytest.fixture
def raw(tmp_path: Path):
    SqliteCatalog(tmp_path / "catalog.db").close()
    connection = sqlite3.connect(tmp_path / "catalog.db", factory=CONNECTION)
    connection.execute("PRAGMA foreign_keys = 1")
    yield connection
    connection.close()


@pytest.mark.parametrize("table", SPECIFIED)
def test_the_columns_of_the_specification_are_there(raw: sqlite3.Connection, table: str):
    columns = {row[1] for row in raw.execute(f"PRAGMA table_info({table})")}

    assert set(SPECIFIED[table]) <= columns


def test_the_indexes_of_the_specification_are_there(raw: sqlite3.Connection):
    names = {row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}

    assert INDEXES <= names


def test_pages_and_chunks_go_with_their_document(raw: sqlite3.Connection):
    raw.execute(
        "INSERT INTO sources (key, id, tenant_id, collection, path, family_key, created_at, updated_at)"
        " VALUES (1, 's', 't', 'c', '/p', 1, '', '')"
    )
    raw.execute(
        "INSERT INTO documents (id, source_key, filename, state, content_hash, asked_at, read_at, created_at,"
        " updated_at) VALUES (1, 1, 'p', 'building', 'h', '', '', '', '')"
    )
    raw.execute(
        "INSERT INTO task_queue_page (id, document_id, page_number, created_at, updated_at)"
        " VALUES (1, 1, 1, '', '')"
    )
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(
            "INSERT INTO task_queue_page (id, document_id, page_number, created_at, updated_at)"
            " VALUES (2, 1, 1, '', '')"
        )
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE task_queue_page SET ocr_status = 'done'")
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(
            "INSERT INTO documents (id, source_key, filename, state, content_hash, asked_at, read_at,"
            " created_at, updated_at) VALUES (2, 1, 'p', 'building', 'h', '', '', '', '')"
        )

    raw.execute("DELETE FROM documents")

    assert (0,) == raw.execute("SELECT count(*) FROM task_queue_page").fetchone()


def test_statuses_are_not_in_lists_sqlite_would_build_a_tree_for():
    script = migrations("sqlite")[0][1]

    assert [] == re.findall(r"IN \((?:'\w+', ){2,}'\w+'\)", script)


def test_every_statement_is_one_sqlite_accepts(raw: sqlite3.Connection):
    for name, statement in load("sqlite").items():
        if name.endswith(("_where", "_columns", "filtered", "filters")) or name.startswith("ready_"):
            continue
        wanted = max([int(n) for n in re.findall(r"\?(\d+)", statement)], default=0) or statement.count("?")
        raw.execute(f"EXPLAIN {statement}", (None,) * wanted)


def test_deletes_are_looked_up_by_their_paths_however_many_there_were(raw: sqlite3.Connection):
    plan = raw.execute(f"EXPLAIN QUERY PLAN {load('sqlite')['tombstones']}", (None,) * 6).fetchall()

    assert "SEARCH t USING PRIMARY KEY (tenant_id=? AND collection=? AND branch=? AND path=?" in str(plan)


def test_the_queue_and_the_catalog_share_a_file(tmp_path: Path):
    settings = config.load(environ={}, url=f"sqlite:///{tmp_path}/both.db", state_dir=tmp_path)
    queue, catalog = open_queue(settings), open_catalog(settings)

    assert Outcome.PUBLISHED == put(catalog).outcome
    assert [] == queue.check() == catalog.check()
    queue.close()
    catalog.close()
    assert ["both.db"] == [path.name for path in tmp_path.iterdir()]


def test_another_queue_has_its_catalog_in_the_state_directory(tmp_path: Path):
    settings = config.load(environ={}, url="memory://", state_dir=tmp_path / "state")

    open_catalog(settings).close()

    assert (tmp_path / "state" / "catalog.db").exists()
    with pytest.raises(UnknownScheme):
        open_catalog(config.load(environ={}, catalog_url="mongodb://x", state_dir=tmp_path))


def test_a_newer_schema_is_refused(tmp_path: Path):
    SqliteCatalog(tmp_path / "catalog.db").close()
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("INSERT INTO catalog_migration VALUES (9999, '')")
    connection.close()

    with pytest.raises(SchemaMismatch):
        SqliteCatalog(tmp_path / "catalog.db")


def test_a_child_of_fork_reads_and_writes_with_connections_of_its_own(tmp_path: Path):
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    put(catalog, "/a.md", page("parent"))
    found(catalog, "parent")

    pid = os.fork()
    if pid == 0:
        try:
            put(catalog, "/b.md", page("child"))
            os._exit(0 if found(catalog, "parent child") == {"parent", "child"} else 1)
        finally:
            os._exit(2)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert {"parent", "child"} == found(catalog, "parent child")
    catalog.close()


def test_readers_in_threads_do_not_wait_for_each_other(tmp_path: Path):
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    put(catalog, "/a.md", page("here"))
    seen: list[int] = []

    with catalog.snapshot() as snapshot:
        snapshot.tenants()
        reader = threading.Thread(target=lambda: seen.append(vectors(catalog)))
        reader.start()
        reader.join(120)
        put(catalog, "/b.md", page("there"))

    assert [1] == seen
    catalog.close()


def test_only_what_a_power_cut_may_undo_is_not_synced(tmp_path: Path):
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    catalog.portions = Portions(rows=2, uncut=1)
    statements: list[str] = []
    catalog._connections.get("write").set_trace_callback(statements.append)

    def synced(call: Callable[[], object]) -> list[bool]:
        """Record for each transaction whether the commit is synced."""
        statements.clear()
        call()
        modes = [one for one in statements if one.startswith(("PRAGMA synchronous", "COMMIT"))]
        return [not before.endswith("NORMAL") for before, one in pairwise(["", *modes]) if one == "COMMIT"]

    large = page(*[f"text {number}" for number in range(10)], vector=None)
    assert [True] == synced(lambda: put(catalog, "/small.md"))
    *parts, last = synced(lambda: put(catalog, "/large.md", large))
    assert (4, {False}, True) == (len(parts), set(parts), last)
    assert [False, True] == synced(lambda: embed(catalog))
    assert (2,) == catalog._connections.get("write").execute("PRAGMA synchronous").fetchone()
    catalog.close()


def test_the_log_is_copied_back_by_the_parts_of_large_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A small job would wait for the copying; so its commit leaves that to those that fill the log."""
    monkeypatch.setattr(sqlite, "BULK_LOG_PAGES", 20)
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    catalog.portions = Portions(rows=2, uncut=1)
    file = tmp_path / "catalog.db"

    def copied(call: Callable[[], object]) -> bool:
        before = file.read_bytes()
        call()
        return file.read_bytes() != before

    assert not copied(lambda: put(catalog, "/small.md", *[page("x" * 90_000)]))
    assert copied(lambda: put(catalog, "/large.md", page(*[f"text {number}" for number in range(10)])))
    assert not copied(lambda: put(catalog, "/other.md", *[page("y" * 90_000)]))
    catalog.close()


def test_the_keyword_index_is_merged_when_its_small_segments_grow(tmp_path: Path):
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    with closing(catalog):
        for number in range(5):
            put(catalog, f"/{number}.md", page(f"water and mill {number}"))
        before = _segments(catalog), found(catalog, "water 3")
        catalog.merge_words(lambda: True)
        stopped = _segments(catalog)
        catalog.merge_words()

        assert (5, 5) == (len(before[0]), len(stopped))
        assert 1 == len(_segments(catalog))
        assert before[1] == found(catalog, "water 3")


def test_a_large_segment_is_not_merged_with_each_small_one():
    assert [False, False, True, True, False] == [
        is_worth_merging(pages) for pages in ([], [100], [100, 25], [1, 1], [100, 10, 10])
    ]


def _segments(catalog: SqliteCatalog) -> list[tuple[int]]:
    with catalog.snapshot() as snapshot:
        return snapshot.rows.all("word_segments")


def test_times_as_sqlite_writes_them_are_in_utc(tmp_path: Path):
    with closing(CATALOGS["sqlite"](tmp_path)) as catalog:
        put(catalog)
        begin(catalog)
        with closing(sqlite3.connect(next(tmp_path.glob("*.db")), isolation_level=None)) as own:
            for table in ("sources", "documents", "task_queue_page"):
                names = [row[1] for row in own.execute(f"PRAGMA table_info({table})")]
                for name in names:
                    if name.endswith(("_at", "_heartbeat")):
                        own.execute(f"UPDATE {table} SET {name} = datetime('now') WHERE {name} IS NOT NULL")
        with catalog.snapshot() as snapshot:
            sources = snapshot.sources(Filters(tenant_id="acme"), limit=9)
            documents = snapshot.newest(limit=9)
        rows: list[Source | Document] = [*sources, *documents]
        assert len(rows) > 2
        assert {timedelta(0)} == {one.created_at.utcoffset() for one in rows}
