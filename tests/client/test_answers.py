"""Answers that are slow, refused, broken or foreign: each is a typed error with a remedy."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Client, clock, errors
from penstock.client import calls
from penstock.client.answers import Answer, error_of, wait_before_retry
from penstock.client.exchange import Address
from penstock.client.streams import EventParser
from penstock.errors import PenstockError
from tests.client.conftest import MakeClient
from tests.client.scripted_server import ScriptedServer, reply, scripted

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


# Retries.


def test_a_full_queue_is_tried_again_after_the_time_asked_for(connect: MakeClient):
    full = problem(429, "ERR_QUEUE_FULL", "Queue full (100 pending)", headers={"Retry_After": "1"})
    with scripted(full, RECEIPT) as server:
        began = clock.elapsed_s()

        receipt = connect(server.url).index("docs")

        assert "job_1" == receipt.job_id
        assert clock.elapsed_s() - began >= 1
        assert 2 == len(server.requests)


def test_a_store_that_is_down_is_tried_again(connect: MakeClient):
    with scripted(
        problem(503, "ERR_STORE_UNAVAILABLE"), problem(503, "ERR_STORE_UNAVAILABLE"), ALIVE
    ) as server:
        assert {"status": "ok"} == connect(server.url).health()


def test_retries_end_with_the_error_of_the_server(connect: MakeClient):
    full = problem(429, "ERR_QUEUE_FULL", "Queue full (7 pending)", pending=7, headers={"Retry_After": "30"})
    with scripted(full) as server:
        with pytest.raises(errors.QueueFull, match=r"Queue full \(7 pending\)") as caught:
            connect(server.url, retry_for=2).index("docs")

        # To wait for 30 seconds would take longer than the client may try.
        assert 1 == len(server.requests)
        assert (7, 30) == (caught.value.pending, caught.value.retry_after)


@pytest.mark.parametrize(
    ("repeatable", "status", "headers", "media_type", "retried"),
    [
        (True, 503, {}, "text/html", True),
        (False, 503, {}, "text/html", False),
        (False, 503, {"retry-after": "1"}, "text/html", True),
        (False, 503, {}, "application/problem+json", True),
        (False, 429, {}, "application/problem+json", True),
        (True, 500, {"retry-after": "1"}, "application/problem+json", False),
        (True, 502, {}, "text/html", False),
        (True, 409, {}, "application/problem+json", False),
        (True, 503, {"retry-after": "61"}, "application/problem+json", False),
    ],
)
def test_only_what_was_not_accepted_is_sent_again(
    repeatable: bool, status: int, headers: dict[str, str], media_type: str, retried: bool
):
    call = calls.health()._replace(repeatable=repeatable)
    answer = Answer(status, {"content-type": media_type, **headers}, b"")

    assert retried is (wait_before_retry(call, answer, 0, 60.0) is not None)


def test_waits_grow_and_a_date_is_understood():
    down = Answer(503, {"content-type": "text/html"}, b"")
    waits = [wait_before_retry(calls.health(), down, attempt, 60.0) for attempt in range(8)]
    dated = Answer(429, {"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}, b"")

    assert [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0] == waits
    assert 0.0 == dated.retry_after_s
    assert Answer(429, {"retry-after": "soon"}, b"").retry_after_s is None


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
    with scripted(lambda _: never.wait(30) and None) as server:
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


# Foreign and broken answers.


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, b"<html>Welcome</html>", "text/html"), errors.InvalidAnswer),
        (reply(200, b"not json"), errors.InvalidAnswer),
        (reply(200, b'["a list"]'), errors.InvalidAnswer),
        (reply(200, b"\xff\xfe{}"), errors.InvalidAnswer),
        (reply(404, b"<html>nginx</html>", "text/html"), errors.InvalidAnswer),
        (reply(500, b"oops", "text/plain"), errors.InvalidAnswer),
        (reply(502, b"<html>Bad gateway</html>", "text/html"), errors.ServerUnreachable),
        (reply(504, b"", "text/html"), errors.ServerUnreachable),
        (reply(401, b"<html>login</html>", "text/html"), errors.KeyRequired),
        (reply(403, b"", "text/html"), errors.NotAllowed),
        (reply(302, b"", "text/html", Location="http://elsewhere.example/"), errors.InvalidAnswer),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", errors.InvalidAnswer),
        (problem(422, "ERR_INVALID_NAME"), errors.InvalidName),
        (problem(500, "ERR_PENSTOCK"), PenstockError),
        (problem(409, "ERR_OF_THE_NEXT_VERSION"), PenstockError),
    ],
)
def test_an_answer_that_is_none_is_a_typed_error(
    connect: MakeClient, answer: bytes, expected: type[PenstockError]
):
    with scripted(answer) as server, pytest.raises(PenstockError) as caught:
        connect(server.url, KEY, retry_for=0).health()

    assert expected is type(caught.value)
    assert caught.value.remedy
    assert KEY not in f"{caught.value!r} {caught.value.remedy}"


def test_a_cut_answer_is_a_broken_connection(connect: MakeClient):
    def cut(connection: socket.socket) -> None:
        connection.sendall(ALIVE[:-5])
        connection.shutdown(socket.SHUT_RDWR)

    with scripted(cut) as server, pytest.raises(errors.ServerUnreachable, match="in its answer"):
        connect(server.url).health()


def test_the_code_of_a_later_version_is_kept():
    answer = Answer(409, {}, json.dumps({"code": "ERR_NEW", "detail": "new", "remedy": "Wait."}).encode())

    error = error_of(answer)

    assert ("ERR_NEW", "new", "Wait.") == (error.code, error.message, error.remedy)


def test_every_error_of_the_library_can_be_an_answer():
    for name in errors.__all__:
        kind = getattr(errors, name)
        made = error_of(Answer(400, {}, json.dumps({"code": kind.code, "detail": "said"}).encode()))

        assert kind is type(made)
        assert ("said", kind.default_remedy) == (made.message, made.remedy)


# The key.


def test_a_redirect_is_not_followed_with_the_key(connect: MakeClient):
    with scripted(ALIVE) as other:
        moved = reply(307, b"", "text/html", Location=f"{other.url}/health")
        with scripted(moved) as server, pytest.raises(errors.InvalidAnswer):
            connect(server.url, KEY).health()

        assert [] == other.requests
        assert KEY.encode() in server.requests[0]


def test_the_key_is_in_no_text(connect: MakeClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with scripted(ALIVE) as server:
        client = connect(server.url, KEY)
        client.health()

        assert KEY not in repr(client)
        assert server.url in repr(client)
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8765", "ftp://mill", "http://", "http://mill:99999", "http://me:pw@mill", "http://mill/?a=1"],
)
def test_a_url_that_is_none_is_refused_without_showing_it(url: str):
    with pytest.raises(errors.InvalidSetting) as caught:
        Client(url)

    assert url not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "line\r\nHost: elsewhere", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused(key: str):
    with pytest.raises(errors.InvalidSetting, match="characters that cannot be sent"):
        Client("http://127.0.0.1", key)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://mill", "http://mill"),
        ("https://mill:443/", "https://mill"),
        ("http://[::1]:8765/penstock/", "http://[::1]:8765/penstock"),
    ],
)
def test_the_parts_of_a_url(url: str, shown: str):
    assert shown == Address.of(url).url


def test_a_server_below_a_path_of_a_proxy(connect: MakeClient):
    with scripted(ALIVE) as server:
        connect(f"{server.url}/penstock/").health()

        assert server.requests[0].startswith(b"GET /penstock/health HTTP/1.1\r\n")


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody has signed, with its private key."""
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
