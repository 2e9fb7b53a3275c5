"""The floor of the HTTP measurements: a bare Starlette application below uvicorn, without any of our checks.

``GET /constant`` answers a constant. ``POST /content`` decodes a JSON body and commits one row to SQLite in
the only thread there is: ``python -m bench.http_floor FILE``. ``POST /row`` does so with the row of a note
in a queue of ours, by the statements of the engine: with its turn, and not beside a live duplicate.
``POST /group`` commits the same row in a second thread, together with those that wait, so that the disk
delays no other answer. The first line of the output is the address.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue as queues
import socket
import sqlite3
import sys
import threading
import uuid

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from penstock import clock
from penstock.database.sqlite import LOG_PAGES
from penstock.queue.job import NewJob
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import Refused, insert_plain

TABLE = "CREATE TABLE note (id TEXT PRIMARY KEY, created_at TEXT DEFAULT CURRENT_TIMESTAMP, content TEXT)"


def _connection(path: str, *, shared: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=not shared)
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


def _queue(path: str, *, shared: bool = False) -> sqlite3.Connection:
    SqliteQueue(path).close()
    connection = _connection(path, shared=shared)
    connection.execute("PRAGMA cache_size = -32768")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    return connection


def _add(connection: sqlite3.Connection, new: list[NewJob]) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for each in new:
            insert_plain(connection, [each], clock.now())
    except Refused:
        connection.execute("ROLLBACK")
        return False
    connection.execute("COMMIT")
    return True


Waiting = tuple[NewJob, "asyncio.Future[bool]"]


class Groups:
    """A thread that commits the rows of all requests that wait, and answers them together."""

    def __init__(self, path: str) -> None:
        self._connection = _queue(path, shared=True)
        self._waiting: list[Waiting] = []
        self._running = False
        self._groups: queues.SimpleQueue[list[Waiting]] = queues.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def add(self, new: NewJob) -> bool:
        """Add a row; True if there was no duplicate."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._commit, args=(loop,), daemon=True)
            self._thread.start()
        answer: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((new, answer))
        if not self._running:
            self._start()
        return await answer

    def _start(self) -> None:
        group, self._waiting = self._waiting, []
        self._running = bool(group)
        if group:
            self._groups.put(group)

    def _commit(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            group = self._groups.get()
            added = _add(self._connection, [new for new, _ in group])
            loop.call_soon_threadsafe(self._answer, group, added)

    def _answer(self, group: list[Waiting], added: bool) -> None:
        self._start()
        for _, answer in group:
            answer.set_result(added)


def application(path: str) -> Starlette:
    """The routes over a database file, and the files of two queues beside it."""
    connection = _connection(path)
    connection.execute(TABLE)
    queue = _queue(f"{path}.queue")
    groups = Groups(f"{path}.groups")

    async def constant(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def content(request: Request) -> JSONResponse:
        given = json.loads(await request.body())
        note_id = uuid.uuid4().hex
        connection.execute("INSERT INTO note (id, content) VALUES (?, ?)", (note_id, given["content"]))
        return JSONResponse({"id": note_id}, 202)

    async def row(request: Request) -> JSONResponse:
        new = _note(json.loads(await request.body())["content"])
        return JSONResponse({"id": new.queue_id if _add(queue, [new]) else None}, 202)

    async def group(request: Request) -> JSONResponse:
        new = _note(json.loads(await request.body())["content"])
        return JSONResponse({"id": new.queue_id if await groups.add(new) else None}, 202)

    return Starlette(
        routes=[
            Route("/constant", constant),
            Route("/content", content, methods=["POST"]),
            Route("/row", row, methods=["POST"]),
            Route("/group", group, methods=["POST"]),
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
