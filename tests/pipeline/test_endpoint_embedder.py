"""The embedder behind an endpoint, against a server that follows a script."""

import socket
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from penstock.errors import InvalidSetting, PermanentFailure, ServiceUnavailable, TransientFailure
from penstock.pipeline.budget import CallLimitReached, CallLimits
from penstock.pipeline.embed import open_embedder, open_space, space_of
from penstock.pipeline.embed.endpoint import EmbedEndpointOptions, EndpointEmbedder
from penstock.pipeline.endpoint import EndpointOptions
from penstock.worker.executor import OPENS_AFTER, Breakers
from tests.pipeline.embedding_server import (
    DIMENSION,
    TOKENS_A_TEXT,
    embedding_server,
    embeddings,
    vector,
)
from tests.pipeline.scripted_endpoint import Answer

KEY = "sk-very-secret"


@pytest.fixture
def server():
    with embedding_server() as running:
        yield running


def options(url, *, key=KEY, timeout_s=60.0, model="m", **others: Any) -> EmbedEndpointOptions:
    address = EndpointOptions(url=url, model=model, key=key, timeout_s=timeout_s)
    given: dict[str, Any] = {"address": address, "dimension": DIMENSION} | others
    return EmbedEndpointOptions(**given)


def embedder(server, **changed) -> EndpointEmbedder:
    return EndpointEmbedder(options(server.url, **changed))


def test_texts_are_sent_in_batches_and_come_back_in_order(server):
    model = embedder(server, batch=2)
    texts = ["one", "two", " \n", "three", "f\ud800ur", "five"]
    vectors = model.embed(texts)
    assert [len(request["input"]) for request in server.requests] == [2, 2, 1]
    assert server.texts == ["one", "two", "three", "f\ufffdur", "five"]
    assert not vectors[2].any()
    expected = np.array(vector("three"))
    np.testing.assert_allclose(vectors[3], expected / np.linalg.norm(expected), rtol=1e-6)
    assert (server.paths[0], server.keys[0]) == ("/v1/embeddings", f"Bearer {KEY}")
    assert model.take_tokens() == 5 * TOKENS_A_TEXT
    assert model.take_tokens() == 0


def test_nothing_is_sent_for_no_words(server):
    assert embedder(server).embed([]).shape == (0, DIMENSION)
    assert not embedder(server).embed([""]).any()
    assert server.requests == []


def test_the_fingerprint_is_of_model_and_dimension_and_holds_no_address_or_key(server):
    mine = embedder(server)
    assert mine.fingerprint == EndpointEmbedder(options("http://other/v1", key="")).fingerprint
    assert mine.fingerprint != embedder(server, model="n").fingerprint
    assert mine.fingerprint != embedder(server, dimension=9).fingerprint
    opened = open_space(space_of(mine), options(server.url))
    assert opened is not None
    assert opened.fingerprint == mine.fingerprint
    assert open_space(space_of(mine)) is None
    assert KEY not in repr(options(server.url))


def test_without_a_url_the_setting_is_named():
    with pytest.raises(InvalidSetting, match="URL of the endpoint is not set") as refused:
        open_embedder("endpoint")
    assert "PENSTOCK_EMBED_ENDPOINT_URL" in refused.value.remedy


TWO = ["one", "two"]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (Answer(body=b"<html>"), TransientFailure, "malformed"),
        (Answer(body=b""), TransientFailure, "malformed"),
        (Answer(body=b"[" * 100_000), TransientFailure, "malformed"),
        (Answer(body=b'{"data": [{"embedding": ["x"]}]}'), TransientFailure, "malformed"),
        (Answer(body=embeddings(TWO[:1])), TransientFailure, "numbers of its vectors are not 0 to 1"),
        (Answer(body=b'{"data": [{"embedding": [1]}]}'), TransientFailure, "has 1 vectors for 2 texts"),
        (Answer(body=embeddings(TWO).replace(b"index", b"place")[:-9]), TransientFailure, "malformed"),
        (Answer(left_out=7), TransientFailure, "the answer ended too early"),
        (Answer(500), TransientFailure, "answered 500"),
        (Answer(429), ServiceUnavailable, "answered 429"),
        (Answer(503), ServiceUnavailable, "answered 503"),
        (Answer(401), ServiceUnavailable, "answered 401"),
        (Answer(404), ServiceUnavailable, "answered 404"),
        (Answer(400), PermanentFailure, "answered 400"),
        (
            Answer(body=embeddings(TWO, dimension=3)),
            ServiceUnavailable,
            "gives vectors of 3 numbers, expected 8",
        ),
        (Answer(drips=True), ServiceUnavailable, r"did not answer within 0\.3 s"),
    ],
)
def test_a_bad_answer_is_an_error_of_one_line_with_a_remedy(server, answer, error, message):
    server.script = [answer]
    model = embedder(server, timeout_s=0.3 if answer.drips else 60.0)
    with pytest.raises(error, match=message) as refused:
        model.embed(TWO)
    told = f"{refused.value.message} {refused.value.remedy}"
    assert "\n" not in told
    assert KEY not in told
    assert model.embed(TWO).any()


def test_numbers_beyond_all_bounds_are_malformed(server):
    server.script = [Answer(body=b'{"data": [{"embedding": [1e300,1,1,1,1,1,1,1]}]}')]
    with np.errstate(all="raise"), pytest.raises(TransientFailure, match="too large"):
        embedder(server).embed(["one"])


