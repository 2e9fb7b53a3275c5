"""The floor of the HTTP measurements: a bare Starlette application below uvicorn, without any of our checks.

``GET /constant`` answers a constant. ``POST /content`` decodes a JSON body and commits one row to SQLite in
the only thread there is: ``python -m bench.http_floor FILE``. The first line of its output is its address.
"""

from __future__ import annotations

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

TABLE = "CREATE TABLE note (id TEXT PRIMARY KEY, created_at TEXT DEFAULT CURRENT_TIMESTAMP, content TEXT)"


def application(path: str) -> Starlette:
    """The two routes over a database file."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)

    async def constant(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def content(request: Request) -> JSONResponse:
        given = json.loads(await request.body())
        note_id = uuid.uuid4().hex
        connection.execute("INSERT INTO note (id, content) VALUES (?, ?)", (note_id, given["content"]))
        return JSONResponse({"id": note_id}, 202)

    return Starlette(routes=[Route("/constant", constant), Route("/content", content, methods=["POST"])])


def main() -> None:
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    host, port = bound.getsockname()
    config = uvicorn.Config(application(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
    print(f"{host}:{port}", flush=True)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
