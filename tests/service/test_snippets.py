"""Snippets of hits: which words of a query are marked in a text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalog.rules.words import humps, is_indexed_as_it_is, keyword_text
from penstock.service.hits import make_snippet

ALPHABET = "aAbB1_ .éÉßİ水"


def marked(text: str, query: str) -> str:
    """The rule, one word after the other: whole words, and parts of words with humps."""

    def mark(run: re.Match[str]) -> str:
        if run[0].lower() in query.split():
            return f"<{run[0]}>"
        return "".join(
            f"<{part}>" if part.lower() in query.split() else part for part in humps().split(run[0])
        )

    return re.sub(r"[^\W_]+", mark, " ".join(text.split()))


@given(
    st.text(ALPHABET, max_size=30), st.lists(st.text("ab1", min_size=3, max_size=5), min_size=1, max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_words_and_parts_of_names_are_marked_and_nothing_else(text: str, words: list[str]):
    query = " ".join(words)

    assert marked(text, query) == make_snippet(text, query, ("<", ">"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maxHeaderSize of a header", "max<Header>Size of a <header>"),
        ("HEADER headers _header_", "<HEADER> headers _<header>_"),
        ("xHeaders", "xHeaders"),
        ("HTTPHeader", "HTTP<Header>"),
    ],
)
def test_a_name_with_humps_has_its_parts_marked(text: str, expected: str):
    assert expected == make_snippet(text, "header", ("<", ">"))


def test_a_word_that_spans_a_hump_is_marked_only_as_a_whole():
    assert "<MaxHeader> theMaxHeader" == make_snippet("MaxHeader theMaxHeader", "maxheader", ("<", ">"))


@given(st.text(ALPHABET, max_size=20))
@settings(max_examples=300, deadline=None)
def test_a_text_is_indexed_as_it_is_when_nothing_would_be_added(text: str):
    assert (keyword_text(text) == text) == is_indexed_as_it_is(text)
