"""Stores of other queues as their documents describe them: rows in every state, and every kind of fault."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Outcomes: TypeAlias = dict[tuple[str, str], str]


class Shape(NamedTuple):
    """A source, and the outcome of each of its rows. ``errors``: failed rows with what is kept of them."""

    kind: str
    source: str
    outcomes: Outcomes
    errors: dict[str, str]


TIME = "2025-01-10T20:15:30.123456Z"

UNIFIED = """
CREATE TABLE unified_queue (
    queue_id TEXT PRIMARY KEY NOT NULL, item_type TEXT NOT NULL, op TEXT NOT NULL, tenant_id TEXT NOT NULL,
    collection TEXT NOT NULL, priority INTEGER NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, lease_until TEXT, worker_id TEXT, idempotency_key TEXT NOT NULL UNIQUE,
    payload_json TEXT NOT NULL, retry_count INTEGER NOT NULL DEFAULT 0,
    max_retries INTEGER NOT NULL DEFAULT 3,
    error_message TEXT, last_error_at TEXT, branch TEXT DEFAULT 'main', metadata TEXT DEFAULT '{}',
    added_later TEXT)
"""


def unified_rows() -> list[tuple[tuple[Any, ...], str]]:
    """Values (id, type, op, payload, status, error) with the outcome of each."""
    file = {"file_path": "/srv/a.md", "file_type": "document", "size_bytes": 12}
    tag = {"content": "A note.", "source_type": "mcp", "main_tag": "a", "full_tag": "a/b"}
    folder = {"folder_path": "/srv/docs", "recursive": True, "recursive_depth": 10, "patterns": ["*.py"]}
    library = {"library_name": "qdrant-client", "library_version": "1.15.0", "source_url": "https://x.org"}
    return [
        (("c0ffee00-0001", "file", "ingest", file, "pending", None), "imported"),
        (("c0ffee00-0002", "content", "ingest", tag, "in_progress", None), "imported"),
        (("c0ffee00-0003", "folder", "scan", folder, "pending", "timed out"), "imported"),
        (("c0ffee00-0004", "project", "ingest", {"project_root": "/srv/p"}, "done", None), "ended"),
        (("c0ffee00-0005", "library", "update", library, "pending", None), "imported"),
        (
            ("c0ffee00-0006", "delete_tenant", "delete", {"tenant_id_to_delete": "x"}, "pending", None),
            "imported",
        ),
        (
            ("c0ffee00-0007", "delete_document", "delete", {"document_id": "/srv/x"}, "pending", None),
            "imported",
        ),
        (
            ("c0ffee00-0008", "rename", "update", {"old_path": "/a", "new_path": "/b"}, "failed", "torn"),
            "ended",
        ),
        # The same file under another spelling, and later: both are one request.
        (("c0ffee00-0009", "file", "delete", {"file_path": "/srv//a.md"}, "pending", None), "merged"),
        (("c0ffee00-0010", "file", "ingest", '{"file_path": "/srv', "pending", None), "refused"),
        (("c0ffee00-0011", "file", "ingest", [1, 2], "pending", None), "refused"),
        (("c0ffee00-0012", "file", "ingest", {"file_path": "/srv/u"}, "wandering", None), "refused"),
        (("c0ffee00-0013", "video", "ingest", {"file_path": "/srv/v"}, "pending", None), "refused"),
        (
            ("c0ffee00-0014", "rename", "ingest", {"old_path": "/a", "new_path": "/c"}, "pending", None),
            "refused",
        ),
        (("c0ffee00-0015", "file", "ingest", {"file_path": "relative"}, "pending", None), "refused"),
        (
            ("c0ffee00-0016", "file", "ingest", {"file_path": "/srv/l" + "x" * 3000}, "pending", None),
            "imported",
        ),
        (("c0ffee00-0017", "file", "ingest", {"file_path": "/srv/f"}, "failed", None), "ended"),
        (("c0ffee00-0018", "file", "ingest", {"file_path": "/srv/q"}, "cancelled", None), "ended"),
    ]


def unified(place: Path) -> Shape:
    path = place / "unified.db"
    with sqlite3.connect(path) as connection:
        connection.execute(UNIFIED)
        for number, ((row_id, item_type, op, payload, status, error), _) in enumerate(unified_rows()):
            text = payload if isinstance(payload, str) else json.dumps(payload)
            at = f"2025-01-10T20:15:{number:02}Z"
            connection.execute(
                "INSERT INTO unified_queue VALUES"
                " (?,?,?,?,?,?,?,?,?,NULL,'w1',?,?,1,3,?,NULL,'main',?,'kept')",
                (row_id, item_type, op, "acme", "docs", 5, status, at, at, row_id, text, error, '{"a": 1}'),
            )
    connection.close()
    outcomes = {("unified_queue", values[0]): outcome for values, outcome in unified_rows()}
    return Shape("unified-queue", str(path), outcomes, {"c0ffee00-0008": "torn"})


def predecessors(place: Path) -> Shape:
    path = place / "predecessors.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE ingestion_queue (file_absolute_path TEXT NOT NULL, collection_name TEXT NOT NULL,
                tenant_id TEXT, branch TEXT, operation TEXT, priority INTEGER, queued_timestamp TEXT,
                retry_count INTEGER, status TEXT, error_message TEXT,
                PRIMARY KEY (file_absolute_path, collection_name));
            CREATE TABLE content_ingestion_queue (id INTEGER PRIMARY KEY, content TEXT, collection_name TEXT,
                main_tag TEXT, source TEXT, created_at TEXT);
            CREATE TABLE processing_queue (queue_id TEXT PRIMARY KEY, file_path TEXT, collection TEXT,
                operation TEXT, priority INTEGER, status TEXT, attempts INTEGER, created_at INTEGER);
            CREATE TABLE missing_metadata_queue (queue_id TEXT, file_absolute_path TEXT, missing_tools TEXT,
                collection_name TEXT);
            CREATE TABLE cumulative_deletions_queue (id INTEGER PRIMARY KEY AUTOINCREMENT,
                file_absolute_path TEXT, collection_name TEXT, tenant_id TEXT, branch TEXT,
                marked_for_deletion_at TEXT, deleted_at TEXT, status TEXT, error_message TEXT);
            """
        )
        connection.executemany(
            "INSERT INTO ingestion_queue VALUES (?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    "/srv/1.md",
                    "docs",
                    "acme",
                    "main",
                    "ingest",
                    7,
                    "2025-01-01T00:00:00Z",
                    0,
                    "pending",
                    None,
                ),
                (
                    "/srv/2.md",
                    "docs",
                    "acme",
                    "main",
                    "update",
                    5,
                    "2025-01-02 00:00:00",
                    2,
                    "in_progress",
                    None,
                ),
                (
                    "/srv/3.md",
                    "docs",
                    "acme",
                    "main",
                    "ingest",
                    5,
                    "2025-01-03T00:00:00Z",
                    3,
                    "failed",
                    "torn page",
                ),
                ("/srv/4.md", "docs", "acme", "main", "fold", 5, "2025-01-04T00:00:00Z", 0, "pending", None),
                (
                    "/srv/5.md",
                    "docs",
                    "acme",
                    "main",
                    "ingest",
                    77,
                    "2025-01-05T00:00:00Z",
                    0,
                    "pending",
                    None,
                ),
            ],
        )
        connection.executemany(
            "INSERT INTO content_ingestion_queue VALUES (?,?,?,?,?,?)",
            [
                (1, "The mill.", "notes", "mill", "scratchbook", TIME),
                (2, "", "notes", None, None, TIME),
                (3, "The mill.", "notes", "wheel", "browser", TIME),
            ],
        )
        connection.executemany(
            "INSERT INTO processing_queue VALUES (?,?,?,?,?,?,?,?)",
            [
                ("a", "/srv/1.md", "docs", "ingest", 3, "queued", 1, 1736539200),
                ("b", None, "docs", "ingest", 3, "queued", 1, 1),
            ],
        )
        connection.execute(
            "INSERT INTO missing_metadata_queue VALUES ('q', '/srv/m.py', '[\"lsp\"]', 'code')"
        )
        connection.executemany(
            "INSERT INTO cumulative_deletions_queue VALUES (?,?,?,?,?,?,?,?,?)",
            [
                (1, "/srv/gone.md", "docs", "acme", "main", TIME, None, "pending", None),
                (2, "/srv/gone2.md", "docs", "acme", "main", TIME, TIME, "deleted", None),
            ],
        )
    connection.close()
    outcomes = {
        ("ingestion_queue", "/srv/1.md:docs"): "imported",
        ("ingestion_queue", "/srv/2.md:docs"): "imported",
        ("ingestion_queue", "/srv/3.md:docs"): "ended",
        ("ingestion_queue", "/srv/4.md:docs"): "refused",
        ("ingestion_queue", "/srv/5.md:docs"): "refused",
        ("content_ingestion_queue", "1"): "imported",
        ("content_ingestion_queue", "2"): "refused",
        ("content_ingestion_queue", "3"): "merged",
        # Another tenant: the column is missing, so that it is the default one.
        ("processing_queue", "a"): "imported",
        ("processing_queue", "b"): "refused",
        ("missing_metadata_queue", "1"): "imported",
        ("cumulative_deletions_queue", "1"): "imported",
        ("cumulative_deletions_queue", "2"): "ended",
    }
    return Shape("legacy-queues", str(path), outcomes, {"/srv/3.md": "torn page"})


