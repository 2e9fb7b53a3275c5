"""A catalog with enough vectors for a file, and sample queries for the tests of vector files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.catalog.rules.identity import text_hash
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Place
from penstock.clock import now
from penstock.pipeline.vectors.cache import VectorCache
from penstock.pipeline.vectors.directory import CacheDirectory, Sizes
from penstock.pipeline.vectors.footer import read_footer
from penstock.pipeline.vectors.nearest import IndexStamp, Label

SPACE, DIMENSION = "static-16-00000000", 16
SIZES = Sizes(file_from=100, max_drift=20, index_from=100)
ROWS = 400
CHANCE = np.random.default_rng(7)
# Vectors grouped around subjects, like those of texts and unlike random ones.
SUBJECTS = CHANCE.normal(size=(12, DIMENSION))


def sample_vectors(count: int, seed: int = 1) -> np.ndarray:
    chance = np.random.default_rng(seed)
    made = SUBJECTS[chance.integers(0, len(SUBJECTS), count)] + chance.normal(size=(count, DIMENSION)) / 2
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), "<f4")


def store(catalog: SqliteCatalog, vectors: np.ndarray, tenant: str = "acme", name: str = "a") -> None:
    """Store documents of ten vectors each."""
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


def ask(
    catalog: SqliteCatalog, directory: CacheDirectory | None, tenant: str = "acme", limit: int = 10
) -> list[list[int]]:
    """Answers of a new cache to sample queries."""
    copies = VectorCache(directory)
    with catalog.snapshot() as snapshot:
        return [
            [near.content_id for near in copies.nearest(snapshot, tenant, SPACE, each, limit=limit)]
            for each in sample_vectors(20, seed=99)
        ]


def label(directory: CacheDirectory) -> Label:
    footer = read_footer(directory.vectors("acme", SPACE), Label)
    assert footer is not None
    return footer.meta


def index_stamp(directory: CacheDirectory) -> IndexStamp | None:
    footer = read_footer(directory.index("acme", SPACE), IndexStamp)
    return footer.meta if footer is not None else None


def flip(path: Path, at: int) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x41
    path.write_bytes(whole)


def cut(path: Path, to: int) -> None:
    path.write_bytes(path.read_bytes()[:to])
