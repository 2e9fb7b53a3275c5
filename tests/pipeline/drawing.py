"""Vectors as texts would have them, in documents of a catalog."""

from __future__ import annotations

import numpy as np

from penstock.catalog.identity import text_hash
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Place
from penstock.clock import now

SPACE, DIMENSION = "static-16-00000000", 16
CHANCE = np.random.default_rng(7)
# Some subjects, and what is said of each: vectors of texts stand together, unlike those of chance.
SUBJECTS = CHANCE.normal(size=(12, DIMENSION))


def drawn_vectors(count: int, seed: int = 1) -> np.ndarray:
    chance = np.random.default_rng(seed)
    made = SUBJECTS[chance.integers(0, len(SUBJECTS), count)] + chance.normal(size=(count, DIMENSION)) / 2
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), "<f4")


def store(catalog: SqliteCatalog, vectors: np.ndarray, tenant: str = "acme", name: str = "a") -> None:
    """Ten vectors a document."""
    made = []
    for start in range(0, len(vectors), 10):
        chunks = tuple(
            NewChunk(text=text, text_hash=text_hash(text), start=0, end=1, vector=row.tobytes())
            for at, row in enumerate(vectors[start : start + 10])
            for text in [f"{name} {start} {at}"]
        )
        made.append(
            NewGeneration(
                place=Place(tenant, "docs"),
                path=f"/{name}{start}.md",
                content_hash=f"{name} {start} {now()}",
                asked_at=now(),
                read_at=now(),
                pages=(NewPage(number=1, chunks=chunks),),
                space=SPACE,
            )
        )
    catalog.store(made)
