"""Connections: used again, broken, slow, with TLS; bodies and event streams over them."""

from __future__ import annotations

import fcntl
import resource
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.client.transport import EventParser
from tests.client.conftest import MakeClient
from tests.client.scripted_server import ALIVE, KEY, RECEIPT, ScriptedServer, problem, reply, scripted

# Connections.


def test_a_connection_is_used_again(connect: MakeClient):
    ports = set()

    def note_port(connection: socket.socket) -> None:
        ports.add(connection.getpeername())
        connection.sendall(ALIVE)

    with scripted(note_port) as server:
        client = connect(server.url)
        for _ in range(3):
            client.health()

        assert 1 == len(ports)


def test_a_connection_with_a_high_descriptor_is_used_again(
    connect: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    made = socket.create_connection
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))

    def create_high(*given: Any) -> socket.socket:
        with made(*given) as low:
            return socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1_024))

    monkeypatch.setattr(socket, "create_connection", create_high)
    with scripted(ALIVE, ALIVE) as server:
        client = connect(server.url)

        assert [{"status": "ok"}] * 2 == [client.health() for _ in range(2)]


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(connect: MakeClient):
    closed = threading.Event()

    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(ALIVE)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with scripted(answer_and_close) as server:
        client = connect(server.url)
        client.health()
        assert closed.wait(10)

        assert {"status": "ok"} == client.health()


def test_a_reused_connection_that_breaks_is_replaced_only_for_what_may_be_repeated(connect: MakeClient):
    def drop(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_RDWR)

    with scripted(ALIVE, drop, ALIVE, drop, RECEIPT) as server:
        client = connect(server.url)
        client.health()
        assert {"status": "ok"} == client.health()
        with pytest.raises(errors.ServerUnreachable):
            client.index("docs")


def test_no_server(connect: MakeClient):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    with pytest.raises(errors.ServerUnreachable, match="cannot connect") as caught:
        connect(f"http://127.0.0.1:{port}").health()

    assert "ERR_SERVER_UNREACHABLE" == caught.value.code
    assert caught.value.remedy


def test_a_slow_server_is_a_timeout_with_a_remedy(connect: MakeClient):
    never = threading.Event()

    def sleep(_: socket.socket) -> None:
        never.wait(30)

    with scripted(sleep) as server:
        with pytest.raises(errors.ServerTimeout, match=r"did not answer within 0.2 s") as caught:
            connect(server.url, query_timeout=0.2).health()
        never.set()

    assert "more time" in caught.value.remedy


