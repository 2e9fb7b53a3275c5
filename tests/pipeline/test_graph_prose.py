"""Entities and relations of prose and Markdown."""

from __future__ import annotations

import pytest

from bench import graph as bench
from penstock.catalog.graph import Entity, Relation, name_key, short_key
from penstock.pipeline.graph.factory import extractor_for, graph_fingerprint
from penstock.pipeline.graph.prose import CONTAINS, LINKS, extract_text, sentences
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument


def names(text: str) -> dict[str, str]:
    return {entity.name: entity.kind for entity in extract_text(text).entities}


def pairs(text: str) -> set[frozenset[str]]:
    return {frozenset((one.source.name, one.target.name)) for one in extract_text(text).relations}


def test_names_are_found_without_the_titles_and_words_around_them():
    text = (
        "Sen. Ann Marlow, 52, told the Harbour Commission on Monday that Mrs. Vane lives in Port Ellis, N.J."
    )
    assert names(text) == {
        "Ann Marlow": "person",
        "Harbour Commission": "organisation",
        "Mrs. Vane": "person",
        "Port Ellis": "place",
        "N.J.": "place",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The mill burned down. Quickly they left.", []),
        ("Texas Gov. John Doe spoke.", ["Texas", "John Doe"]),
        ("He joined the Department of Energy and Water.", ["Department of Energy and Water"]),
        ("Ann Lee of Acme Corp. of Springfield agreed.", ["Ann Lee", "Acme Corp.", "Springfield"]),
        ("Marlow's boat and the U.S. fleet", ["Marlow", "U.S."]),
        ("It opened on 5 May 1994 after 20 miles.", ["5 May 1994", "20 miles"]),
        ("", []),
        ("...!?\n\n--- 'tis", []),
    ],
)
def test_bounds_of_names(text: str, found: list[str]):
    assert list(names(text)) == found


def test_a_name_has_one_kind_in_a_chunk():
    text = "Marlow said so. They wrote to Mr. Marlow. Marlow answered."
    assert extract_text(text).entities == {Entity("Marlow", "person"): 3}


def test_noun_phrases_count_when_they_recur():
    text = "A water wheel turns the mill. The old water wheel broke. A steam engine came."
    assert names(text) == {"water wheel": "term"}


def test_nearer_names_have_greater_weights():
    def weights(text: str) -> dict[tuple[str, str], float]:
        return {(one.source.name, one.target.name): one.weight for one in extract_text(text).relations}

    once = "Ann Marlow of Acme Inc. went to Porto."
    # The pair at the ends is too far apart to count once.
    assert weights(once) == {("Ann Marlow", "Acme Inc."): 1.0, ("Acme Inc.", "Porto"): 0.7}
    assert weights(f"{once} {once}") == {
        ("Ann Marlow", "Acme Inc."): 2.0,
        ("Acme Inc.", "Porto"): 1.4,
        ("Ann Marlow", "Porto"): 0.7,
    }


def test_dates_are_related_to_nothing():
    assert pairs("Acme Inc. opened in Porto in 1994.") == {frozenset(("Acme Inc.", "Porto"))}


def test_relations_grow_with_the_text_not_with_its_square():
    short, long = (extract_text("Alpha met Beta, " * count) for count in (50, 500))
    assert len(short.relations) == len(long.relations) == 1
    distinct = extract_text(", ".join(f"Name{'x' * number}" for number in range(300)))
    assert len(distinct.relations) < 300 * 6


def test_every_sentence_keeps_its_place():
    text = "Dr. Vane came at 7 p.m. He left.\n\nAnn stayed"
    assert [text[one[0].start : one[-1].end] for one in sentences(text)] == [
        "Dr. Vane came at 7 p.m. He left.",
        "Ann stayed",
    ]


@pytest.mark.skipif(not bench.CONLL04.exists(), reason="needs the shared corpus")
def test_the_goals_on_conll04():
    entities, related = bench.prose_scores(bench.conll04(bench.CONLL04), bench.extracted)
    assert entities.f1 >= 0.70
    assert related.f1 >= 0.33


MARKDOWN = """# Guide

See [the API](../api.md#calls), <https://example.org/x> and `[no](link.md)`.

## Install

```
# no heading [x](y.md)
```

Ask Ann Marlow. ![picture](a.png) Read [more](more.md "title").

[ref]: https://example.org/y
"""


def test_sections_and_links_of_markdown():
    document = GraphDocument("/docs/guide.md", [GraphChunk(MARKDOWN)])
    extractor = extractor_for("guide.md")
    assert extractor is not None
    (found,) = extractor.extract(document, [0])
    own = Entity("/docs/guide.md", "document")
    guide, install = Entity("/docs/guide.md#Guide", "section"), Entity("/docs/guide.md#Install", "section")
    marked = [one for one in found.relations if one.kind in (CONTAINS, LINKS)]
    assert marked == [
        Relation(own, CONTAINS, guide),
        Relation(guide, LINKS, Entity("/api.md", "document")),
        Relation(guide, LINKS, Entity("https://example.org/x", "url")),
        Relation(guide, CONTAINS, install),
        Relation(install, LINKS, Entity("/docs/more.md", "document")),
        Relation(install, LINKS, Entity("https://example.org/y", "url")),
    ]
    assert found.entities[Entity("Ann Marlow", "name")] == 1
    assert all(one.source in found.entities and one.target in found.entities for one in found.relations)


def test_a_later_chunk_belongs_to_the_headings_above_it():
    chunk = GraphChunk("## Use\n\nSee [a](a.md).", heading_path="Guide > Use")
    extractor = extractor_for("x.md")
    assert extractor is not None
    _, found = extractor.extract(GraphDocument("/x.md", [GraphChunk("# Guide"), chunk]), [0, 1])
    assert [(one.source.name, one.kind, one.target.name) for one in found.relations] == [
        ("/x.md#Guide", CONTAINS, "/x.md#Use"),
        ("/x.md#Use", LINKS, "/a.md"),
    ]


def test_extractors_by_type_of_file():
    chosen = {
        name: extractor_for(name) for name in ("a.txt", "a.md", "a.docx", "a.py", "a.csv", "a.json", "a.pl")
    }
    assert {name: one and one.name for name, one in chosen.items()} == {
        "a.txt": "prose",
        "a.md": "markdown",
        "a.docx": "markdown",
        "a.py": "code",
        "a.csv": None,
        "a.json": None,
        "a.pl": None,
    }
    assert graph_fingerprint("a.csv") == ""
    assert len({graph_fingerprint(name) for name in ("a.txt", "a.md", "a.py")}) == 3
    assert graph_fingerprint("a.md") == graph_fingerprint("b.docx")


@pytest.mark.parametrize(
    ("entity", "identity", "asked"),
    [
        (Entity("Ann  Marlow", "person"), "ann marlow", "ann marlow"),
        (Entity("click.core.Command", "class"), "click.core.Command", "command"),
        (Entity("/docs/Guide.md", "document"), "/docs/Guide.md", "guide.md"),
        (Entity("/docs/Guide.md#First Steps", "section"), "/docs/Guide.md#First Steps", "first steps"),
        (Entity("/src/a.ts", "module"), "/src/a.ts", "a.ts"),
        (Entity("a.b", "module"), "a.b", "b"),
    ],
)
def test_names_that_identify_and_names_that_are_asked_for(entity: Entity, identity: str, asked: str):
    assert (name_key(entity), short_key(entity)) == (identity, asked)
