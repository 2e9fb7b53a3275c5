"""Terms of a query for the keyword index."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.words import (
    MOST_TERMS,
    keyword_text,
    phrases,
    quoted_phrases,
    with_words,
    words_outside_quotes,
)


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("penstock", ["penstock"]),
        ("time sharing system", ["time", "sharing", "system"]),
        ("what is the gate", ["gate"]),
        ("gate of the mill", ["gate", "mill"]),
        ("to be or not to be", ["to", "be", "or", "not", "to", "be"]),
        ('"the gate" mill', ["the gate", "mill"]),
        ("mill mill mill mill", ["mill", "mill", "mill"]),
        ("multi-targeted", ["multi", "targeted"]),
        ("x", ["x"]),
        ("", []),
        ("?!", []),
        ('""', []),
        ("NEAR(a b) AND c*", ["NEAR"]),
        ("nul\0byte", ["nul", "byte"]),
        ("maxHeaderSize", ["maxHeaderSize", "max", "Header", "Size"]),
        ("parseHTTPHeader", ["parseHTTPHeader", "parse", "HTTP", "Header"]),
        ("水車小屋", ["水車 車小 小屋"]),
        ("水", ["水"]),
        ("水車mill", ["水車", "mill"]),
        ("größe", ["größe"]),
    ],
)
def test_words_and_phrases(query: str, asked: list[str]):
    assert asked == phrases(query)


def test_a_pasted_page_is_cut():
    assert MOST_TERMS == len(phrases(" ".join(f"word{number}" for number in range(10_000))))


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("Plain words, OF no note: a_b 3x", ""),
        ("the maxHeaderSize of ParseHTTP", "max Header Size Parse HTTP"),
        ("aB x1Y HTTPs, ABc_dE éAb1", "a B x1 Y HTT Ps A Bc d E"),
        ("AB A1 Ab éB É b B", ""),
        ("大きな水車 is a mill", "大き きな な水 水車"),
        ("水 alone", "水"),
    ],
)
def test_the_index_gets_the_parts_of_compound_words(text: str, added: str):
    assert (f"{text}\n{added}" if added else text) == keyword_text(text)


def test_quotation_marks_in_a_pasted_sentence_require_nothing():
    few, many = (" ".join(f"word{number}" for number in range(count)) for count in (8, 9))

    assert ["water wheel"] == quoted_phrases(f'"water wheel" {few}')
    assert [] == quoted_phrases(f'"water wheel" {many}')
    assert ["the water wheel", *many.split(), "water", "wheel"] == phrases(f'{many} "the water wheel"')


def test_words_outside_quotes_are_replaced_and_others_are_not():
    query = 'The gaet of "the gaet" and Gaet'

    assert ["gaet", "Gaet"] == words_outside_quotes(query)
    assert 'The gate of "the gaet" and Gaet' == with_words(query, {"gaet": "gate"})
