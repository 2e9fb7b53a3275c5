"""Rankings of a search, by words and by vectors, and how they are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.catalog.values import KeywordHit
from penstock.named_tuple import NamedTuple
from penstock.pipeline.vectors.protocol import NearVector
from penstock.service.graph_hits import NO_RANKING, GraphRanking
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
        """The cosine assumed for a chunk outside this ranking: the smallest one inside."""
        return self.near[-1].score if self.near else 0.0

    def most(self) -> float:
        """The largest possible cosine of a chunk outside this ranking."""
        return self.near[-1].score if len(self.near) >= self.limit else 0.0


class Rankings(NamedTuple):
    """Rankings of a search, ``depth`` deep. ``notes``: spaces that could not be searched."""

    depth: int
    keyword: list[KeywordHit]
    spaces: list[SpaceRanking]
    notes: list[str]
    graph: GraphRanking = NO_RANKING

    @property
    def cut(self) -> bool:
        """Check whether a deeper search could find more."""
        return len(self.keyword) >= self.depth or any(len(space.near) >= self.depth for space in self.spaces)

    def fused(self, weights: Mapping[str, float] = VECTOR_WEIGHTS) -> list[tuple[int, float]]:
        """Merge all rankings; see ``fused``. ``weights``: of the vectors, by embedder."""
        keyword = Scores({hit.content_id: hit.score for hit in self.keyword}, self._outside_keyword())
        spaces = [
            Scores(
                {hit.content_id: hit.score for hit in space.near},
                space.least(),
                weights.get(space.embedder, UNMEASURED_WEIGHT),
            )
            for space in self.spaces
        ]
        return fused(keyword, spaces, self.graph)

    def _outside_keyword(self) -> float:
        """The score of a chunk outside the keyword ranking: nothing, unless the ranking was cut."""
        return self.keyword[-1].score if len(self.keyword) >= self.depth else 0.0

    def matches(self, words: Mapping[int, tuple[str, ...]], asked: int) -> Callable[[int], Match]:
        """Return a function describing the match of a chunk. ``words``: found ones, of ``asked`` in all."""
        places = {hit.content_id: place for place, hit in enumerate(self.keyword, 1)}
        near = {
            hit.content_id: (place, space.embedder, hit.score)
            for space in self.spaces
            for place, hit in enumerate(space.near, 1)
        }
        graph_ranks = self.graph.ranks()
        # A chunk outside all rankings may be in a space that could not be searched.
        most = [] if self.notes else [Similarity(space.embedder, space.most()) for space in self.spaces]

        def weak(content_id: int) -> bool:
            similarities = [Similarity(*near[content_id][1:])] if content_id in near else most
            return is_weak(len(words.get(content_id, ())), asked, similarities)

        # A chunk that was asked for by a relation is as good as the entity that the relation leads from.
        related = self.graph.asked and (self.graph.best is None or not weak(self.graph.best))

        def match(content_id: int) -> Match:
            vector_rank, _, cosine = near.get(content_id, (None, None, None))
            graph_rank = graph_ranks.get(content_id)
            return Match(
                weak(content_id) and not (related and graph_rank is not None),
                words.get(content_id, ()),
                cosine,
                places.get(content_id),
                vector_rank,
                graph_rank,
            )

        return match


class Scores(NamedTuple):
    """Scores of one ranking by chunk, the score of chunks outside, and the weight of the best."""

    by_chunk: Mapping[int, float]
    outside: float
    weight: float = 1.0

    def scaled(self) -> tuple[dict[int, float], float]:
        """Shares of the best score, times the weight: of each chunk, and of a chunk outside."""
        best = max(self.by_chunk.values(), default=0.0)
        if best <= 0:
            return {}, 0.0
        factor = self.weight / best
        shares = {chunk: max(score, 0.0) * factor for chunk, score in self.by_chunk.items()}
        return shares, max(self.outside, 0.0) * factor


def fused(
    keyword: Scores, spaces: Sequence[Scores], graph: GraphRanking = NO_RANKING
) -> list[tuple[int, float]]:
    """Merge rankings by the sum of their scores, each as a share of its best; ties by id.

    Scores say more than ranks: a chunk far ahead of the next stays ahead. A chunk has a vector in one space,
    so the best of its scaled cosines counts. Scores of the graph are shares already. The result is between 0
    and 1.
    """
    by_words, no_words = keyword.scaled()
    whole = (keyword.weight if keyword.by_chunk else 0.0) + max((one.weight for one in spaces), default=0.0)
    by_graph = {chunk: graph.weight * match.score for chunk, match in graph.matches.items()}
    whole += graph.weight if by_graph else 0.0
    by_vector, no_vector = _best_shares(spaces)
    chunks = {*keyword.by_chunk, *by_graph}.union(*(space.by_chunk for space in spaces))
    in_words, in_vectors = by_words.get, by_vector.get
    for chunk, score in by_graph.items():
        by_words[chunk] = in_words(chunk, no_words) + score
    scores = [
        (-(in_words(chunk, no_words) + in_vectors(chunk, no_vector)) / whole, chunk) for chunk in chunks
    ]
    scores.sort()
    return [(chunk, -score) for score, chunk in scores]


def _best_shares(spaces: Sequence[Scores]) -> tuple[dict[int, float], float]:
    """The best share of each chunk in any space, and the share of a chunk outside of all."""
    scaled = [space.scaled() for space in spaces]
    outside = max((share for _, share in scaled), default=0.0)
    if len(scaled) == 1:
        return scaled[0]
    chunks = dict.fromkeys(chunk for shares, _ in scaled for chunk in shares)
    return {chunk: max(shares.get(chunk, least) for shares, least in scaled) for chunk in chunks}, outside