@pytest.mark.parametrize("number", ["1e30", "1e-30", "1e-44", "-3"])
def test_vectors_of_any_size_get_length_one(server, number: str):
    server.script = [Answer(body=b'{"data": [{"embedding": [%s,0,0,0,0,0,0,0]}]}' % number.encode())]
    with np.errstate(all="raise"):
        found = embedder(server).embed(["one"])
    assert np.linalg.norm(found) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("told", "counted"), [(7, 7), (-5, 1), (10**18, 8 + 16), (2**63, 8 + 16), (10**30, 8 + 16)]
)
def test_an_endpoint_cannot_count_more_tokens_than_there_are(server, told: int, counted: int):
    """More than the catalog can add up, or than a tenant may use, would stop its documents."""
    body = embeddings(["abc \u6c34x"]).rstrip()[:-1] + b', "usage": {"total_tokens": %d}}' % told
    server.script = [Answer(body=body)]
    model = embedder(server)
    model.embed(["abc \u6c34x"])
    assert model.take_tokens() == counted


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:abc/v1",
        "http://127.0.0.1:0/v1",
        "http://[::1/v1",
        "http://a b/v1",
        "http://..b/v1",
        f"http://{'a' * 70}.example/v1",
    ],
)
def test_a_url_that_is_none_is_refused_with_the_setting(url: str):
    with pytest.raises(ServiceUnavailable, match="is not an http or https URL") as refused:
        EndpointEmbedder(options(url)).embed(["one"])
    assert "PENSTOCK_EMBED_ENDPOINT_URL" in refused.value.remedy


def test_a_path_may_have_any_letters(server):
    EndpointEmbedder(options(server.url.replace("/v1", "/\u043c\u043e a/v1"))).embed(["one"])
    assert server.paths == ["/%D0%BC%D0%BE%20a/v1/embeddings"]


def test_what_the_other_side_sends_is_no_part_of_a_message():
    """Control sequences of a terminal, for instance."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 \x1b[2Jwelcome\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TransientFailure, match="the answer is not HTTP") as refused:
            EndpointEmbedder(options(f"http://127.0.0.1:{port}/v1")).embed(["one"])
        thread.join()
    assert "welcome" not in refused.value.message


def test_the_wait_asked_for_is_kept(server):
    server.script = [Answer(429, headers=(("Retry-After", "17"),))]
    with pytest.raises(ServiceUnavailable) as refused:
        embedder(server, guard=Breakers()).embed(TWO)
    assert refused.value.retry_after == timedelta(seconds=17)


def test_an_endpoint_that_is_down_is_not_called_after_a_few_failures(server):
    server.always = Answer(503)
    model = embedder(server, guard=Breakers())
    for _ in range(OPENS_AFTER + 2):
        with pytest.raises(ServiceUnavailable) as refused:
            model.embed(TWO)
    assert len(server.requests) == OPENS_AFTER
    assert refused.value.retry_after is not None
    assert refused.value.retry_after > timedelta(seconds=5)


def test_tokens_are_estimated_where_the_endpoint_does_not_count(server):
    body = b'{"data": [{"embedding": [1,1,1,1,1,1,1,1]}]}'
    server.script = [Answer(body=body)]
    model = embedder(server)
    model.embed(["x" * 40])
    assert model.take_tokens() == 10


def test_tls_errors_name_the_cause(server):
    with pytest.raises(ServiceUnavailable, match=r"cannot connect .* TLS error: ") as refused:
        EndpointEmbedder(options(server.url.replace("http:", "https:"))).embed(["one"])
    assert "https" in refused.value.remedy


def test_calls_at_once_are_limited_over_processes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from penstock.pipeline.budget import CallLimits\n"
        "with CallLimits('endpoint', Path(sys.argv[1]), 1).call():\n"
        "    print('in', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        limits = CallLimits("endpoint", tmp_path, 1)
        with pytest.raises(CallLimitReached, match="1 calls to the endpoint are running"), limits.call():
            pass
        with CallLimits("endpoint", tmp_path, 2).call():
            pass
        other.kill()
    with limits.call():
        pass


def test_calls_a_minute_are_limited(tmp_path):
    limits = CallLimits("endpoint", tmp_path, 1, per_minute=6)
    with limits.call():
        pass
    with pytest.raises(CallLimitReached, match="6 calls a minute") as refused, limits.call():
        pass
    assert refused.value.retry_after is not None
    assert timedelta(0) < refused.value.retry_after <= timedelta(seconds=10)
    (tmp_path / "next-call").write_text("99999999999")
    with limits.call():
        pass


def test_threads_share_the_limit(tmp_path):
    limits = CallLimits("endpoint", tmp_path, 2)
    inside, most, guard = 0, 0, threading.Lock()

    def work():
        nonlocal inside, most
        for _ in range(5):
            with limits.call():
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 2


def test_nothing_secret_is_in_a_representation():
    secret = EndpointOptions(url="https://user:pw@example/v1?token=t", model="m", key=KEY)
    assert repr(secret) == "EndpointOptions(url='https://example/v1', model='m', key='***')"
    assert "pw" not in repr(EndpointOptions(url="http://user:pw@[::1/v1", model="m"))
