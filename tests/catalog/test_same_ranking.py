"""Keyword search ranks by the same BM25 in every store."""

from __future__ import annotations

import math
import random

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.sql.postgres import PostgresCatalog
from penstock.catalog.values import Filters
from tests.catalog import test_plans
from tests.catalog.conftest import generation, page, sweep
from tests.catalog.test_removal import folder

counted_catalog, url = test_plans.catalog, test_plans.url
K1, B = 1.6, 0.75
WORDS = "mill wheel water river gate penstock turbine frozen axle oil steam stone grain flour bread".split()


def made_texts() -> dict[str, list[str]]:
    """Texts of different lengths, by path. The first words are frequent, the last are rare."""
    chance = random.Random(7)
    weights = [1 / (rank + 1) ** 1.3 for rank in range(len(WORDS))]
    return {f"/{name}.md": chance.choices(WORDS, weights, k=chance.randint(3, 60)) for name in range(40)}


def bm25(texts: dict[str, list[str]], asked: list[str]) -> dict[str, float]:
    mean = sum(map(len, texts.values())) / len(texts)
    scores: dict[str, float] = {}
    for word in asked:
        having = sum(word in text for text in texts.values())
        idf = max(math.log((len(texts) - having + 0.5) / (having + 0.5)), 1e-6)
        for path, text in texts.items():
            times = text.count(word)
            if times:
                saturated = times / (times + K1 * (1 - B + B * len(text) / mean))
                scores[path] = scores.get(path, 0.0) + idf * saturated
    return scores


def scores(catalog: Catalog, query: str) -> dict[str, float]:
    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword(query, Filters(tenant_id="acme"), limit=40)
        views = snapshot.hydrate([hit.content_id for hit in hits])
    return {view.path: hit.score for view, hit in zip(views, hits, strict=True) if view}


@pytest.mark.parametrize("query", ["oil", "mill bread", "gate oil flour", "penstock turbine frozen axle oil"])
def test_scores_are_those_of_bm25(catalog: Catalog, query: str):
    texts = made_texts()
    catalog.store([generation(path, page(" ".join(words))) for path, words in texts.items()])

    found = scores(catalog, query)
    wanted = bm25(texts, query.split())

    assert set(wanted) == set(found)
    best, most = max(found.values()), max(wanted.values())
    for path, score in wanted.items():
        assert score / most == pytest.approx(found[path] / best, abs=0.02)


def test_a_quoted_word_is_as_rare_as_among_all_texts(catalog: Catalog):
    texts = made_texts()
    catalog.store([generation(path, page(" ".join(words))) for path, words in texts.items()])

    found = scores(catalog, '"oil" mill wheel')
    wanted = {
        path: score for path, score in bm25(texts, ["oil", "mill", "wheel"]).items() if "oil" in texts[path]
    }

    assert set(wanted) == set(found)
    best, most = max(found.values()), max(wanted.values())
    for path, score in wanted.items():
        assert score / most == pytest.approx(found[path] / best, abs=0.02)


def test_an_old_count_of_the_server_changes_no_score(counted_catalog: PostgresCatalog, url: str):
    catalog = counted_catalog
    catalog.store([generation(path, page(" ".join(words))) for path, words in made_texts().items()])
    before = scores(catalog, "mill bread")
    catalog.store([generation(f"/deleted/{n}.md", page(f"sluice {n}")) for n in range(60)])
    test_plans.count(url)

    catalog.remove(folder("/deleted"), limit=100)
    sweep(catalog)

    assert before == scores(catalog, "mill bread")
