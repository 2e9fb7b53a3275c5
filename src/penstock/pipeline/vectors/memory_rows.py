"""Vectors in memory, and the selection of the best scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from penstock.catalog.views import VectorBatch

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class VectorRows:
    """One vector per row, with content id and source key. Immutable: changes make new objects."""

    def __init__(self, ids: Numbers, keys: Numbers, vectors: Floats) -> None:
        self.ids = ids
        self.keys = keys
        self.vectors = vectors

    @classmethod
    def empty(cls, dimension: int) -> VectorRows:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, dimension), np.float32))

    @classmethod
    def from_batch(cls, batch: VectorBatch, dimension: int) -> VectorRows:
        return cls(
            np.frombuffer(batch.content_ids, np.int64),
            np.frombuffer(batch.family_keys, np.int64),
            np.frombuffer(batch.vectors, "<f4").reshape(-1, dimension),
        )

    @classmethod
    def concatenated(cls, parts: Iterable[VectorRows]) -> VectorRows:
        ids, keys, vectors = zip(*((part.ids, part.keys, part.vectors) for part in parts), strict=True)
        return cls(np.concatenate(ids), np.concatenate(keys), np.concatenate(vectors))

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, keys: Collection[int]) -> VectorRows:
        if not keys or not len(self):
            return self
        kept = ~of_sources(self.keys, keys)
        return VectorRows(self.ids[kept], self.keys[kept], self.vectors[kept])

    def scored(self, query: Floats, allowed: Collection[int] | None) -> tuple[Numbers, Floats]:
        ids, vectors = self.ids, self.vectors
        if allowed is not None:
            chosen = of_sources(self.keys, allowed)
            ids, vectors = ids[chosen], vectors[chosen]
        return ids, vectors @ query


def of_sources(keys: Numbers, sources: Collection[int]) -> Mask:
    """Mask of the rows of some sources.

    Rows of a source are adjacent, so each run of rows is looked up once.
    """
    if not len(keys):
        return np.zeros(0, bool)
    return of_runs(keys, run_starts(keys), sources)


def run_starts(keys: Numbers) -> Numbers:
    """First rows of the runs of equal keys."""
    return np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))


def of_runs(keys: Numbers, starts: Numbers, sources: Collection[int]) -> Mask:
    wanted = np.fromiter(sources, np.int64, len(sources))
    mask: Mask = np.repeat(np.isin(keys[starts], wanted), np.diff(np.append(starts, len(keys))))
    return mask


def best(ids: Numbers, scores: Floats, limit: int) -> tuple[Numbers, Floats]:
    """Best scores first; equal scores in the order of ids, which makes answers reproducible.

    Scores of exactly zero are dropped: a vector of zeros is near nothing.
    """
    # Keep all that equal the last score: the ids decide among them.
    last = np.partition(scores, -limit)[-limit] if len(scores) > limit else np.float32(-np.inf)
    if last > 0:
        chosen = np.flatnonzero(scores >= last)
    else:
        chosen = np.flatnonzero(scores)
        if len(chosen) > limit:
            chosen = chosen[scores[chosen] >= np.partition(scores[chosen], -limit)[-limit]]
    ids, scores = ids[chosen], scores[chosen]
    order = np.lexsort((ids, -scores))[:limit]
    return ids[order], scores[order]