FUNCTIONS = """
CREATE TABLE task_queue (
    task_id TEXT PRIMARY KEY, entity_type TEXT NOT NULL CHECK (entity_type IN ('planner', 'worker')),
    entity_id TEXT NOT NULL, function_name TEXT NOT NULL, payload JSON,
    status TEXT NOT NULL DEFAULT 'PENDING',
    error_message TEXT, retry_count INTEGER NOT NULL DEFAULT 0, max_retries INTEGER NOT NULL DEFAULT 3,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)
"""


def function_rows() -> list[tuple[tuple[Any, ...], str]]:
    plan = '{"user_question": "why", "instruction": "answer"}'
    return [
        (("a" * 31 + "1", "planner", "p1", "execute_initial_planning", plan, "PENDING", None), "imported"),
        (("a" * 31 + "2", "planner", "p1", "execute_synthesis", None, "PENDING", None), "imported"),
        (("a" * 31 + "3", "worker", "w1", "execute_sql_worker", "{}", "IN_PROGRESS", None), "imported"),
        (("a" * 31 + "4", "worker", "w2", "execute_sql_worker", None, "COMPLETED", None), "ended"),
        (("a" * 31 + "5", "worker", "w3", "execute_sql_worker", None, "FAILED", "no such table"), "ended"),
        (("a" * 31 + "6", "worker", "w4", "execute_sql_worker", '{"a":', "PENDING", None), "refused"),
        (("a" * 31 + "7", "worker", "w5", "execute_sql_worker", "[1]", "PENDING", None), "refused"),
        (("a" * 31 + "8", "worker", "w6", "execute_sql_worker", None, "RESTING", None), "refused"),
    ]


