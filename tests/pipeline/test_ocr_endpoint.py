"""The vision endpoint, against a server that follows a script."""

import base64
import io
import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from penstock.errors import ParserFailed, ServiceUnavailable, TransientFailure
from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.endpoint_client import wait_asked_for
from penstock.pipeline.ocr import endpoint
from penstock.pipeline.ocr.endpoint import VisionEndpoint
from tests.pipeline.pictures import drawn, page

PICTURE = page(drawn("The mill", width=200, height=100, size=20))
KEY = "sk-very-secret"


class ScriptedServer:
    """A server that gives one prepared answer and keeps the requests."""

    def __init__(self):
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
        self.released = threading.Event()
        self.silent = False
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                scripted.requests.append((self.path, dict(self.headers), body))
                if scripted.silent:
                    scripted.released.wait()
                    return
                status, headers, data = scripted.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def says(self, content, finish_reason="stop"):
        choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
        self.answer = (200, {}, json.dumps({"id": "1", "choices": [choice], "usage": {}}).encode())

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server():
    scripted = ScriptedServer()
    yield scripted
    scripted.close()


def recognize(server, **options):
    options = {"url": server.url, "model": "dots.ocr", "key": KEY} | options
    return VisionEndpoint(EndpointOptions(**options)).recognize(PICTURE)


def test_a_page_is_sent_as_png_and_its_text_comes_back(server):
    server.says("# The mill\r\n\r\nTu\u0308r")
    found = recognize(server)
    assert found.text == "# The mill\n\nTür"
    assert (found.engine, found.confidence, found.warnings) == ("dots.ocr", None, ())
    ((path, headers, body),) = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    sent = json.loads(body)
    assert (sent["model"], sent["temperature"]) == ("dots.ocr", 0)
    picture, prompt = sent["messages"][0]["content"]
    assert prompt == {"type": "text", "text": endpoint.PROMPT}
    data = picture["image_url"]["url"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(data))) as received:
        assert (received.format, received.size) == ("PNG", (200, 100))


def test_the_full_url_is_taken_as_it_is_and_no_key_is_sent_without_one(server):
    server.says("text")
    recognize(server, url=f"{server.url}/chat/completions?version=2", key="")
    ((path, headers, _),) = server.requests
    assert path == "/v1/chat/completions?version=2"
    assert "Authorization" not in headers


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("```markdown\n# Mill\n```", "# Mill"),
        ("```\na\n```\nb\n```\nc\n```", "```\na\n```\nb\n```\nc\n```"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
    ],
)
def test_the_text_is_taken_out_of_its_wrapping(server, content, text):
    server.says(content)
    assert recognize(server).text == text


def test_an_answer_that_was_cut_off_is_kept_with_a_warning(server):
    server.says("half a page", "length")
    found = recognize(server)
    assert found.text == "half a page"
    assert "cut off" in found.warnings[0]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"\xff\xfe", b"[" * 200_000],
)
def test_a_malformed_answer_fails_this_page(server, body):
    server.answer = (200, {}, body)
    with pytest.raises(ParserFailed, match="malformed"):
        recognize(server)


@pytest.mark.parametrize("content", [None, "", "  \n", "```\n```", []])
def test_an_empty_answer_fails_this_page(server, content):
    server.says(content)
    with pytest.raises(ParserFailed, match="without text"):
        recognize(server)


def test_a_huge_answer_fails_this_page(server):
    server.says("x" * (endpoint.MAX_ANSWER_BYTES + 1))
    with pytest.raises(ParserFailed, match="more than"):
        recognize(server)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ParserFailed),
        (413, ParserFailed),
        (422, ParserFailed),
        (401, ServiceUnavailable),
        (403, ServiceUnavailable),
        (404, ServiceUnavailable),
        (302, ServiceUnavailable),
        (429, ServiceUnavailable),
        (503, ServiceUnavailable),
        (502, ServiceUnavailable),
        (500, TransientFailure),
        (599, TransientFailure),
    ],
)
def test_a_refusal_says_who_must_act(server, status, error):
    server.answer = (status, {}, b"the model says no")
    with pytest.raises(error) as refused:
        recognize(server)
    assert str(status) in refused.value.message
    assert refused.value.remedy
    assert KEY not in f"{refused.value.message} {refused.value.remedy}"


@pytest.mark.parametrize("status", [429, 503, 500])
def test_the_wait_that_the_endpoint_asks_for_is_kept(server, status):
    server.answer = (status, {"Retry-After": "17"}, b"")
    with pytest.raises((ServiceUnavailable, TransientFailure)) as refused:
        recognize(server)
    error = refused.value
    assert isinstance(error, ServiceUnavailable | TransientFailure)
    assert error.retry_after == timedelta(seconds=17)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("-3", 0), ("999999", 3600), ("inf", 3600), ("nan", None), ("soon", None), (None, None)],
)
def test_odd_waits_are_bounded(value, seconds):
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert wait_asked_for(value) == expected


def test_a_wait_may_be_a_date():
    found = wait_asked_for(format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True))
    assert found is not None
    assert timedelta(minutes=9) < found <= timedelta(minutes=10)


def test_a_silent_endpoint_is_tried_again_later(server):
    server.silent = True
    with pytest.raises(TransientFailure, match=r"did not answer within 0\.2 s"):
        recognize(server, timeout_s=0.2)


def test_an_endpoint_that_is_down_lets_its_jobs_wait(server):
    server.close()
    with pytest.raises(ServiceUnavailable, match="cannot connect") as refused:
        recognize(server, url=server.url.replace("http://", "http://user:pass@"))
    assert "pass" not in refused.value.message


@pytest.mark.parametrize("url", ["ftp://host/v1", "127.0.0.1:80", "http://"])
def test_another_kind_of_url_is_refused(server, url):
    with pytest.raises(ServiceUnavailable, match="not an http or https URL"):
        recognize(server, url=url)


def test_a_key_that_cannot_be_sent_is_not_shown(server):
    with pytest.raises(ServiceUnavailable, match="cannot be sent") as refused:
        recognize(server, key="sécret\n")
    assert "cret" not in refused.value.message
