"""Task lanes with a store that disconnects: nothing is done twice, nothing stays claimed."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Phase, Place
from penstock.errors import InvalidText, PenstockError, StoreUnavailable
from penstock.handlers.phases import Phases
from penstock.pipeline.budget import MemoryShare
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.memory.queue import MemoryQueue
from penstock.worker.lanes import DocumentTools, Lanes
from penstock.worker.shared_state import SharedState


class Away:
    """A catalog that disconnects during one call: before or after the call took effect."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.during: str | None = None
        self.after_it_was_done = False
        self.error: PenstockError = StoreUnavailable("the connection broke")

    def __getattr__(self, name: str) -> Any:
        return self._break if name == self.during else getattr(self._catalog, name)

    def _break(self, *arguments: Any) -> None:
        call, self.during = cast("str", self.during), None
        if self.after_it_was_done:
            getattr(self._catalog, call)(*arguments)
        raise self.error


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    opened = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    yield opened
    assert [] == opened.audit()
    opened.close()


def begin(catalog: Catalog, pipeline: Pipeline, chunks: int) -> int:
    """A document with chunks to embed."""
    texts = [f"Sentence number {number}." for number in range(chunks)]
    made = [NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text)) for text in texts]
    now = clock.now()
    generation = NewGeneration(
        place=Place("acme", "docs"),
        path="/book.md",
        content_hash="1" * 64,
        asked_at=now,
        read_at=now,
        pages=(NewPage(number=1, chunks=tuple(made)),),
        space=pipeline.space,
    )
    (stored,) = catalog.store([generation])
    assert stored.document_id is not None
    return stored.document_id


def work_off(lanes: Lanes) -> None:
    while lanes.run_piece(lambda _: nullcontext()):
        pass


@pytest.mark.parametrize("done", [False, True], ids=["before it was heard", "after it was done"])
@pytest.mark.parametrize("call", ["claim", "settle"])
@pytest.mark.parametrize("kind", [StoreUnavailable, InvalidText])
def test_a_store_that_goes_away_costs_time_only(
    catalog: SqliteCatalog, tmp_path: Path, kind: type[PenstockError], call: str, done: bool
):
    pipeline = Pipeline(HashingEmbedder())
    document_id = begin(catalog, pipeline, chunks=300)
    away = Away(catalog)
    store = cast("Catalog", away)
    state = SharedState.create(tmp_path / "w1.state")
    lanes = Lanes(DocumentTools(store, Phases(store, pipeline)), MemoryQueue(), state, "w1", (Phase.VECTOR,))

    away.during, away.after_it_was_done, away.error = call, done, kind("it failed")
    with pytest.raises(kind):
        work_off(lanes)
    while True:
        lanes.wake()
        if not lanes.run_piece(lambda _: nullcontext()):
            break

    assert [] == catalog.held("w1")
    with catalog.snapshot() as snapshot:
        document = snapshot.document(document_id)
    assert document is not None
    assert document.current
    state.close(remove=True)
    pipeline.close()


def test_a_lane_of_another_model_is_not_served_and_says_so(catalog: SqliteCatalog, tmp_path: Path):
    pipeline = Pipeline(HashingEmbedder())
    begin(catalog, pipeline, chunks=3)
    catalog.set_fingerprints({Phase.VECTOR: "static-256-12345678"})
    state = SharedState.create(tmp_path / "w1.state")
    lanes = Lanes(
        DocumentTools(catalog, Phases(catalog, pipeline)), MemoryQueue(), state, "w1", (Phase.VECTOR,)
    )

    assert not lanes.run_piece(lambda _: nullcontext())
    assert "static-256-12345678" in lanes.refused["lane vector"]

    catalog.set_fingerprints({Phase.VECTOR: pipeline.space}, replace=True)
    lanes.wake()
    assert lanes.run_piece(lambda _: nullcontext())
    assert {} == lanes.refused
    state.close(remove=True)
    pipeline.close()


def test_memory_kept_for_further_pages_is_freed_before_long_work(catalog: SqliteCatalog, tmp_path: Path):
    """Without a batch in hand as well: a function may run for hours, and others wait for the memory."""
    share = MemoryShare(16 << 20, 64 << 20, str(tmp_path / "lock"))
    pipeline = Pipeline(HashingEmbedder(), memory=share)
    state = SharedState.create(tmp_path / "w1.state")
    tools = DocumentTools(catalog, Phases(catalog, pipeline))
    lanes = Lanes(tools, MemoryQueue(), state, "w1", (Phase.VECTOR,))
    freed: list[str] = []

    def keep() -> None:
        pipeline._limiter.run_recognition(48 << 20, lambda memory: memory, lambda: freed.append("freed"))

    keep()
    lanes.release_batch()
    assert ["freed"] == freed

    begin(catalog, pipeline, chunks=3)
    keep()
    with (tmp_path / "lock.turn").open() as waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX)
        assert lanes.run_piece(lambda _: nullcontext())
    assert ["freed"] * 2 == freed
    state.close(remove=True)
    pipeline.close()
