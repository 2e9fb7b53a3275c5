"""Re-ranking of hits by an endpoint: its order where it answers, that of the search where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.service.search import RERANKED, SearchResult
from tests.documents.conftest import IndexedFolder
from tests.pipeline.embedding_server import EmbeddingServer, embedding_server
from tests.pipeline.scripted_endpoint import Answer

SHORT, LONG = "The wheel turns.", "The wheel is one of many things in a long text about mills and rivers."


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def folder(
    server: EmbeddingServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[IndexedFolder]:
    """An indexed folder. Its endpoint has plenty of time, unless a test names less."""
    settings = config.load(
        {},
        state_dir=tmp_path / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
        rerank_endpoint_url=server.url,
        rerank_endpoint_key="secret",
        rerank_endpoint_timeout_s=getattr(request, "param", 60.0),
    )
    (tmp_path / "files").mkdir()
    with Penstock(settings=settings) as app:
        indexed = IndexedFolder(app, tmp_path / "files")
        indexed.put("short.md", SHORT)
        indexed.put("long.md", LONG)
        indexed.index()
        yield indexed


def asked(folder: IndexedFolder, **options: int) -> SearchResult:
    return folder.app._assembly.search.ask("wheel", mode="keyword", **options)  # type: ignore[arg-type]


def test_hits_are_in_the_order_of_the_endpoint(folder: IndexedFolder, server: EmbeddingServer):
    answer = asked(folder)

    assert [(LONG, 2), (SHORT, 1)] == [(hit.text, hit.keyword_rank) for hit in answer.hits]
    assert [len(LONG) / 100, len(SHORT) / 100] == [hit.rerank_score for hit in answer.hits]
    assert () == answer.notes
    (request,) = server.requests
    assert ("wheel", 2, ["/v1/rerank"], ["Bearer secret"]) == (
        request["query"],
        request["top_n"],
        server.paths,
        server.keys,
    )


def test_more_hits_are_read_than_are_shown_and_the_rest_follows(
    folder: IndexedFolder, server: EmbeddingServer
):
    for number in range(RERANKED + 10):
        folder.put(f"{number}.md", f"The wheel, number {number}.")
    folder.index()

    (hit,) = asked(folder, limit=1).hits
    hits = asked(folder, limit=100).hits

    assert hit.rerank_score == max(each.rerank_score or 0 for each in hits) > len(SHORT) / 100
    assert [RERANKED, RERANKED] == [len(request["documents"]) for request in server.requests]
    assert ([False] * RERANKED + [True] * 12) == [hit.rerank_score is None for hit in hits]


@pytest.mark.parametrize("folder", [0.5], indirect=True)
@pytest.mark.parametrize(
    "failing",
    [
        Answer(503),
        Answer(500),
        Answer(401),
        Answer(400),
        Answer(200, b"no JSON"),
        Answer(200, json.dumps({"results": [{"index": 0, "relevance_score": 1.0}]}).encode()),
        Answer(200, json.dumps({"results": [{"index": at, "relevance_score": 1} for at in (0, 7)]}).encode()),
        Answer(200, left_out=9),
        Answer(200, drips=True),
    ],
)
def test_a_search_goes_on_without_it_and_says_so(
    folder: IndexedFolder, server: EmbeddingServer, failing: Answer
):
    server.always = failing

    answer = asked(folder)

    assert [SHORT, LONG] == [hit.text for hit in answer.hits]
    assert [None, None] == [hit.rerank_score for hit in answer.hits]
    (note,) = answer.notes
    assert note.startswith("not re-ranked: the ")


def test_an_endpoint_that_is_down_is_not_asked_by_every_search(
    folder: IndexedFolder, server: EmbeddingServer
):
    server.always = Answer(503)

    notes = [asked(folder).notes for _ in range(20)]

    assert len(server.requests) < 20
    assert all(note for note in notes)
