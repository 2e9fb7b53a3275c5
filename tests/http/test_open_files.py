"""A server without free descriptors: requests are refused with a remedy, and served again later."""

from __future__ import annotations

import http.client
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from tests.http.live_server import WAIT_S, Answer, LiveServer

SERVE = ("--no-worker", "--no-auth")


@contextmanager
def no_free_descriptors(server: LiveServer) -> Iterator[None]:
    """Files and connections that are open stay open."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def upload(connection: http.client.HTTPConnection) -> Answer:
    return ask(connection, "POST", "/files?name=a.md", b"Water.")


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> Answer:
    connection.request(method, path, body, {"Content-Type": "text/markdown"} if body else {})
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, json.loads(response.read()), headers)


def test_a_server_without_free_descriptors_asks_to_try_again(server: LiveServer):
    connection = http.client.HTTPConnection(server.address, timeout=WAIT_S)
    assert 202 == upload(connection).status, "the server has accepted the connection"
    with no_free_descriptors(server):
        refused = upload(connection)
        page = ask(connection, "GET", "/")

    assert (503, "ERR_TOO_MANY_FILES") == (page.status, page.code)
    assert (503, "ERR_TOO_MANY_FILES") == (refused.status, refused.code)
    assert "ulimit -n" in refused.body["remedy"]
    assert int(refused.headers["retry-after"]) > 0
    assert 202 == upload(connection).status
    connection.close()
