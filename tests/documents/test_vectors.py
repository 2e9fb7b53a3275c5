"""Time of embedding: together with the page, and never too many texts between two writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from penstock.catalog.values import Phase, TaskRequest
from penstock.handlers.generations import MAX_TEXTS
from penstock.pipeline.embed.static import HashingEmbedder
from tests.documents.conftest import IndexedFolder, book
from tests.pipeline.sample_documents import pdf

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

pytestmark = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)


class Counting(HashingEmbedder):
    """Counts the texts of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.calls.append(len(texts))
        return super().embed(texts)


@pytest.mark.parametrize(("how", "left"), [("both lanes", 0), ("one lane", 8), ("a suspect", 1)])
def test_pages_are_embedded_with_their_reading_by_whoever_serves_both_lanes(
    docs: IndexedFolder, how: str, left: int
):
    path = docs.put("paper.pdf", pdf(*(f"Words of page {number}." for number in range(40))))
    with docs.manual_worker() as worker:
        docs.app.index(path)
        worker.run_jobs()
        tasks = worker.catalog.claim(TaskRequest(Phase.OCR, "hand", 32))
        if how == "a suspect":
            tasks[0] = msgspec.structs.replace(tasks[0], suspect=True)
        worker.catalog.settle(worker.phases.run(Phase.OCR, tasks, embedding=how != "one lane"))

        with worker.catalog.snapshot() as snapshot:
            assert (8, left) == (len(tasks), snapshot.open_tasks(Phase.VECTOR))
        worker.run_tasks()
    assert ["paper.pdf"] == docs.found("words page", mode="vector")


def test_no_more_texts_are_embedded_between_two_writes_than_a_crash_may_cost(docs: IndexedFolder):
    for number in range(4):
        docs.put(f"{number}.md", book(100).replace("subject", f"subject{number}x"))
    embedder = Counting()
    with docs.manual_worker(embedder) as worker:
        for number in range(4):
            docs.app.index(docs.folder / f"{number}.md")
        worker.run_jobs()

    assert max(embedder.calls) <= MAX_TEXTS < sum(embedder.calls)


@pytest.mark.parametrize("gate", ["page", "document"])
def test_with_the_document_gate_no_text_is_embedded_before_the_last_page_is_read(
    docs: IndexedFolder, gate: Literal["page", "document"]
):
    path = docs.put("long/paper.pdf", pdf(*(f"Words of page {number}." for number in range(40))))
    embedder = Counting()
    with docs.manual_worker(embedder) as worker:
        docs.app.index(path.parent, gate=gate)
        while worker.run_jobs() is not None:
            continue
        tasks = worker.claim(Phase.OCR)
        worker.catalog.settle(worker.phases.run(Phase.OCR, tasks[:7], embedding=True))
        assert (8, gate == "page") == (len(tasks), bool(embedder.calls))
        assert [] == worker.claim(Phase.VECTOR)

        worker.catalog.settle(worker.phases.run(Phase.OCR, tasks[7:], embedding=True))
        waiting = worker.claim(Phase.VECTOR)
        assert (0 if gate == "page" else 40) == len(waiting)
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, waiting))
        worker.run_tasks()
    assert 40 == sum(embedder.calls)
    assert ["paper.pdf"] == docs.found("words page", mode="vector")
