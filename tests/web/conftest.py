"""A web server on the loopback address whose pages a test writes, and an application that may read them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import Penstock, config
from penstock.queue.job import Job
from tests.pipeline.kept_zygotes import kept_zygotes as kept_zygotes

WAIT_S = 120.0


class Answer(NamedTuple):
    """What the server sends for a path. ``send`` takes over the connection instead."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    send: Callable[[socket.socket], None] | None = None


class Site:
    """Pages by path. Pages with an ``ETag`` are answered with 304 where the client knows it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, Answer] = {}
        self.asked: list[tuple[str, int]] = []
        """Path and status of each request."""

    def put(self, path: str, text: str | bytes, *, etag: str = "", **headers: str) -> None:
        """Write a page; HTML unless another type is named."""
        body = text.encode() if isinstance(text, str) else text
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Content-Type", "text/html; charset=utf-8")
        self.pages[path] = Answer(body, headers=named | ({"ETag": etag} if etag else {}))

    def redirect(self, path: str, target: str) -> None:
        self.pages[path] = Answer(status=302, headers={"Location": target})

    def paths(self, status: int | None = None) -> list[str]:
        """Paths asked for, without the lists of the site; those answered with a status."""
        lists = ("/robots.txt", "/sitemap.xml")
        return [path for path, code in self.asked if path not in lists and status in (None, code)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        answer = self.site.pages.get(self.path, Answer(b"missing", 404))
        etag = answer.headers.get("ETag")
        if etag and self.headers.get("If-None-Match") == etag:
            answer = Answer(status=304, headers={"ETag": etag})
        self.site.asked.append((self.path, answer.status))
        if answer.send is not None:
            with suppress(OSError):
                answer.send(self.connection)
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def served() -> Iterator[Site]:
    """A running web server."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    site = handler.site = Site(server.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as found:
        yield found


def page(title: str, body: str, *links: str, head: str = "") -> str:
    """An HTML page with a navigation, a heading and links."""
    anchors = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    filler = "The wheel turns while the water runs through the gate. " * 6
    return (
        f"<!doctype html><html><head><title>{title}</title>{head}</head><body>"
        f"<nav><p>Navigation of the site</p><ul>{anchors}</ul></nav>"
        f'<main><section id="{title.lower()}"><h1>{title}<a class="headerlink" href="#x">¶</a></h1>'
        f"<p>{body}</p><p>{filler}</p></section></main></body></html>"
    )


class Indexer:
    """An application with a thread worker."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

    def index(self, url: str, **options: Any) -> Job:
        with self.app.worker_thread():
            return self.app.wait(self.app.index(url, **options).job_id, timeout=WAIT_S)

    def add(self, requirement: str, source: str | Path | None = None, **options: Any) -> Job:
        with self.app.worker_thread():
            named = None if source is None else str(source)
            receipt = self.app.documents.libraries.add(requirement, source=named, **options)
            return self.app.wait(receipt.job_id, timeout=WAIT_S)

    def run(self, **submission: Any) -> Job:
        with self.app.worker_thread():
            return self.app.wait(self.app.submit(**submission).job_id, timeout=WAIT_S)

    def paths(self, **filters: Any) -> list[str]:
        return sorted(source.path for source in self.app.documents.sources(limit=1000, **filters))


def settings_of(tmp_path: Path, **more: Any) -> config.Settings:
    given = {"embedder": "hashing", "sqlite_synchronous": "NORMAL", "web_private": True, "web_delay_s": 0.0}
    return config.load({}, state_dir=tmp_path / "state", **(given | more))


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[Indexer]:
    with Penstock(settings=settings_of(tmp_path)) as app:
        yield Indexer(app)
        assert [] == app.documents.catalog.audit()
