"""Words that may be meant by a misspelt one."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.words import (
    closest_word,
    edit_distance,
    is_correctable,
    is_likelier,
    may_be_misspelt,
    neighbours,
)


@pytest.mark.parametrize("word", ["gate", "Turbine", "ворота", "naïve"])
def test_words_of_letters_may_be_misspelt(word: str):
    assert is_correctable(word)


@pytest.mark.parametrize("word", ["mil", "NATO", "x86a", "maxHeaderSize", "水車水車", "a_bcd", "w" * 33])
def test_names_numbers_and_short_words_may_not(word: str):
    assert not is_correctable(word)


@pytest.mark.parametrize(
    ("word", "instead", "likelier"),
    [
        ("gaet", "gate", True),
        ("Penstokce", "penstock", True),
        ("tree", "free", False),
        ("topography", "tomography", False),
        ("turbnies", "turbines", True),
    ],
)
def test_a_word_of_few_pieces_is_no_misspelling(word: str, instead: str, likelier: bool):
    pieces = {"gaet": 2, "penstokce": 4, "penstock": 2, "topography": 2, "tomography": 2}
    pieces |= {"turbnies": 3, "turbines": 3}
    assert likelier is is_likelier(instead, word, lambda each: pieces.get(each, 1))


def test_neighbours_are_one_edit_away():
    found = neighbours("Gaet")

    assert {"gate", "get", "guaet", "gaets", "goet"} <= set(found)
    assert {1} == {edit_distance("gaet", each) for each in found}
    assert sorted(set(found)) == found
    assert "мельница" in neighbours("мелница")


@pytest.mark.parametrize(
    ("one", "other", "edits"),
    [
        ("", "ab", 2),
        ("gate", "gate", 0),
        ("gaet", "gate", 1),
        ("penstokce", "penstock", 2),
        ("abc", "cab", 2),
    ],
)
def test_edit_distance(one: str, other: str, edits: int):
    assert (edits, edits) == (edit_distance(one, other), edit_distance(other, one))


def test_the_form_that_a_text_has_is_taken():
    texts = ["The penstock and its gates.", "penstockWater of the penstock"]

    assert "penstock" == closest_word("penstokce", texts, "penstocke")
    assert "gates" == closest_word("gaetes", texts, "gate")
    assert "other" == closest_word("violin", texts, "other")


def test_only_words_of_several_pieces_may_be_misspelt():
    """None is likelier than a word of one piece, so that its neighbours need not be looked up."""
    for pieces in range(1, 5):
        counts = ({"word": pieces, "other": others} for others in range(1, 5))
        likelier = any(is_likelier("other", "word", count.__getitem__) for count in counts)
        assert likelier == may_be_misspelt("Word", {"word": pieces}.__getitem__)
