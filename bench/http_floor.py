"""The floor of the HTTP measurements: a bare Starlette application below uvicorn, without any of our checks.

``GET /constant`` answers a constant. ``POST /content`` decodes a JSON body and commits one row to SQLite in
the only thread there is: ``python -m bench.http_floor FILE``. ``POST /row`` does so with the row of a note
in a queue of ours, by the statements of the engine: with its turn, and not beside a live duplicate. The
first line of the output is the address.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sqlite3
import sys
import uuid

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from penstock import clock
from penstock.database.sqlite_connections import LOG_PAGES
from penstock.job import NewJob
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import try_insert_plain

TABLE = "CREATE TABLE note (id TEXT PRIMARY KEY, created_at TEXT DEFAULT CURRENT_TIMESTAMP, content TEXT)"


def _connection(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _note(text: str) -> NewJob:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return NewJob(
        queue_id=clock.new_ids(1)[0],
        item_type="content",
        op="ingest",
        tenant_id="default",
        collection="default",
        idempotency_key=f"content:default:{digest}",
        payload_json=json.dumps({"content": text}),
        lock_key=f"doc:{digest}",
    )


def application(path: str) -> Starlette:
    """The routes over a database file, and the file of a queue beside it."""
    connection = _connection(path)
    connection.execute(TABLE)
    SqliteQueue(f"{path}.queue").close()
    queue = _connection(f"{path}.queue")
    queue.execute("PRAGMA cache_size = -32768")
    queue.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")

    async def constant(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def content(request: Request) -> JSONResponse:
        given = json.loads(await request.body())
        note_id = uuid.uuid4().hex
        connection.execute("INSERT INTO note (id, content) VALUES (?, ?)", (note_id, given["content"]))
        return JSONResponse({"id": note_id}, 202)

    async def row(request: Request) -> JSONResponse:
        new = _note(json.loads(await request.body())["content"])
        queue.execute("BEGIN IMMEDIATE")
        added = try_insert_plain(queue, [new], clock.now())
        queue.execute("COMMIT")
        return JSONResponse({"id": new.queue_id if added else None}, 202)

    return Starlette(
        routes=[
            Route("/constant", constant),
            Route("/content", content, methods=["POST"]),
            Route("/row", row, methods=["POST"]),
        ]
    )


def main() -> None:
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    host, port = bound.getsockname()
    config = uvicorn.Config(application(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
    print(f"{host}:{port}", flush=True)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
