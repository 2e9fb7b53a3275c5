"""Rankings of a search, by words and by vectors, and how they are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.catalog.views import KeywordHit
from penstock.pipeline.vectors.protocol import NearVector
from penstock.service.hits import Match
from penstock.service.relevance import Similarity, is_weak

RANK_OFFSET = 60
"""Constant of reciprocal rank fusion; larger values bring the first ranks closer together."""
WEIGHTS = {"keyword": 1.0, "vector": 0.3}
"""Measured on CACM and Cranfield (bench/retrieval.py): static vectors add recall more than precision."""


class SpaceRanking(NamedTuple):
    """The nearest chunks of one vector space, best first. ``limit``: at most so many were asked for."""

    embedder: str
    near: list[NearVector]
    limit: int

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

    def fused(self) -> list[tuple[int, float]]:
        lists = [(WEIGHTS["keyword"], [hit.content_id for hit in self.keyword])]
        lists += [(WEIGHTS["vector"], [hit.content_id for hit in space.near]) for space in self.spaces]
        return fused(lists)

    def matches(self, words: Mapping[int, tuple[str, ...]], asked: int) -> Callable[[int], Match]:
        """Return a function that tells how a chunk matches. ``words``: those found, of ``asked``."""
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


def fused(rankings: Sequence[tuple[float, Sequence[int]]]) -> list[tuple[int, float]]:
    """Merge rankings by reciprocal rank fusion; ties by id."""
    scores: dict[int, float] = {}
    for weight, ranking in rankings:
        for rank, content_id in enumerate(ranking):
            scores[content_id] = scores.get(content_id, 0.0) + weight / (RANK_OFFSET + 1 + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
