"""The statements that the task queue's specification prints, run as printed on a catalog in PostgreSQL.

Where the specification lies beside the project its own text is run, else the same statements as below.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.sql.postgres import PostgresCatalog
from penstock.catalog.values import Failure, NewPage, Phase
from tests.catalog.conftest import TASK_LEASE, VECTOR, at, begin, chunk, put, settle, take
from tests.conformance.durable_engines import given_back
from tests.servers import postgres

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"

PICK_PAGE = """
SELECT id, document_id, page_number FROM task_queue_page
WHERE ocr_status IN ('pending', 'failed') AND ocr_retry_count < max_retries
ORDER BY CASE WHEN ocr_status = 'failed' THEN 0 ELSE 1 END, ocr_retry_count ASC, created_at ASC
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
PICK_VECTOR = """
SELECT c.id, c.page_id, c.document_id, c.chunk_id, c.chunk_index
FROM task_queue_chunk c JOIN task_queue_page p ON c.page_id = p.id
WHERE c.vector_status IN ('pending', 'failed') AND c.vector_retry_count < c.max_retries
  AND p.ocr_status = 'completed'
ORDER BY CASE WHEN c.vector_status = 'failed' THEN 0 ELSE 1 END, c.vector_retry_count ASC, c.created_at ASC
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
PICK_GRAPHRAG = """
SELECT c.id, c.page_id, c.document_id, c.chunk_id, c.chunk_index FROM task_queue_chunk c
WHERE c.graphrag_status IN ('pending', 'failed') AND c.graphrag_retry_count < c.max_retries
  AND c.vector_status = 'completed'
ORDER BY CASE WHEN c.graphrag_status = 'failed' THEN 0 ELSE 1 END, c.graphrag_retry_count ASC,
  c.created_at ASC
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
BEAT = "UPDATE {0} SET {1}_last_heartbeat = NOW() WHERE id = :{2} AND {1}_worker_id = :worker_id"
RELEASE = """
UPDATE {0} SET {1}_status = 'pending', {1}_worker_id = NULL, {1}_started_at = NULL, {1}_last_heartbeat = NULL
WHERE {1}_status = 'processing' AND {1}_last_heartbeat < NOW() - INTERVAL '2 minutes'
"""
PROGRESS = """
SELECT d.id, d.filename, d.ocr_status, d.vector_index_status, d.graphrag_index_status,
    COUNT(p.id) as total_pages,
    COUNT(p.id) FILTER (WHERE p.ocr_status = 'completed') as ocr_completed_pages,
    COUNT(p.id) FILTER (WHERE p.ocr_status = 'failed') as ocr_failed_pages,
    SUM(p.chunk_count) as total_chunks,
    (SELECT COUNT(*) FROM task_queue_chunk c WHERE c.document_id = d.id AND c.vector_status = 'completed')
        as vector_completed_chunks,
    (SELECT COUNT(*) FROM task_queue_chunk c WHERE c.document_id = d.id AND c.graphrag_status = 'completed')
        as graphrag_completed_chunks
FROM documents d LEFT JOIN task_queue_page p ON d.id = p.document_id WHERE d.id = :doc_id GROUP BY d.id
"""
STATISTICS = """
SELECT 'ocr_pages' as task_type, ocr_status as status, COUNT(*) as count
FROM task_queue_page GROUP BY ocr_status
UNION ALL
SELECT 'vector_chunks' as task_type, vector_status as status, COUNT(*) as count
FROM task_queue_chunk GROUP BY vector_status
UNION ALL
SELECT 'graphrag_chunks' as task_type, graphrag_status as status, COUNT(*) as count
FROM task_queue_chunk GROUP BY graphrag_status
"""
READY = "SELECT id, filename FROM documents WHERE {} = 'completed' AND {} = 'pending'"


class Statements:
    """In the order the specification has them."""

    def __init__(self, found: list[str]) -> None:
        self.pickups = dict(zip(Phase, found[:3], strict=True))
        self.beats = found[3:5]
        self.releases = found[5:8]
        self.progress, self.statistics, *self.ready = found[8:]


