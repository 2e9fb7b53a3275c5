"""Heads of requests that arrive slowly, or never end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.http.connections import HEAD_BYTES, TimedConnection
from tests.http.live_server import until


class Hasty(TimedConnection):
    head_s = 0.3


async def answers(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def running(app: ASGIApp, **options: Any) -> Iterator[tuple[uvicorn.Server, tuple[str, int]]]:
    """A server in a thread, and its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    options = {"http": Hasty, "lifespan": "off", "log_config": None, "ws": "none", **options}
    config = uvicorn.Config(app, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started, bool)
        yield server, listening.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with running(answers) as (_, address):
        yield address


def rest(connection: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def test_a_head_that_does_not_end_in_time_is_refused(address: tuple[str, int]):
    with socket.create_connection(address, 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        found = rest(connection)

    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"ERR_REQUEST_TOO_SLOW" in found


def test_a_connection_without_a_request_is_closed(address: tuple[str, int]):
    with socket.create_connection(address, 30) as connection:
        assert b"" == rest(connection)


def test_a_head_without_end_is_refused(address: tuple[str, int]):
    with socket.create_connection(address, 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * (HEAD_BYTES + 1))
        found = rest(connection)

    assert found.startswith(b"HTTP/1.1 431 ")
    assert b"ERR_REQUEST_HEAD_TOO_LARGE" in found


def test_a_second_request_of_a_connection_has_its_own_time(address: tuple[str, int]):
    with socket.create_connection(address, 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET / HTTP/1.1\r\nHos")
        assert b"HTTP/1.1 408 " in rest(connection)


def test_bytes_that_are_no_request_are_refused_with_a_problem_document(address: tuple[str, int]):
    with socket.create_connection(address, 30) as connection:
        connection.sendall(b"GET /\x16 HTTP/1.1\r\nHost: a\r\n\r\n")
        found = rest(connection)

    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in found
    assert b"ERR_INVALID_REQUEST" in found


@pytest.mark.parametrize("started", [False, True])
def test_a_request_that_outlasts_a_stop_gets_no_answer(caplog: pytest.LogCaptureFixture, started: bool):
    begun = threading.Event()

    async def never_ends(_scope: Scope, _receive: Receive, send: Send) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await asyncio.Event().wait()

    with (
        running(never_ends, timeout_graceful_shutdown=1) as (server, address),
        socket.create_connection(address, 30) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert begun.wait(30)
        server.should_exit = True
        found = rest(connection)

    assert [b"HTTP/1.1 200 OK"] * started == found.splitlines()[:1]
    assert [] == [record for record in caplog.records if record.exc_info]
    assert [] == [text for text in caplog.messages if "ASGI" in text]
