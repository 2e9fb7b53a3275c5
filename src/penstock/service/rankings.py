"""Rankings of a search, by words and by vectors, and how they are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.catalog.views import KeywordHit
from penstock.pipeline.vectors.protocol import NearVector
from penstock.service.hits import Match
from penstock.service.relevance import Similarity, is_weak

VECTOR_WEIGHTS = {"static": 0.7, "hashing": 0.7, "minilm": 1.5}
"""Weight of the best cosine beside the best keyword score, by embedder; see ``bench/search_quality.py``."""
UNMEASURED_WEIGHT = 1.0
"""Weight for models that were not measured."""


class SpaceRanking(NamedTuple):
    """The nearest chunks of one vector space, best first. ``limit``: at most so many were asked for."""

    embedder: str
    near: list[NearVector]
    limit: int

    def least(self) -> float:
        """The cosine given to a chunk outside this ranking: the last one in it."""
        return self.near[-1].score if self.near else 0.0

    def most(self) -> float:
        """The most that the cosine of a chunk outside this ranking can be."""
        return self.near[-1].score if len(self.near) >= self.limit else 0.0


class Rankings(NamedTuple):
    """Both rankings of a search, ``depth`` deep. ``notes``: spaces that could not be searched."""

    depth: int
    keyword: list[KeywordHit]
    spaces: list[SpaceRanking]
    notes: list[str]

    @property
    def cut(self) -> bool:
        """Check whether a deeper search could find more."""
        return len(self.keyword) >= self.depth or any(len(space.near) >= self.depth for space in self.spaces)

    def fused(self, weights: Mapping[str, float] = VECTOR_WEIGHTS) -> list[tuple[int, float]]:
        """Merge both rankings; see ``fused``. ``weights``: of the vectors, by embedder."""
        keyword = Scores({hit.content_id: hit.score for hit in self.keyword}, self._outside_keyword())
        spaces = [
            Scores(
                {hit.content_id: hit.score for hit in space.near},
                space.least(),
                weights.get(space.embedder, UNMEASURED_WEIGHT),
            )
            for space in self.spaces
        ]
        return fused(keyword, spaces)

    def _outside_keyword(self) -> float:
        """The score of a chunk outside the keyword ranking: nothing, unless the ranking was cut."""
        return self.keyword[-1].score if len(self.keyword) >= self.depth else 0.0

    def matches(self, words: Mapping[int, tuple[str, ...]], asked: int) -> Callable[[int], Match]:
        """Return a function that describes the match of a chunk. ``words``: those found, of ``asked``."""
        places = {hit.content_id: place for place, hit in enumerate(self.keyword, 1)}
        near = {
            hit.content_id: (place, Similarity(space.embedder, hit.score))
            for space in self.spaces
            for place, hit in enumerate(space.near, 1)
        }
        # A chunk outside all rankings may be in a space that could not be searched.
        most = [] if self.notes else [Similarity(space.embedder, space.most()) for space in self.spaces]

        def match(content_id: int) -> Match:
            found = words.get(content_id, ())
            keyword_rank = places.get(content_id)
            if content_id not in near:
                return Match(is_weak(len(found), asked, most), found, None, keyword_rank, None)
            vector_rank, similarity = near[content_id]
            weak = is_weak(len(found), asked, [similarity])
            return Match(weak, found, similarity.cosine, keyword_rank, vector_rank)

        return match


class Scores(NamedTuple):
    """Scores of one ranking by chunk, and what a chunk outside of it is given; the weight of the best."""

    by_chunk: Mapping[int, float]
    outside: float
    weight: float = 1.0

    def scaled(self) -> Callable[[int], float]:
        """Return a function from a chunk to its share of the best score, times the weight."""
        best = max(self.by_chunk.values(), default=0.0)
        if best <= 0:
            return lambda _: 0.0
        by_chunk, outside, factor = self.by_chunk, self.outside, self.weight / best
        return lambda chunk: max(by_chunk.get(chunk, outside), 0.0) * factor


def fused(keyword: Scores, spaces: Sequence[Scores]) -> list[tuple[int, float]]:
    """Merge rankings by the sum of their scores, each as a share of its best; ties by id.

    Scores say more than ranks: a chunk far ahead of the next stays ahead. A chunk has a vector in one space,
    so the best of its scaled cosines counts. The result is between 0 and 1.
    """
    by_words, by_vectors = keyword.scaled(), [space.scaled() for space in spaces]
    whole = (keyword.weight if keyword.by_chunk else 0.0) + max((one.weight for one in spaces), default=0.0)
    chunks = dict.fromkeys(chunk for scores in (keyword, *spaces) for chunk in scores.by_chunk)
    scores = {
        chunk: (by_words(chunk) + max((cosine(chunk) for cosine in by_vectors), default=0.0)) / whole
        for chunk in chunks
    }
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
