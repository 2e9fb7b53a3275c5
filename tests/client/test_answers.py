"""Answers that are slow, refused, broken or foreign: each is a typed error with a remedy."""

from __future__ import annotations

import json
import logging
import socket

import msgspec
import pytest

from penstock import Client, clock, errors
from penstock.client import calls
from penstock.client.transport import Address, HttpAnswer, error_of, wait_before_retry
from penstock.errors import PenstockError
from tests.client.conftest import MakeClient
from tests.client.scripted_server import ALIVE, KEY, RECEIPT, problem, reply, scripted

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
    call = msgspec.structs.replace(calls.health(), repeatable=repeatable)
    answer = HttpAnswer(status, {"content-type": media_type, **headers}, b"")

    assert retried is (wait_before_retry(call, answer, 0, 60.0) is not None)


def test_waits_grow_and_a_date_is_understood():
    down = HttpAnswer(503, {"content-type": "text/html"}, b"")
    waits = [wait_before_retry(calls.health(), down, attempt, 60.0) for attempt in range(8)]
    dated = HttpAnswer(429, {"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}, b"")

    assert [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0] == waits
    assert 0.0 == dated.retry_after_s
    assert HttpAnswer(429, {"retry-after": "soon"}, b"").retry_after_s is None


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
    answer = HttpAnswer(409, {}, json.dumps({"code": "ERR_NEW", "detail": "new", "remedy": "Wait."}).encode())

    error = error_of(answer)

    assert ("ERR_NEW", "new", "Wait.") == (error.code, error.message, error.remedy)


def test_every_error_of_the_library_can_be_an_answer():
    for name in errors.__all__:
        kind = getattr(errors, name)
        made = error_of(HttpAnswer(400, {}, json.dumps({"code": kind.code, "detail": "said"}).encode()))

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
