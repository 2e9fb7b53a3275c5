"""Hostile texts for the extractors of the graph: the cost grows with the text, and no name is endless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.catalog.graph import MAX_NAME, Extraction
from penstock.pipeline.chunk.languages import MAX_PARSED
from penstock.pipeline.graph.factory import extractor_for, language_of
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument
from tests.pipeline.test_linear import NOISE_OF_PARSERS, STEP, check_growth


def extract(name: str, text: str) -> Extraction:
    extractor = extractor_for(name)
    assert extractor is not None
    document = GraphDocument(f"/{name}", [GraphChunk(text)], language_of(name), "module")
    return extractor.extract(document, [0])[0]


def nested(depth: int, name: str, inside: str) -> str:
    lines = [" " * level + f"class {name}:" for level in range(depth)]
    return "\n".join([*lines, " " * depth + inside])


def listed(part: str, n: int, between: str = ",") -> str:
    return between.join(part.replace("%d", str(number)) for number in range(n))


HOSTILE: dict[str, tuple[str, int, Callable[[int], str]]] = {
    "calls below long names": (
        "a.py",
        100,
        lambda n: nested(20, "A" * 50 * n, "def f(): a(); " + "f();" * n * 4),
    ),
    "a class with many bases": (
        "a.py",
        300,
        lambda n: (
            f"from b import {listed('B%d', n)}\n"
            f"class A({listed('B%d', n)}, metaclass=C):\n def f(self): {listed('self.a%d()', n, ';')}"
        ),
    ),
    "calls of results of calls": ("a.py", 10_000, lambda n: "x" + ".a()" * n),
    "spaces in a heading": ("a.md", 1_500, lambda n: "# a" + " " * n + "b"),
    "hash signs in a heading": ("a.md", 1_500, lambda n: "# a" + "#" * n + "b"),
    "numbers with a colon": ("a.txt", 1_500, lambda n: "1:" * n + "1a"),
    "numbers with a comma": ("a.txt", 1_500, lambda n: "1," * n + "1a"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_extraction_grows_with_the_text(name: str):
    file, n, make = HOSTILE[name]
    small, large = make(n), make(STEP * n)
    extract(file, make(10))
    check_growth(lambda: extract(file, small), lambda: extract(file, large), NOISE_OF_PARSERS)


def test_a_link_without_an_end_is_given_up_at_once():
    """As many tries as a target has characters, for each length of a title, take minutes."""
    assert extract("a.md", ("[](" + "a" * 1400) * 200).relations == []


def test_a_file_too_large_to_be_cut_by_its_syntax_is_not_parsed():
    """Grammars may take very long. Such a file was never parsed before, within limits of its own."""
    large = "class A: pass\n" + "#" * MAX_PARSED
    assert extract("a.py", large).entities == {}
    assert extract("a.py", large[: MAX_PARSED // 2]).entities != {}


def test_names_without_end_are_not_kept():
    long = "a" * (MAX_NAME + 1)
    found = extract("a.py", f"import b\ndef {long}(): b.c()\ndef ok(): b.{long}(); b.d()\n")
    assert {(one.source.name, one.target.name) for one in found.relations} == {
        ("module", "b"),
        ("module", "b.c"),
        ("module", "module.ok"),
        ("module.ok", "b.d"),
    }


def test_hash_signs_that_belong_to_a_heading_stay():
    """Headings are those of the chunker: other titles would be other sections in the next chunk."""
    found = extract("a.md", "# C#\n\n## Use ##\n\nNot a heading\n-\n")
    assert {entity.name for entity in found.entities} == {"/a.md", "/a.md#C#", "/a.md#Use"}
