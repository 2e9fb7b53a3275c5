"""Hostile files: anything shortened is reported in the document's warnings."""

from __future__ import annotations

import json
import random
from array import array

import pytest

from penstock.errors import DocumentDamaged
from penstock.pipeline.chunk.text import MAX_HEADING, ChunkSizes, Minima
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText
from penstock.pipeline.pipeline import Pipeline
from tests.pipeline.hostile_inputs import FILES


def read(name: str, text: str) -> ExtractedText:
    return extract(Content(name, text.encode()))


def test_formatting_that_is_never_closed_leaves_all_text():
    page = read("a.html", "".join(f"<font size={n}><p>word{n}" for n in range(3_000))).pages[0]

    assert [f"word{n}" for n in range(3_000)] == page.text.split()


def test_many_options_are_kept_as_lines():
    markup = "<p>Choose <select>" + "".join(f"<option>no{n}" for n in range(6_000)) + "</select> one</p>"

    assert ["Choose", *(f"no{n}" for n in range(6_000)), "one"] == read("a.html", markup).pages[
        0
    ].text.split()


@pytest.mark.parametrize("name", ["mismatched end tags", "attributes", "inline elements and divisions"])
def test_html_that_takes_the_square_of_its_length_is_refused(name: str):
    with pytest.raises(DocumentDamaged, match="steps to read"):
        extract(Content(*FILES[name](20_000)))


def test_deep_json_is_given_lines_but_no_indentation():
    text = "[" * 200 + ",".join(f'"[{n}"' for n in range(500)) + "]" * 200

    lines = read("a.json", text).pages[0].text.splitlines()

    assert json.loads("".join(lines)) == json.loads(text)
    assert [f'"[{n}",' for n in range(499)] == lines[200:699]


def test_a_long_language_name_is_cut_and_said_to_be():
    notebook = {
        "cells": [{"cell_type": "code", "source": "a"}],
        "metadata": {"language_info": {"name": "x" * 999}},
    }

    extracted = read("a.ipynb", json.dumps(notebook))

    assert ("the name of the language is cut after 200 characters",) == extracted.warnings
    assert "```" + "x" * 200 + "\na\n```" == extracted.pages[0].text


def test_a_long_element_name_is_cut_and_said_to_be():
    extracted = read("a.xml", f"<{'x' * 999}>a<b/>c</{'x' * 999}>")

    assert ("the name of an element is cut after 200 characters",) == extracted.warnings
    assert f"{'x' * 200}…: a\n\n{'x' * 200}…: c" == extracted.pages[0].text


def test_xml_that_fills_in_long_attributes_is_kept_as_it_is_written():
    text = f'<!DOCTYPE r [<!ATTLIST a b CDATA "{"x" * 2000}">]><r><a/>text</r>'

    extracted = read("a.xml", text)

    assert text == extracted.pages[0].text
    assert "gives attributes of more than 1,000 characters" in extracted.warnings[0]


def test_chunks_below_a_long_heading_carry_its_beginning():
    title = "word " * 400
    draft = Pipeline(HashingEmbedder()).draft(
        Content("a.md", f"# {title}\n\n{'some text. ' * 400}".encode()), ChunkSizes()
    )

    assert {MAX_HEADING} == {len(chunk.heading_path) for chunk in draft.chunks}
    assert title.strip() in draft.chunks[0].text
    assert ("the chunks below a heading carry its first 500 characters",) == draft.warnings


def test_an_encoding_that_no_file_has_is_not_believed():
    content = b"<meta charset=punycode><p>caf\xe9 and more text, here and there</p>"

    assert "café" in extract(Content("a.html", content)).pages[0].text


@pytest.mark.parametrize("kinds", [2, 50, 100_000])
def test_minima_are_those_of_looking_at_each(kinds: int):
    rng = random.Random(kinds)
    keys = array("Q", [rng.randrange(kinds) for _ in range(20_000)])
    minima = Minima(keys)
    for _ in range(300):
        low = rng.randrange(len(keys))
        high = rng.randint(low + 1, min(len(keys), low + rng.choice([5, 500, 20_000])))
        some = list(keys[low:high])

        assert min(some) == minima.lowest(low, high)
        assert low + some.index(min(some)) == minima.first(min(some), low, high)
        assert high - 1 - some[::-1].index(min(some)) == minima.last(min(some), low, high)