def functions(place: Path) -> Shape:
    path = place / "tasks.db"
    columns = "task_id, entity_type, entity_id, function_name, payload, status, error_message"
    with sqlite3.connect(path) as connection:
        connection.execute(FUNCTIONS)
        for values, _ in function_rows():
            connection.execute(f"INSERT INTO task_queue ({columns}) VALUES (?,?,?,?,?,?,?)", values)
    connection.close()
    outcomes = {("task_queue", values[0]): outcome for values, outcome in function_rows()}
    return Shape("function-tasks", str(path), outcomes, {"a" * 31 + "5": "no such table"})


def journal(place: Path) -> Shape:
    folder = place / "indexer"
    (folder / "jobs").mkdir(parents=True)
    record = {
        "dedupe_key": "k",
        "include_code": False,
        "operation": "index",
        "enqueued_at": TIME,
        "retry_count": 0,
    }

    def job(name: str, status: str, **more: Any) -> dict[str, Any]:
        return record | {"id": name, "folder_path": f"/srv/{name}", "status": status} | more

    snapshot = [job("job_000000000001", "pending"), job("job_000000000002", "running")]
    lines = [
        json.dumps(job("job_000000000001", "running")),
        json.dumps(job("job_000000000003", "failed", error="Timeout after 5s")),
        json.dumps(job("job_000000000001", "done", total_chunks=7)),
        '{"id": "job_00000000',
        json.dumps(job("job_000000000004", "asleep")),
        json.dumps(job("job_000000000005", "pending", operation="add", recursive=True, chunk_size=256)),
        json.dumps(job("job_000000000006", "running", cancel_requested=True)),
        json.dumps(job("job_000000000007", "pending", folder_path="/srv/job_000000000002")),
        "[]",
        '{"id": "job_00000000000',
    ]
    (folder / "jobs" / "index_queue.snapshot").write_text(json.dumps(snapshot, indent=1))
    (folder / "jobs" / "index_queue.jsonl").write_text("\n".join(lines))
    table = "index_queue"
    outcomes = {
        (table, "job_000000000001"): "ended",
        (table, "job_000000000002"): "imported",
        (table, "job_000000000003"): "ended",
        (table, "job_000000000004"): "refused",
        (table, "job_000000000005"): "imported",
        (table, "job_000000000006"): "ended",
        (table, "job_000000000007"): "merged",
        ("index_queue.jsonl", "line 4"): "refused",
        ("index_queue.jsonl", "line 9"): "refused",
        ("index_queue.jsonl", "line 10"): "refused",
    }
    return Shape("job-journal", str(folder), outcomes, {"job_000000000003": "Timeout after 5s"})


def queue_file(path: Path, number: int, status: str = "pending") -> Path:
    """A unified queue with so many files."""
    connection = sqlite3.connect(path)
    connection.execute(UNIFIED)
    statement = """
        INSERT INTO unified_queue (queue_id, item_type, op, tenant_id, collection, priority, status,
            created_at, updated_at, idempotency_key, payload_json)
        VALUES (?, 'file', 'ingest', 'acme', 'docs', 5, ?, ?, ?, ?, ?)
    """
    connection.executemany(
        statement,
        (
            (
                f"row-{each:08}",
                status,
                "2025-01-01T00:00:00Z",
                "2025",
                f"k{each}",
                f'{{"file_path": "/srv/{each}"}}',
            )
            for each in range(number)
        ),
    )
    connection.commit()
    connection.close()
    return path
