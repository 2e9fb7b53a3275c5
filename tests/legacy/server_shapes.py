"""Stores of other queues on PostgreSQL and Redis, and all shapes by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.legacy.shapes import TIME, Shape, functions, journal, predecessors, unified
from tests.servers import postgres
from tests.servers.redis import connect, database_url


def documents(place: Path) -> Shape:
    url = postgres.fresh_store("s1")
    (place / "here.pdf").write_bytes(b"%PDF-1.4")
    here, gone = str(place / "here.pdf"), str(place / "gone.pdf")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TYPE task_status AS ENUM ('pending', 'processing', 'completed', 'failed')")
        connection.execute(
            """CREATE TABLE documents (id UUID PRIMARY KEY, filename TEXT, file_path TEXT,
            convert_status TEXT, index_status TEXT,
            ocr_details JSONB, indexing_details JSONB, ocr_status task_status,
            vector_index_status task_status, graphrag_index_status task_status, ocr_error TEXT,
            vector_error TEXT, created_at TIMESTAMPTZ DEFAULT now(), score REAL)"""
        )
        connection.execute(
            """CREATE TABLE task_queue_page (id UUID PRIMARY KEY, document_id UUID NOT NULL, page_number INT,
            page_file_path VARCHAR(1000), ocr_status task_status NOT NULL DEFAULT 'pending')"""
        )
        connection.execute(
            """CREATE TABLE task_queue_chunk (id UUID PRIMARY KEY, page_id UUID, document_id UUID NOT NULL,
            chunk_id VARCHAR(64), chunk_index INT, vector_status task_status NOT NULL DEFAULT 'pending')"""
        )
        rows = [
            (1, here, "converted", "indexed", None, None, None, None, None),
            (2, here + "/2", None, None, "completed", "processing", "pending", None, None),
            (3, here, None, None, "failed", "pending", "pending", "no ink", None),
            (4, gone, None, None, "pending", "pending", "pending", None, None),
            (5, "relative.pdf", None, None, "pending", "pending", "pending", None, None),
            (6, here, "lost", None, None, None, None, None, None),
            (7, here, "pending", "pending", None, None, None, None, None),
        ]
        for number, path, convert, index, ocr, vector, graph, error, vector_error in rows:
            connection.execute(
                """INSERT INTO documents (id, filename, file_path, convert_status, index_status, ocr_details,
                ocr_status, vector_index_status, graphrag_index_status, ocr_error, vector_error, created_at)
                VALUES (%s, 'x.pdf', %s, %s, %s, '{"pages": 3}', %s, %s, %s, %s, %s, %s)""",
                (
                    document_id(number),
                    path,
                    convert,
                    index,
                    ocr,
                    vector,
                    graph,
                    error,
                    vector_error,
                    f"2025-01-0{number}",
                ),
            )
        for number, owner in ((1, 1), (2, 5), (3, 9)):
            values = (document_id(100 + number), document_id(owner))
            connection.execute(
                "INSERT INTO task_queue_page VALUES (%s, %s, 1, '/srv/1_nohf.md', 'completed')", values
            )
        connection.execute(
            "INSERT INTO task_queue_chunk VALUES (%s, %s, %s, 'c', 0, 'failed')",
            (document_id(200), document_id(101), document_id(1)),
        )
    outcomes = {
        ("documents", document_id(1)): "imported",
        ("documents", document_id(2)): "ended",
        ("documents", document_id(3)): "ended",
        ("documents", document_id(4)): "ended",
        ("documents", document_id(5)): "refused",
        ("documents", document_id(6)): "refused",
        ("documents", document_id(7)): "merged",
        ("task_queue_page", document_id(101)): "merged",
        ("task_queue_page", document_id(102)): "refused",
        ("task_queue_page", document_id(103)): "refused",
        ("task_queue_chunk", document_id(200)): "merged",
    }
    return Shape("task-tables", url, outcomes, {here: "no ink", gone: f"{gone} no longer exists"})


def document_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def messages(place: Path) -> Shape:
    url = database_url()
    queue = "rag:ingest:queue"
    client: Any = connect(url, decode_responses=True)

    def message(name: str, **more: Any) -> str:
        fields = {
            "job_id": name,
            "rag_id": "policies_rag",
            "source_path": f"/srv/{name}.pdf",
            "source_type": "pdf",
        }
        return json.dumps(fields | {"filename": f"{name}.pdf", "submitted_at": TIME, "retry_count": 0} | more)

    for key in client.scan_iter(match="*rag:ingest:*"):
        client.delete(key)
    client.lpush(queue, message("rag-p-1-a"), message("rag-p-2-b", options={"reindex": True}), "{broken")
    client.lpush(queue, message("rag-p-1-a"), message("rag-p-3-c", source_type="exe"), '{"rag_id": "x"}')
    client.lpush(f"{queue}:high", message("rag-p-4-d"))
    client.lpush(
        f"{queue}:dead-letter",
        message("rag-p-5-e", error="PDF header corrupted", error_code="ERR_PDF_INVALID"),
    )
    status = {"rag_id": "policies_rag", "filename": "x.pdf", "submitted_at": TIME}
    for name, word in (
        ("rag-p-1-a", "queued"),
        ("rag-p-6-f", "done"),
        ("rag-p-7-g", "processing"),
        ("rag-p-8-h", "odd"),
    ):
        client.hset(f"rag:ingest:job:{name}", mapping=status | {"job_id": name, "status": word})
    client.hset(
        "rag:ingest:job:rag-p-9-i",
        mapping=status | {"job_id": "rag-p-9-i", "status": "failed", "error": "no disk"},
    )
    client.set("rag:ingest:job:rag-p-6-f:ttl", "1")
    client.set("rag:ingest:job:rag-p-10-j", json.dumps(status | {"job_id": "rag-p-10-j", "status": "done"}))
    client.close()
    hashes = "rag:ingest:job"
    outcomes = {
        (queue, "rag-p-1-a"): "imported",
        (queue, "rag-p-2-b"): "imported",
        (queue, "message 3"): "refused",
        (queue, "rag-p-1-a (message 4)"): "merged",
        (queue, "rag-p-3-c"): "refused",
        (queue, "message 6"): "refused",
        (f"{queue}:high", "rag-p-4-d"): "imported",
        (f"{queue}:dead-letter", "rag-p-5-e"): "ended",
        (hashes, "rag-p-1-a"): "merged",
        (hashes, "rag-p-6-f"): "ended",
        (hashes, "rag-p-7-g"): "refused",
        (hashes, "rag-p-8-h"): "refused",
        (hashes, "rag-p-9-i"): "ended",
        (hashes, "rag-p-10-j"): "ended",
    }
    errors = {"rag-p-5-e": "PDF header corrupted", "rag-p-9-i": "no disk"}
    return Shape("redis-contract", url, outcomes, errors)


SHAPES: dict[str, Callable[[Path], Shape]] = {
    "unified": unified,
    "predecessors": predecessors,
    "functions": functions,
    "journal": journal,
    "documents": documents,
    "messages": messages,
}
