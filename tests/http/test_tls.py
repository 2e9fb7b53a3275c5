"""Connections with TLS: counted from their begin, on the event loops that a server may have."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.http.connections import SPARE, OpenConnections, TlsConnection
from tests.http.live_server import WAIT_S, LiveServer, until
from tests.http.test_attacks import hangs
from tests.http.test_connections import rest, running

MOST = 10
REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, with its private key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    made = tmp_path_factory.mktemp("tls") / "mill.pem"
    subprocess.run(
        [
            *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(),
            *("-keyout", made, "-out", made.with_suffix(".crt"), "-subj", "/CN=localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return made


Served = tuple[tuple[str, int], OpenConnections]


@pytest.fixture(params=["asyncio", "uvloop"])
def served(request: pytest.FixtureRequest, certificate: Path) -> Iterator[Served]:
    """The address of a server that has few connections, and these."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"no {request.param}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.with_suffix(".crt"), certificate)
    opened = OpenConnections(MOST)
    made = functools.partial(TlsConnection, context=context, open_connections=opened)
    with running(hangs, timeout_graceful_shutdown=1, http=made, loop=request.param) as (_, address):
        yield address, opened


@contextmanager
def secured(address: tuple[str, int]) -> Iterator[ssl.SSLSocket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(address, WAIT_S) as connection,
        context.wrap_socket(connection) as wrapped,
    ):
        yield wrapped


def get(address: tuple[str, int], path: bytes) -> bytes:
    with secured(address) as connection:
        connection.sendall(REQUEST % path)
        return rest(connection)


def test_connections_without_a_handshake_give_way(served: Served):
    address, opened = served
    with ExitStack() as idle:
        first, *_ = [idle.enter_context(socket.create_connection(address, WAIT_S)) for _ in range(3 * MOST)]
        assert get(address, b"/quick").startswith(b"HTTP/1.1 200 ")
        assert rest(first) == b""
        assert len(opened._all) <= MOST

    until(lambda: len(opened._all), lambda number: number == 0)
    assert get(address, b"/quick").startswith(b"HTTP/1.1 200 ")


def test_a_busy_server_ends_connections_before_the_handshake_and_answers_health(served: Served):
    address, opened = served
    with ExitStack() as used:
        for _ in range(MOST):
            used.enter_context(secured(address)).sendall(REQUEST % b"/hang")
        until(lambda: len(opened._all) == MOST and not opened._unknown, bool)
        for _ in range(3 * SPARE):
            used.enter_context(socket.create_connection(address, WAIT_S))
        assert get(address, b"/health").startswith(b"HTTP/1.1 200 ")
        assert get(address, b"/quick").startswith(b"HTTP/1.1 503 ")

    until(lambda: len(opened._all), lambda number: number == 0)


def test_a_connection_without_tls_is_ended_and_forgotten(served: Served):
    address, opened = served
    with socket.create_connection(address, WAIT_S) as connection:
        connection.sendall(REQUEST % b"/quick")
        assert b"HTTP" not in rest(connection)

    until(lambda: len(opened._all), lambda number: number == 0)


def test_a_handshake_that_does_not_end_in_time_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.http.connections.HEAD_S", 0.3)
    with socket.create_connection(served[0], WAIT_S) as idle:
        assert rest(idle) == b""

    until(lambda: len(served[1]._all), lambda number: number == 0)


def test_a_server_with_tls_answers_and_ends(tmp_path: Path, certificate: Path):
    files = ("--tls-certificate", str(certificate.with_suffix(".crt")), "--tls-key", str(certificate))
    server = LiveServer(tmp_path, "--no-worker", *files)
    try:
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        assert get((host, int(port)), b"/health").startswith(b"HTTP/1.1 200 ")
    finally:
        assert 0 == server.stop()
