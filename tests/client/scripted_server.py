"""A server that gives prepared answers, for what no real server does on demand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Reply = bytes | Callable[[socket.socket], None]
"""Bytes to send, or a function that does more than that."""


class ScriptedServer:
    """Answers each request with the next reply; the last one is repeated."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = list(replies)
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := _request(connection):
                self.requests.append(request)
                reply = self._replies[0] if len(self._replies) == 1 else self._replies.pop(0)
                if callable(reply):
                    reply(connection)
                else:
                    connection.sendall(reply)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


def _request(connection: socket.socket) -> bytes:
    """Read one request with its body."""
    read = b""
    while b"\r\n\r\n" not in read:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    size = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < size:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def scripted(*replies: Reply) -> Iterator[ScriptedServer]:
    server = ScriptedServer(replies)
    try:
        yield server
    finally:
        server.close()


def reply(status: int, body: bytes = b"{}", content_type: str = "application/json", **headers: str) -> bytes:
    """An answer; names of headers have underscores for hyphens."""
    lines = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", f"Content-Type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


ALIVE = reply(200, b'{"status": "ok"}')
RECEIPT = reply(202, b'{"job_id": "job_1", "status": "pending", "message": "Job queued"}')
KEY = "ps_secret_key_of_the_miller"


def problem(status: int, code: str, detail: str = "no", **more: Any) -> bytes:
    headers = more.pop("headers", {})
    body = {
        "type": "about:blank",
        "title": "",
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": "Do.",
    }
    return reply(status, json.dumps(body | more).encode(), "application/problem+json", **headers)
