"""Passages within a budget of tokens: neighbours merged, nothing twice, the budget never exceeded."""

from __future__ import annotations

import random

import pytest

from penstock.catalog.values import StoredProperties
from penstock.pipeline.embed.static import count_tokens
from penstock.service.hits import Coverage, Hit
from penstock.service.passages import context_of, pack


def hit(text: str, *, path: str = "/a.md", index: int = 0, start: int = 0, score: float = 1.0) -> Hit:
    lines = {"first_line": index + 1, "last_line": index + 1, "position_unit": "line"}
    return Hit(
        score=score,
        weak=False,
        path=path,
        title="",
        snippet="",
        text=text,
        page=None,
        page_unit="page",
        heading="",
        start=start,
        end=start + len(text),
        symbols="",
        tags=(),
        file_type="md",
        properties=StoredProperties(),
        tenant_id="default",
        collection="default",
        branch="main",
        source_id=path,
        chunk_id=f"{path}:{index}",
        chunk_index=index,
        also_in=(),
        words=(),
        similarity=None,
        keyword_rank=None,
        vector_rank=None,
        **lines,  # type: ignore[arg-type]
    )


def test_neighbours_are_one_passage_without_what_they_repeat():
    whole = "One two three. Four five six. Seven eight."
    first, last = hit(whole[:29]), hit(whole[15:], index=1, start=15)
    other = hit("Another text.", path="/b.md")

    packed = pack([last, other, first], 1_000, count_tokens)

    assert [whole, "Another text."] == [passage.text for passage in packed]
    assert (1, 2, ("/a.md:0", "/a.md:1")) == (
        packed[0].first_line,
        packed[0].last_line,
        packed[0].chunk_ids,
    )
    text = context_of(packed, 1_000, count_tokens, covered=Coverage()).text
    assert f"[1] /a.md:1-2\n{whole}\n\n[2] /b.md:1\nAnother text." == text


def test_a_hit_between_two_passages_joins_them():
    parts = ["One.", "Two.", "Three."]
    hits = [hit(text, index=number, start=6 * number) for number, text in enumerate(parts)]

    packed = pack([hits[0], hits[2], hits[1]], 1_000, count_tokens)

    assert ["One.\nTwo.\nThree."] == [passage.text for passage in packed]


def test_a_text_is_there_once():
    texts = [
        hit("The gate is frozen."),
        hit("gate is", path="/b.md"),
        hit("The gate is frozen.", path="/c.md"),
    ]

    assert ["/a.md"] == [passage.path for passage in pack(texts, 1_000, count_tokens)]


def test_a_passage_that_does_not_fit_leaves_room_for_a_smaller_one():
    hits = [hit("gate " * 50), hit("wheel " * 500, path="/b.md"), hit("small", path="/c.md")]

    assert ["/a.md", "/c.md"] == [passage.path for passage in pack(hits, 100, count_tokens)]


@pytest.mark.parametrize("text", ["gate " * 500, "水車小屋の水門" * 100, "x" * 5_000, "a\n\nb c\n" * 300])
def test_the_beginning_of_the_best_is_taken_where_nothing_fits(text: str):
    (passage,) = pack([hit(text)], 60, count_tokens)

    context = context_of([passage], 60, count_tokens, covered=Coverage())
    assert passage.cut
    assert passage.text[:-1].strip()
    assert passage.text[:-1] in text
    assert 40 < context.tokens == passage.tokens <= 60
    assert [] == pack([hit(text)], 5, count_tokens)


def test_no_budget_is_exceeded():
    chance = random.Random(1)
    words = ["gate", "wheel", "antidisestablishment", "水車", "\n", "  ", "x_y(3.14)", "…", "\t\t", "é"]
    for _ in range(200):
        hits = [
            hit(
                " ".join(chance.choices(words, k=chance.randint(1, 60))),
                path=f"/{chance.randint(1, 3)} {'long ' * chance.randint(0, 9)}.md",
                index=(index := chance.randint(0, 6)),
                start=index * 500,
            )
            for _ in range(12)
        ]
        budget = chance.randint(1, 400)
        packed = pack(hits, budget, count_tokens)
        context = context_of(packed, budget, count_tokens, covered=Coverage())
        assert sum(passage.tokens for passage in packed) == context.tokens <= budget
        assert list(range(1, len(packed) + 1)) == [passage.number for passage in packed]