def _statements() -> Statements:
    printed = sorted(SEEDS.glob("001_*.txt"))
    if not printed:
        return Statements(
            [
                PICK_PAGE,
                PICK_VECTOR,
                PICK_GRAPHRAG,
                BEAT.format("task_queue_page", "ocr", "page_id"),
                BEAT.format("task_queue_chunk", "vector", "chunk_id"),
                RELEASE.format("task_queue_page", "ocr"),
                RELEASE.format("task_queue_chunk", "vector"),
                RELEASE.format("task_queue_chunk", "graphrag"),
                PROGRESS,
                STATISTICS,
                READY.format("ocr_status", "vector_index_status"),
                READY.format("vector_index_status", "graphrag_index_status"),
            ]
        )
    blocks = re.findall(r"```sql\n(.*?)```", printed[0].read_text(encoding="utf-8"), re.DOTALL)
    found = [part.strip() for block in blocks for part in block.split(";") if part.strip()]
    made = re.compile(r"(--[^\n]*\n\s*)*(CREATE|ALTER)\b")
    return Statements([statement for statement in found if not made.match(statement)])


PRINTED = _statements()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = PostgresCatalog(postgres.store_at(tmp_path))
    yield catalog
    # Also what others did to its rows is counted.
    assert [] == catalog.audit()
    catalog.close()
    given_back(tmp_path)


@pytest.fixture
def database(catalog: Catalog, tmp_path: Path) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.store_at(tmp_path), autocommit=True) as connection:
        yield connection


def run(database: psycopg.Connection[Any], statement: str, **values: object) -> psycopg.Cursor[Any]:
    """As printed, but for how a value is written."""
    return database.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement).encode(), values)


def one(database: psycopg.Connection[Any], statement: str) -> tuple[Any, ...]:
    (row,) = database.execute(statement.encode()).fetchall()
    found: tuple[Any, ...] = row
    return found


def begun(catalog: Catalog) -> int:
    """Two pages: one read, whose two chunks wait for their vectors; and one that is to be tried again."""
    document_id = begin(catalog, count=2, graph=True)
    first, second = take(catalog, Phase.OCR)
    parts = tuple(chunk(f"part {n}", None) for n in range(2))
    settle(
        catalog,
        [publication.completed_page(first, NewPage(number=1, chunks=parts)), publication.lost(second)],
    )
    return document_id


def test_pages_are_picked_up_failed_ones_first(catalog: Catalog, database: psycopg.Connection[Any]):
    begun(catalog)
    begin(catalog, "/later.pdf", count=1)

    (picked,) = run(database, PRINTED.pickups[Phase.OCR]).fetchall()

    assert 2 == picked[2]


def test_two_workers_do_not_pick_up_the_same(
    catalog: Catalog, database: psycopg.Connection[Any], tmp_path: Path
):
    begin(catalog, count=2)

    with psycopg.connect(postgres.store_at(tmp_path)) as other, database.transaction():
        mine = run(database, PRINTED.pickups[Phase.OCR]).fetchall()
        theirs = run(other, PRINTED.pickups[Phase.OCR]).fetchall()

    assert 2 == len({row[0] for row in mine + theirs})


def test_chunks_are_picked_up_only_behind_their_gates(catalog: Catalog, database: psycopg.Connection[Any]):
    begun(catalog)

    assert [] == run(database, PRINTED.pickups[Phase.GRAPHRAG]).fetchall()
    task, _ = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(task, VECTOR)])
    (picked,) = run(database, PRINTED.pickups[Phase.GRAPHRAG]).fetchall()

    assert task.chunk_id == picked[3]


def test_only_the_owner_gives_a_sign_of_life(catalog: Catalog, database: psycopg.Connection[Any]):
    begin(catalog, count=1)
    put(catalog, "/b.md", NewPage(number=1, chunks=(chunk("part", None),)))
    take(catalog, Phase.OCR, worker="w1")
    take(catalog, Phase.VECTOR, worker="w1")
    (page_id,) = one(database, "SELECT id FROM task_queue_page WHERE ocr_status = 'processing'")
    (chunk_id,) = one(database, "SELECT id FROM task_queue_chunk")

    for beat, name, number in zip(PRINTED.beats, ("page_id", "chunk_id"), (page_id, chunk_id), strict=True):
        assert 0 == run(database, beat, **{name: number}, worker_id="w2").rowcount
        assert 1 == run(database, beat, **{name: number}, worker_id="w1").rowcount
    assert [] == catalog.expired(lease=TASK_LEASE)


