"""When texts are embedded: with the page they are read from, and never too many between two writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.catalog.values import Phase, TaskRequest
from penstock.handlers.chunk_vectors import MOST_TEXTS
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from tests.documents.conftest import IndexedFolder, book
from tests.pipeline.sample_documents import pdf

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


class Counting(HashingEmbedder):
    """How many texts each call brought."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.calls.append(len(texts))
        return super().embed(texts)


@pytest.mark.parametrize(("how", "left"), [("both lanes", 0), ("one lane", 8), ("a suspect", 1)])
def test_pages_are_embedded_with_their_reading_by_whoever_serves_both_lanes(
    desk: IndexedFolder, how: str, left: int
):
    path = desk.put("paper.pdf", pdf(*(f"Words of page {number}." for number in range(40))))
    with desk.by_hand() as hand:
        desk.app.index(path)
        hand.run_jobs()
        tasks = hand.catalog.claim(TaskRequest(Phase.OCR, "hand", 32))
        if how == "a suspect":
            tasks[0] = msgspec.structs.replace(tasks[0], suspect=True)
        hand.catalog.settle(hand.phases.run(Phase.OCR, tasks, embedding=how != "one lane"))

        with hand.catalog.snapshot() as snapshot:
            assert (8, left) == (len(tasks), snapshot.open_tasks(Phase.VECTOR))
        hand.run_tasks()
    assert ["paper.pdf"] == desk.found("words page", mode="vector")


def test_no_more_texts_are_embedded_between_two_writes_than_a_crash_may_cost(desk: IndexedFolder):
    for number in range(4):
        desk.put(f"{number}.md", book(100).replace("subject", f"subject{number}x"))
    embedder = Counting()
    with desk.by_hand(embedder) as hand:
        for number in range(4):
            desk.app.index(desk.folder / f"{number}.md")
        hand.run_jobs()

    assert max(embedder.calls) <= MOST_TEXTS < sum(embedder.calls)
