"""Subtitles, titles, structure and positions of the text formats, up to the chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from penstock.catalog.values import NewChunk
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import build_draft
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, Properties, Shape


def read(name: str, text: str) -> ExtractedText:
    return extract(Content(name, text.encode()))


def text_of(name: str, text: str) -> str:
    return read(name, text).pages[0].text


def chunks(name: str, text: str, size: int = 80) -> list[NewChunk]:
    return build_draft(read(name, text), ChunkSizes(size), complete=True).chunks


def positions(name: str, text: str) -> list[int]:
    extracted = read(name, text)
    assert extracted.pages[0].positions is not None
    assert extracted.pages[0].text.count("\n") + 1 == len(extracted.pages[0].positions)
    return list(extracted.pages[0].positions)


SUBRIP = """1
00:00:01,000 --> 00:00:03,500
<i>The mill stands</i>
by the river.

2
00:00:04,000 --> 00:00:06,000 X1:100 Y1:20
{\\an8}Its wheel turns &amp; turns.

3
00:01:04,000 --> 00:01:06,000
- Who is there?
"""
WEBVTT = """WEBVTT - a film

STYLE
::cue { color: red }

NOTE
not spoken

intro
00:01.000 --> 00:02.000 align:start
<v.loud Miller>Water <00:01.500><c.red>is</c> low

00:02.000 --> 00:03.000
<v.loud Miller>Water is low
We wait.
"""


def test_subtitles_are_their_spoken_lines():
    spoken = "The mill stands by the river.\nIts wheel turns & turns.\n\n- Who is there?"

    assert spoken == text_of("a.srt", SUBRIP)
    assert [3, 8, 12, 12] == positions("a.srt", SUBRIP)
    assert "Miller: Water is low\nWe wait." == text_of("a.vtt", WEBVTT)


def test_a_file_without_subtitles_is_kept_as_text():
    extracted = read("a.srt", "only words\n")

    assert ("only words\n", True) == (extracted.pages[0].text, extracted.line_numbers)
    assert ("no subtitles found: kept as written",) == extracted.warnings
    assert read("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n\n").warnings


PAGE = """<!doctype html><html lang=en><head><title>Mill</title>
<meta name=author content="A. Miller"><meta property="article:published_time" content="2024-05-01T10:00:00Z">
<meta name=date content="some day"></head><body>
<h1>The mill</h1>
<p>The first paragraph is about water and
the wheel of the mill.</p>
<ul><li>one<li>two</ul>
<table><tr><th>a<th>b<tr><td>1<td>2</table>
<pre>code
more</pre>"""


def test_paragraphs_of_a_page_are_numbered():
    lines = text_of("a.html", PAGE).split("\n")
    numbered = dict(zip(lines, positions("a.html", PAGE), strict=True))

    assert 1 == numbered["# The mill"]
    assert 2 == numbered["The first paragraph is about water and the wheel of the mill."]
    assert (3, 4) == (numbered["- one"], numbered["- two"])
    assert (5, 5, 6) == (numbered["| a | b |"], numbered["|---|---|"], numbered["| 1 | 2 |"])
    assert (7, 7) == (numbered["code"], numbered["more"])
    assert "paragraph" == file_types.HTML.position_unit


def test_a_text_in_one_element_has_paragraphs_between_blank_lines():
    text = "one\nline\n\n\ntwo\n \nthree"

    assert text == text_of("a.html", f"<html><pre>{text}</pre></html>")
    assert [1, 1, 1, 1, 2, 2, 3] == positions("a.html", f"<html><pre>{text}</pre></html>")


def test_character_references_give_text_in_normal_form():
    assert "ä\n\n```\nx\ny\n```" == text_of("a.html", "<p>a&#776;<pre>x&#13;y</pre>")
    assert "a: ä" == text_of("a.xml", "<a>a&#776;</a>")


def test_a_page_states_its_properties():
    stated = Properties(author="A. Miller", created="2024-05-01T10:00:00Z", language="en")

    assert stated == read("a.html", PAGE).properties
    assert Properties() == read("a.html", "<p>words").properties


XML = """<?xml version="1.0"?>
<mills>
  <mill id="7"
        name="Old">
    <about>

      It stands <em>by the</em> <a href="river.html">river</a>.
    </about>
    <wheels>2</wheels>
  </mill>
  <mill><wheels>1</wheels></mill>
