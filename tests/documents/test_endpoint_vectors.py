"""Documents embedded by an endpoint: what a bad answer costs, tokens, and limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.values import Phase, TaskRequest
from penstock.pipeline.embed.endpoint import EmbedEndpointOptions, EndpointEmbedder
from penstock.pipeline.endpoint import EndpointOptions
from penstock.queue.job import Job, Status
from tests.documents.conftest import IndexedFolder, book
from tests.pipeline.embedding_server import (
    DIMENSION,
    TOKENS_A_TEXT,
    EmbeddingServer,
    embedding_server,
)
from tests.pipeline.scripted_endpoint import Answer

on_sqlite = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)
KEY = "sk-very-secret"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@contextmanager
def with_endpoint(docs: IndexedFolder, server: EmbeddingServer, **values: Any) -> Iterator[IndexedFolder]:
    changed = {
        "embedder": "endpoint",
        "embed_endpoint_url": server.url,
        "embed_endpoint_key": KEY,
        "embed_endpoint_dimension": DIMENSION,
    }
    settings = config.load({}, **config.portable_values(docs.app.settings) | changed | values)
    with Penstock(settings=settings) as app:
        yield IndexedFolder(app, docs.folder)


def embedder(server: EmbeddingServer, **changed: Any) -> EndpointEmbedder:
    address = EndpointOptions(url=server.url, model="m", key=KEY)
    return EndpointEmbedder(EmbedEndpointOptions(address=address, dimension=DIMENSION, **changed))


def month() -> str:
    return clock.format_time(clock.now())[:7]


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_documents_are_embedded_by_the_endpoint_and_tokens_counted(docs, server):
    docs.put("mill.md", "# The mill\n\nWater turns the wheel.")
    docs.put("book.md", book(3))
    with with_endpoint(docs, server) as folder:
        job = folder.index()
        assert job.status is Status.DONE
        texts = len(server.texts)
        assert folder.found("wheel", mode="vector")
        assert {f"Bearer {KEY}"} == set(server.keys)
        with folder.app.documents.catalog.snapshot() as snapshot:
            uses = snapshot.token_uses("default", month())
    assert sum(use.tokens for use in uses) == texts * TOKENS_A_TEXT
    assert all(use.job_id.startswith("job_") for use in uses)
    assert len(uses) == 2


@on_sqlite
def test_one_text_that_the_endpoint_cannot_embed_fails_alone(docs, server):
    path = docs.put("book.md", book(4))
    server.refused_text = "subject2"
    docs.app.index(path)
    with docs.manual_worker(embedder(server)) as worker:
        worker.run_jobs()
        worker.run_tasks()
        worker.exhaust(Phase.VECTOR)
        source = docs.app.documents.source(str(path))
        with worker.catalog.snapshot() as snapshot:
            (missing,) = snapshot.missing(source.published_id)
    assert missing.error.startswith("ERR_TRANSIENT: the embedding endpoint")
    assert missing.chunk_index == 2
    assert ["book.md"] == docs.found("subject3", mode="keyword")
    assert docs.audit() == []


@on_sqlite
def test_chunks_wait_for_an_endpoint_that_is_down_and_no_retry_is_spent(docs, server):
    path = docs.put("book.md", book(4))
    server.always = Answer(429, headers=(("Retry-After", "40"),))
    docs.app.index(path)
    with docs.manual_worker(embedder(server)) as worker:
        worker.run_jobs()
        now = clock.now()
        for _ in range(6):
            calls = len(server.requests)
            tasks = worker.catalog.claim(TaskRequest(Phase.VECTOR, "hand", 256), now=now)
            assert len(tasks) == 4
            assert max(task.retry_count for task in tasks) <= 1
            worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks), now=now)
            assert len(server.requests) == calls + 1
            # Not before the time that the endpoint asked for.
            early = now + timedelta(seconds=39)
            assert worker.catalog.claim(TaskRequest(Phase.VECTOR, "hand", 256), now=early) == []
            now += timedelta(seconds=41)
        server.always = None
        tasks = worker.catalog.claim(TaskRequest(Phase.VECTOR, "hand", 256), now=now)
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks), now=now)
        worker.run_tasks()
    assert docs.app.documents.source(str(path)).published_id is not None
    assert docs.audit() == []


@on_sqlite
def test_a_token_limit_stops_a_tenant_with_the_reason(docs, server):
    docs.put("a.md", "# One\n\nWater turns the wheel.")
    with with_endpoint(docs, server, embed_endpoint_tokens=TOKENS_A_TEXT) as folder:
        folder.index()
        path = docs.put("b.md", "# Two\n\nGrain is ground.")
        job: Job = folder.index(path)
        assert (Status.FAILED, "ERR_TOKEN_LIMIT") == (job.status, job.error_code)
        assert "tenant 'default' has used 5 tokens" in (job.error_message or "")
        assert "the limit is 5" in (job.error_message or "")
    sent = len(server.requests)
    with with_endpoint(docs, server, embed_endpoint_tokens=1000) as folder:
        folder.index(retry_failed=True)
        assert "b.md" in folder.found("ground", mode="keyword")
    assert len(server.requests) > sent


@on_sqlite
def test_a_search_goes_on_by_words_while_the_endpoint_is_down(docs, server):
    docs.put("mill.md", "# The mill\n\nWater turns the wheel.")
    with with_endpoint(docs, server) as folder:
        folder.index()
        server.always = Answer(503)
        found = folder.app._assembly.search.ask("wheel")
    assert [hit.path.rsplit("/", 1)[-1] for hit in found.hits] == ["mill.md"]
    assert "searched by words only: the embedding endpoint" in found.notes[0]
    assert KEY not in found.notes[0]


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_why_names_the_service_that_a_document_waits_for(docs, server):
    path = docs.put("book.md", book(2))
    server.always = Answer(503, headers=(("Retry-After", "40"),))
    docs.app.index(path)
    with docs.manual_worker(embedder(server)) as worker:
        worker.run_jobs()
        assert "503" not in docs.app.documents.why(str(path)).cause
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, worker.claim(Phase.VECTOR)))
        found = docs.app.documents.why(str(path))
    assert found.verdict == "waiting"
    assert "phase vector of 1 page, 2 chunks; tried again after ERR_SERVICE_DOWN" in found.cause
    assert "answered 503" in found.cause