def test_an_answer_that_trickles_does_not_outlast_the_timeout(connect: MakeClient):
    stop = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stop.wait(0.02):
            connection.sendall(b" ")

    with scripted(trickle) as server:
        with pytest.raises(errors.ServerTimeout):
            connect(server.url, query_timeout=0.3).health()
        stop.set()


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody has signed, with its private key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    made = tmp_path_factory.mktemp("tls") / "mill.pem"
    subprocess.run(
        [
            *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(),
            *("-keyout", made, "-out", made.with_suffix(".crt"), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    made.write_text(made.read_text() + made.with_suffix(".crt").read_text())
    return made


@pytest.fixture
def secure_server(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def speak_tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            while wrapped.recv(65_536):
                wrapped.sendall(ALIVE)

    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            try:
                speak_tls(connection)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"https://localhost:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_certificate_that_nobody_has_signed_is_refused(connect: MakeClient, secure_server: str):
    with pytest.raises(errors.ServerUntrusted, match="certificate") as caught:
        connect(secure_server, KEY).health()

    assert "SSL_CERT_FILE" in caught.value.remedy


def test_a_certificate_that_is_trusted(connect: MakeClient, secure_server: str, certificate: Path):
    client = connect(secure_server, certificates=certificate)
    try:
        assert {"status": "ok"} == client.health()
    finally:
        client.close()


def test_a_certificate_for_another_name_is_refused(
    connect: MakeClient, secure_server: str, certificate: Path
):
    with pytest.raises(errors.ServerUntrusted):
        connect(secure_server.replace("localhost", "127.0.0.1"), certificates=certificate).health()


def test_https_to_a_server_without_tls(connect: MakeClient):
    def in_the_clear(connection: socket.socket) -> None:
        connection.sendall(reply(400, b"", "text/plain"))

    with EarlyAnswer(in_the_clear) as url, pytest.raises(errors.ServerUnreachable, match="TLS") as caught:
        connect(url.replace("http:", "https:"), query_timeout=5).health()

    assert "https" in caught.value.remedy


# Bodies and streams.


def test_a_body_that_is_refused_before_its_end_gives_the_reason(connect: MakeClient, tmp_path: Path):
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(64 * 1024 * 1024)

    def refuse(connection: socket.socket) -> None:
        connection.sendall(problem(413, "ERR_REQUEST_TOO_LARGE", headers={"Connection": "close"}))
        connection.shutdown(socket.SHUT_RDWR)

    with EarlyAnswer(refuse) as url, pytest.raises((errors.RequestTooLarge, errors.ServerUnreachable)):
        connect(url).upload(large)


class EarlyAnswer:
    """A server that answers after the head of a request."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.recv(1024)
            self._answer(connection)

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()


def test_events_come_in_any_pieces():
    text = b'id: 7\nevent: job\ndata: {"a":\ndata: 1}\n\n: keep-alive\n\nevent: end\r\ndata: {}\r\n\r\n'
    for size in (1, 3, len(text)):
        parser = EventParser()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]

        found = [event for piece in pieces for event in parser.feed(piece)]

        assert [("job", {"a": 1}, "7"), ("end", {}, "7")] == found


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def test_a_broken_stream_continues_after_the_last_event(connect: MakeClient):
    def first(connection: socket.socket) -> None:
        connection.sendall(STREAM + b'id: 1\nevent: job\ndata: {"status": "running"}\n\n')
        connection.shutdown(socket.SHUT_RDWR)

    def second(connection: socket.socket) -> None:
        connection.sendall(STREAM + b'id: 2\nevent: end\ndata: {"status": "done"}\n\n')

    with scripted(first, second) as server:
        names = [event.name for event in connect(server.url).events("job_1")]

        assert ["job", "end"] == names
        assert b"Last-Event-ID: 1" in server.requests[1]


@pytest.mark.parametrize(
    ("code", "error"),
    [("ERR_SERVER_STOPPING", errors.ServerStopping), ("ERR_SERVER_BUSY", errors.ServerBusy)],
)
def test_a_stream_is_opened_again_after_a_server_that_stops(
    connect: MakeClient, code: str, error: type[errors.ServerUnreachable]
):
    def first(connection: socket.socket) -> None:
        connection.sendall(STREAM + b'id: 1\nevent: job\ndata: {"status": "running"}\n\n')
        connection.shutdown(socket.SHUT_RDWR)

    def last(connection: socket.socket) -> None:
        connection.sendall(STREAM + b'id: 2\nevent: end\ndata: {"status": "done"}\n\n')

    stopping = problem(503, code, "the server is stopping", headers={"Retry_After": "1"})
    with scripted(first, stopping, stopping, last) as server:
        names = [event.name for event in connect(server.url).events("job_1")]

        assert ["job", "end"] == names
        assert 4 == len(server.requests)
    with scripted(stopping) as server, pytest.raises(error):
        next(iter(connect(server.url, retry_for=0.1).events()))


def test_a_stream_that_is_refused_is_the_error(connect: MakeClient):
    with scripted(problem(401, "ERR_KEY_REQUIRED")) as server, pytest.raises(errors.KeyRequired):
        next(iter(connect(server.url).events()))


def test_a_stream_with_data_that_are_not_json(connect: MakeClient):
    with scripted(STREAM + b"data: {cut\n\n") as server, pytest.raises(errors.InvalidAnswer):
        next(iter(connect(server.url).events()))


def test_requests_of_a_scripted_server_are_kept(connect: MakeClient):
    """The check of this file itself: the body of a request arrives."""
    with scripted(RECEIPT) as server:
        connect(server.url).note("The mill runs.", tag="mill")
        made: ScriptedServer = server

        assert b'{"content":"The mill runs.","tag":"mill"}' == made.requests[0].partition(b"\r\n\r\n")[2]
