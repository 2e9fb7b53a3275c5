"""The embedder behind an endpoint, against a server that follows a script."""

import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from penstock.errors import InvalidSetting, PermanentFailure, ServiceUnavailable, TransientFailure
from penstock.pipeline.call_limits import CallLimitReached, CallLimits
from penstock.pipeline.embed import open_embedder, open_space
from penstock.pipeline.embed.endpoint_embedder import EmbedEndpointOptions, EndpointEmbedder
from penstock.pipeline.embed.protocol import space_of
from penstock.pipeline.endpoint import EndpointOptions
from penstock.worker.breaker import OPENS_AFTER, Breakers
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


def options(url, *, key=KEY, timeout_s=10.0, model="m", **others: Any) -> EmbedEndpointOptions:
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
    model = embedder(server, timeout_s=0.3 if answer.drips else 10.0)
    with pytest.raises(error, match=message) as refused:
        model.embed(TWO)
    told = f"{refused.value.message} {refused.value.remedy}"
    assert "\n" not in told
    assert KEY not in told
    assert model.embed(TWO).any()


def test_numbers_beyond_all_bounds_are_malformed(server):
    server.script = [Answer(body=b'{"data": [{"embedding": [1e300,1,1,1,1,1,1,1]}]}')]
    with np.errstate(over="ignore"), pytest.raises(TransientFailure, match="too large"):
        embedder(server).embed(["one"])


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
        "import sys; from pathlib import Path; from penstock.pipeline.call_limits import CallLimits\n"
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
