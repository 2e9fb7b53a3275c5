"""Terms of a query for the keyword index."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.query_terms import MOST_TERMS, phrases


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("penstock", ["penstock"]),
        ("time sharing system", ["time", "sharing", "system", "time sharing", "sharing system"]),
        ("what is the gate", ["gate"]),
        ("gate of the mill", ["gate", "mill"]),
        (
            "to be or not to be",
            ["to", "be", "or", "not", "to", "be", "to be", "be or", "or not", "not to", "to be"],
        ),
        ('"the gate" mill', ["the gate", "mill"]),
        ("mill mill mill mill", ["mill", "mill", "mill", "mill mill", "mill mill", "mill mill"]),
        ("multi-targeted", ["multi", "targeted", "multi targeted"]),
        ("x", ["x"]),
        ("", []),
        ("?!", []),
        ('""', []),
        ("NEAR(a b) AND c*", ["NEAR"]),
        ("nul\0byte", ["nul", "byte", "nul byte"]),
    ],
)
def test_words_phrases_and_neighbours(query: str, asked: list[str]):
    assert asked == phrases(query)


def test_a_pasted_page_is_cut():
    assert MOST_TERMS == len(phrases(" ".join(f"word{number}" for number in range(10_000))))
