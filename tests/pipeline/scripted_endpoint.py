"""A scripted HTTP server with the manners of an OpenAI-compatible endpoint: answers, failures, slowness."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar


class Answer(NamedTuple):
    """An answer of the script. ``left_out``: bytes missing at the end.

    ``drips``: a byte now and then, without end, in the ``body`` or already in the ``head``.
    """

    status: int = 200
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    left_out: int = 0
    drips: str | bool = False


class ScriptedEndpoint(ThreadingHTTPServer):
    """Answers with ``script``, one entry a request, then with ``always``, else as usual."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Answer] = []
        self.always: Answer | None = None
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def usual(self, request: dict[str, Any]) -> Answer:
        """The answer to a request when nothing is scripted."""
        raise NotImplementedError

    def answer(self, request: dict[str, Any]) -> Answer:
        if self.script:
            return self.script.pop(0)
        return self.always if self.always is not None else self.usual(request)


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedEndpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self.server.requests.append(request)
        answer = self.server.answer(request)
        body = self.server.usual(request).body if answer.body is None else answer.body
        assert body is not None
        if answer.drips == "head":
            self._drip(b"H")
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if answer.drips:
            self._drip(b" ")
            return
        self.wfile.write(body[: len(body) - answer.left_out])

    def _drip(self, byte: bytes) -> None:
        while not self.server.over.wait(0.02):
            self.wfile.write(byte)

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client gave up
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass


Server = TypeVar("Server", bound=ScriptedEndpoint)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def completion(content: str | None, *, tokens: int | None = None, **choice: Any) -> bytes:
    """The body of a chat completion."""
    told = {"message": {"content": content}, "finish_reason": "stop"} | choice
    usage = {"usage": {"total_tokens": tokens}} if tokens is not None else {}
    return json.dumps({"choices": [told]} | usage).encode()
