"""Documents to fill a catalog with: pieces of Python sources, ten to a document.

Embedding two million texts would take most of the time of a fill, and the cost of a search does not depend on
the values of vectors. So some texts are embedded, and each chunk gets the vector of one of them with noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from bench.vectors import windows
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Place
from penstock.pipeline.embed import open_embedder, space_of

CHUNKS_EACH = 10
COLLECTIONS = 10
NOISE = 0.05
TENANT = "default"
EMBEDDED = 2_000
AGAIN = 1_000_000
"""Documents with numbers so far apart have the same texts, apart from their number."""


class DocumentTexts:
    """Documents by number: the same number is always the same document."""

    def __init__(self, embedded: int = EMBEDDED) -> None:
        model = open_embedder("static")
        self._base = np.asarray(model.embed(list(islice(windows(), embedded))), "<f4")
        self.space = space_of(model)
        self._now = datetime.now(UTC)
        self._texts: Iterator[str] = iter(())
        self._next = -1

    def documents(self, start: int, count: int, *, vectors: bool = True) -> list[NewGeneration]:
        """Documents from a number on; without ``vectors``, tasks are left to embed their chunks."""
        if start != self._next:
            self._texts = islice(windows(), start % AGAIN * CHUNKS_EACH, None)
        self._next = start + count
        rows = self.vectors(start, count * CHUNKS_EACH)
        return [
            self._document(number, rows[at * CHUNKS_EACH : (at + 1) * CHUNKS_EACH] if vectors else None)
            for at, number in enumerate(range(start, start + count))
        ]

    def vectors(self, seed: int, count: int) -> list[bytes]:
        chance = np.random.default_rng(seed)
        rows = self._base[chance.integers(0, len(self._base), count)]
        rows = rows + NOISE * chance.standard_normal(rows.shape, np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return [row.tobytes() for row in rows.astype("<f4")]

    def edited(self, document: NewGeneration) -> NewGeneration:
        """A later version, with one new chunk."""
        (page,) = document.pages
        assert page.chunks is not None
        chunk = _chunk(f"{page.chunks[0].text} edited", page.chunks[0].vector)
        return _generation(
            document.path, document.place, datetime.now(UTC), (chunk, *page.chunks[1:]), self.space, "edited"
        )

    def _document(self, number: int, vectors: list[bytes] | None) -> NewGeneration:
        chunks = tuple(
            _chunk(f"{text} {number}", vectors[at] if vectors else None)
            for at, text in enumerate(islice(self._texts, CHUNKS_EACH))
        )
        place = Place(TENANT, f"part{number % COLLECTIONS}")
        return _generation(
            f"/corpus/{number // 1_000:03}/{number:06}.py", place, self._now, chunks, self.space, "first"
        )


def _chunk(text: str, vector: bytes | None) -> NewChunk:
    return NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text), vector=vector)


def _generation(
    path: str, place: Place, now: datetime, chunks: tuple[NewChunk, ...], space: str, version: str
) -> NewGeneration:
    return NewGeneration(
        place=place,
        path=path,
        content_hash=f"{path} {version}",
        asked_at=now,
        read_at=now,
        pages=(NewPage(number=1, chunks=chunks),),
        space=space,
    )