</mills>
"""


def test_xml_keeps_running_text_whole_with_lines_of_the_file():
    found = text_of("a.xml", XML).split("\n")

    assert ["mill id: 7", "mill name: Old", "about: It stands by the river.", "a href: river.html"] == found[
        :4
    ]
    assert ["wheels: 2", "", "wheels: 1"] == found[4:]
    assert [3, 3, 7, 7, 9, 11, 11] == positions("a.xml", XML)


def test_text_beside_records_joins_nothing():
    xml = "<list>note<item>a</item><item>b</item></list>"

    assert "list: note\n\nitem: a\n\nitem: b" == text_of("a.xml", xml)


def notebook(*cells: Mapping[str, object]) -> str:
    return json.dumps({"metadata": {"language_info": {"name": "python"}}, "cells": cells})


def test_chunks_of_a_notebook_tell_their_cells():
    prose = {"cell_type": "markdown", "source": ["# Mill\n", "\n", "Words about a mill and its wheel."]}
    code = {
        "cell_type": "code",
        "source": "turn(wheel)  # a line that fills a chunk of its own, more or less",
        "outputs": [{"output_type": "error", "ename": "ValueError", "evalue": "no water", "traceback": []}],
    }
    text = notebook(prose, code, {"cell_type": "raw", "source": "the end"})

    assert ("Mill", "cell") == (read("a.ipynb", text).title, file_types.NOTEBOOK.position_unit)
    assert [1] * 3 + [2] * 8 + [3] * 2 == positions("a.ipynb", text)
    assert "ValueError: no water" in text_of("a.ipynb", text)
    found = chunks("a.ipynb", text)
    assert (1, 3) == (found[0].first_line, found[-1].last_line)


def test_outputs_of_a_cell_are_bounded():
    outputs = [{"output_type": "stream", "text": "x" * 3_000}] * 50
    extracted = read("a.ipynb", notebook({"cell_type": "code", "source": "", "outputs": outputs}))

    assert 20_000 == extracted.pages[0].text.count("x")
    assert ("50 outputs are cut: a cell keeps 20,000 characters of them",) == extracted.warnings


def test_rows_with_line_feeds_keep_the_lines_of_the_file():
    table = 'name,text\nmill,"two\nlines"\nwheel,one\n'

    assert [1, 2, 4] == positions("a.csv", table)


def test_rows_carry_the_names_of_their_columns():
    table = "name;wheels\n" + "".join(f"mill {number};{number}\n" for number in range(40))

    found = chunks("a.csv", table)

    assert len(found) > 2
    assert {"name | wheels"} == {chunk.heading_path for chunk in found}
    assert all(line.count(" | ") == 1 for chunk in found for line in chunk.text.split("\n"))
    assert Shape.ROWS is read("a.csv", "1;2\n3;4\n").shape


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.md", "---\ntitle: 'The mill'\nauthor: A. Miller\ndate: 2024-05-01\n---\n\n# Other\n", "The mill"),
        ("a.md", "words\n\n# The mill #\n", "The mill"),
        ("a.rst", "========\nThe mill\n========\n\nwords", "The mill"),
        ("a.rst", "\nThe mill\n--------\n\nwords", "The mill"),
        ("a.rst", "words\nmore words\n", None),
        ("a.adoc", "// note\n= The mill\n:toc:\n", "The mill"),
        ("a.org", "#+TITLE: The mill\n* Other\n", "The mill"),
        ("a.org", "* The mill\nwords\n", "The mill"),
        ("a.txt", "# no title\n", None),
    ],
)
def test_titles(name: str, text: str, title: str | None):
    assert title == read(name, text).title


def test_front_matter_states_properties():
    front = "---\nTitle: Mill\nauthor: A. Miller\ndate: 2024-05-01\nlang: de\n---\nwords"

    assert (
        Properties(author="A. Miller", created="2024-05-01", language="de") == read("a.md", front).properties
    )
    assert Properties() == read("a.md", "---\nauthor: x\n").properties


@pytest.mark.parametrize(
    ("name", "text", "headings"),
    [
        ("a.toml", "[tool.mill]\n{0}names = [\n'x'\n]\n\n[[river]]\n{0}", {"tool.mill", "river"}),
        ("a.ini", "; note\n[mill]\n{0}[river] ; low\n{0}", {"mill", "river"}),
        ("a.yaml", "mill:\n  a: 2\n{0}river: # low\n- b\n{0}last: 1\n", {"mill", "river"}),
    ],
)
def test_settings_have_their_sections_as_headings(name: str, text: str, headings: set[str]):
    filled = text.format("  wheels = 'a line of about forty letters'\n" * 5)

    assert headings == {chunk.heading_path for chunk in chunks(name, filled)} - {""}
    assert filled == text_of(name, filled)