def test_tasks_without_a_sign_of_life_are_released(catalog: Catalog, database: psycopg.Connection[Any]):
    begin(catalog, count=2, graph=True)
    first, _ = take(catalog, Phase.OCR)
    parts = tuple(chunk(f"part {n}", None) for n in range(2))
    settle(catalog, [publication.completed_page(first, NewPage(number=1, chunks=parts))])
    embedded, _ = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(embedded, VECTOR)])
    take(catalog, Phase.GRAPHRAG)

    assert [1, 1, 1] == [run(database, release).rowcount for release in PRINTED.releases]
    waiting = "SELECT ocr_worker_id, ocr_started_at, ocr_retry_count FROM task_queue_page"
    assert (None, None, 0) == one(database, f"{waiting} WHERE page_number = 2")
    assert [] == catalog.audit()
    assert [1, 1, 1] == [len(take(catalog, lane, now=at(200))) for lane in Phase]


def test_progress_statistics_and_what_is_ready_are_what_the_catalog_says(
    catalog: Catalog, database: psycopg.Connection[Any]
):
    document_id = begun(catalog)
    (again,) = take(catalog, Phase.OCR, now=at(1))
    settle(catalog, [publication.failed(again, Failure("ERR_PARSE", "damaged"))])
    ready_for_vector = put(catalog, "/b.md", NewPage(number=1, chunks=(chunk("b", None),)))
    ready_for_graph = put(catalog, "/c.md", NewPage(number=1, chunks=(chunk("c"),)), graph=True)
    (doc_id,) = one(database, f"SELECT id FROM documents WHERE key = {document_id}")

    (progress,) = run(database, PRINTED.progress, doc_id=doc_id).fetchall()
    counted = {(kind, status): number for kind, status, number in run(database, PRINTED.statistics)}
    ready = [[name for _, name in run(database, statement)] for statement in PRINTED.ready]

    with catalog.snapshot() as snapshot:
        known = snapshot.progress(document_id)
        assert counted == snapshot.statistics()
    assert known is not None
    assert ("a.pdf", known.status[Phase.OCR], known.status[Phase.VECTOR]) == progress[1:4]
    assert (2, 1, 1, 2, 0, 0) == progress[5:]
    assert (known.total_pages, known.ocr_completed_pages, known.ocr_failed_pages) == progress[5:8]
    assert None not in (ready_for_vector.document_id, ready_for_graph.document_id)
    assert [["b.md"], ["c.md"]] == ready


def test_the_checks_after_the_migration_find_tables_and_columns(catalog: Catalog, tmp_path: Path):
    program = postgres.packaged_programs() / "psql"

    def shown(command: str) -> str:
        asked = [str(program), postgres.store_at(tmp_path), "-X", "-c", command]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120).stdout

    tables = shown(r"\dt task_queue_*")
    assert ["task_queue_chunk", "task_queue_page"] == sorted(set(re.findall(r"task_queue_\w+", tables)))
    statuses = r"(ocr_status|vector_index_status|graphrag_index_status) +\| task_status"
    columns = re.findall(statuses, shown(r"\d documents"))
    assert {"ocr_status", "vector_index_status", "graphrag_index_status"} == set(columns)


def test_a_worker_of_somebody_elses_leaves_pages_and_documents_right(
    catalog: Catalog, database: psycopg.Connection[Any]
):
    """Who moves tasks by statements of their own need not know of the counters behind them."""
    document_id = begin(catalog, count=2, graph=True)
    read = take(catalog, Phase.OCR)
    parts = tuple(chunk(f"part {n}", None) for n in range(2))
    settle(
        catalog,
        [publication.completed_page(task, NewPage(number=task.page_number, chunks=parts)) for task in read],
    )
    for phase in ("vector", "graphrag"):
        for status in ("processing", "completed"):
            moved = f"UPDATE task_queue_chunk SET {phase}_status = '{status}', {phase}_last_heartbeat = now()"
            database.execute(moved.encode())
            assert [] == catalog.audit()

    with catalog.snapshot() as snapshot:
        known = snapshot.progress(document_id)
    assert known is not None
    assert (4, 4) == (known.completed_chunks[Phase.VECTOR], known.completed_chunks[Phase.GRAPHRAG])
    assert ("completed", "completed") == (known.status[Phase.VECTOR], known.status[Phase.GRAPHRAG])
