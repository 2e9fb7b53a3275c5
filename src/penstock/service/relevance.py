"""Relevance of a hit: weak hits share few words with the query and have another meaning. Pure.

The rule and its limits come from a measurement (``bench/weak_hits.py``). Hits of queries from another field
should be weak, and relevant hits should not.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.named_tuple import NamedTuple

WORDS_COUNT = 0.5
"""Weight of the share of the query's words in a chunk, beside its similarity."""
LEAST = {"static": 0.4, "hashing": 0.3}
"""Least relevance of a hit that is not weak, by embedder: cosines of two models do not compare."""


class Similarity(NamedTuple):
    """Cosine of a chunk and the query, or an upper bound."""

    embedder: str
    cosine: float


def is_weak(words_found: int, words_asked: int, similarities: Sequence[Similarity]) -> bool:
    """Decide whether a hit is weak.

    ``similarities`` has one entry if the chunk's vector was compared. Otherwise it has the most that each
    vector space allows; it is empty if vectors were not searched. Words alone make no hit weak: without a
    similarity, and for an embedder that was not measured, no hit is.
    """
    share = words_found / words_asked if words_asked else 0.0
    return bool(similarities) and all(
        embedder in LEAST and cosine + WORDS_COUNT * share < LEAST[embedder]
        for embedder, cosine in similarities
    )
