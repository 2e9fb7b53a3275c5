"""A scripted server with the interfaces of an embedding and of a re-ranking endpoint."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

DIMENSION = 8
TOKENS_A_TEXT = 5


class Answer(NamedTuple):
    """An answer of the script. ``left_out``: bytes missing at the end; ``drips``: it never ends."""

    status: int = 200
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    left_out: int = 0
    drips: bool = False


class EmbeddingServer(ThreadingHTTPServer):
    """Answers with ``script``, one entry a request, then with vectors."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Answer] = []
        self.always: Answer | None = None
        """Given instead of vectors once the script is over."""
        self.refused_text = ""
        """A request with this text is answered with status 500."""
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["input"]]

    def answer(self, texts: list[str], *, rerank: bool = False) -> Answer:
        if self.script:
            return self.script.pop(0)
        if self.always is not None:
            return self.always
        if self.refused_text and any(self.refused_text in text for text in texts):
            return Answer(500)
        return Answer(body=relevances(texts) if rerank else embeddings(texts))


def relevances(texts: list[str]) -> bytes:
    """Scores that prefer long texts, best first as such endpoints answer."""
    results = [{"index": place, "relevance_score": len(text) / 100} for place, text in enumerate(texts)]
    results.sort(key=lambda each: -each["relevance_score"])
    return json.dumps({"id": "1", "results": results}).encode()


def vector(text: str) -> list[float]:
    return [float(byte) for byte in hashlib.sha256(text.encode()).digest()[:DIMENSION]]


def embeddings(texts: list[str], *, dimension: int = DIMENSION) -> bytes:
    data = [{"index": place, "embedding": vector(text)[:dimension]} for place, text in enumerate(texts)]
    tokens = TOKENS_A_TEXT * len(texts)
    return json.dumps(
        {"data": data[::-1], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    ).encode()


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self.server.requests.append(request)
        texts = request["documents"] if self.path.endswith("/rerank") else request["input"]
        answer = self.server.answer(texts, rerank="query" in request)
        body = embeddings(texts) if answer.body is None else answer.body
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if answer.drips:
            while not self.server.over.wait(0.02):
                self.wfile.write(b" ")
            return
        self.wfile.write(body[: len(body) - answer.left_out])

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client gave up
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
