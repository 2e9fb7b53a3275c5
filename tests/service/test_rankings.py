"""The merge of rankings: the weight of vectors depends on the embedder."""

from __future__ import annotations

import pytest

from penstock.catalog.values import KeywordHit
from penstock.pipeline.vectors.protocol import NearVector
from penstock.service.search import Rankings, SpaceRanking


def rankings(embedder: str) -> Rankings:
    keyword = [KeywordHit(1, 10.0, ""), KeywordHit(2, 1.0, "")]
    near = [NearVector(2, 0.8), NearVector(1, 0.2)]
    return Rankings(100, keyword, [SpaceRanking(embedder, near, 100)], [])


@pytest.mark.parametrize(("embedder", "first"), [("static", 1), ("minilm", 2), ("endpoint", 1)])
def test_a_better_model_weighs_more(embedder: str, first: int):
    ranked = rankings(embedder).fused()
    assert first == ranked[0][0]
    assert all(0 <= score <= 1 for _, score in ranked)
