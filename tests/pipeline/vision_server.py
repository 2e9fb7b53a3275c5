"""A scripted server with the interface of a vision endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class VisionServer(ThreadingHTTPServer):
    """Answers each request with the next of ``answers``: a text, or a status that is an error."""

    def __init__(self, answers: list[str | int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: VisionServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(json.loads(body))
        self.server.keys.append(self.headers["Authorization"])
        answer = self.server.answers.pop(0)
        status = answer if isinstance(answer, int) else 200
        told = {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def vision_server(*answers: str | int) -> Iterator[VisionServer]:
    server = VisionServer(list(answers))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
