"""The rule for weak hits."""

from __future__ import annotations

import pytest

from penstock.service.search import LEAST, Similarity, is_weak


@pytest.mark.parametrize(
    ("found", "asked", "similarities", "weak"),
    [
        (0, 3, [("static", 0.39)], True),
        (0, 3, [("static", 0.41)], False),
        (1, 3, [("static", 0.2)], True),
        (1, 3, [("static", 0.3)], False),
        (3, 3, [("static", 0.0)], False),
        (0, 0, [("static", 0.1)], True),
        (0, 3, [("hashing", 0.35)], False),
        (0, 3, [], False),
        (0, 3, [("another", 0.0)], False),
        (0, 3, [("static", 0.1), ("hashing", 0.1)], True),
        (0, 3, [("static", 0.1), ("hashing", 0.9)], False),
    ],
    ids=str,
)
def test_few_words_and_little_similarity_together_make_a_hit_weak(
    found: int, asked: int, similarities: list[tuple[str, float]], weak: bool
):
    assert weak is is_weak(found, asked, [Similarity(*each) for each in similarities])


def test_a_hit_with_every_word_is_never_weak():
    assert [] == [name for name in LEAST if is_weak(2, 2, [Similarity(name, 0.0)])]
