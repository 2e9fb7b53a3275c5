"""Facts about hits: weak ones, copies of one text, words and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.errors import InvalidRequest
from penstock.service.requests import Mode
from tests.documents.conftest import IndexedFolder, book

OTHER = "One wheel among very many words about the river, the gate and the house of the miller."


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[IndexedFolder]:
    """A folder indexed by the model of a plain installation, in SQLite."""
    settings = config.load({}, state_dir=tmp_path / "state", sqlite_synchronous="NORMAL")
    (tmp_path / "files").mkdir()
    with Penstock(settings=settings) as app:
        yield IndexedFolder(app, tmp_path / "files")


def test_hits_of_another_field_are_weak_and_others_are_not(folder: IndexedFolder):
    folder.put("mill.md", "# The mill\n\nWater from the river drives the wheel of the mill.\n")
    folder.put("bread.md", "# Bread\n\nKnead the dough, let it rise and bake it in the oven.\n")
    folder.put("tax.md", "# Taxes\n\nThe form is due in May; interest is charged on late payments.\n")
    folder.index()

    hits = {query: folder.app.search(query) for query in ("mill wheel", "baking bread", "football results")}

    assert {"mill wheel": "mill.md", "baking bread": "bread.md"} == {
        query: Path(found[0].path).name for query, found in hits.items() if not found[0].weak
    }
    assert {True} == {hit.weak for hit in hits["football results"]}
    assert {True} == {hit.weak for hit in hits["mill wheel"][1:]}


def test_words_alone_make_no_hit_weak(folder: IndexedFolder):
    folder.put("mill.md", "Water from the river drives the wheel of the mill.")
    folder.index()

    (hit,) = folder.app.search("football results of the river league", mode="keyword")

    assert (False, ("river",), None, None, 1) == (
        hit.weak,
        hit.words,
        hit.similarity,
        hit.vector_rank,
        hit.keyword_rank,
    )


def test_hits_tell_their_words_similarity_and_ranks(docs: IndexedFolder):
    docs.put("mill.md", "The wheels of the mill turn in the river.")
    docs.put("gate.md", "The gate of the mill is shut.")
    docs.index()

    answer = docs.app._assembly.search.ask("Why do mill wheels turn?")
    best, other = answer.hits

    assert ("mill", "wheels", "turn") == answer.words == best.words
    assert (("mill",), 2, 2) == (other.words, other.keyword_rank, other.vector_rank)
    assert (1, 1) == (best.keyword_rank, best.vector_rank)
    assert (best.similarity or 0) > (other.similarity or 0) > 0


def test_copies_of_a_text_are_one_hit_that_names_the_others(docs: IndexedFolder):
    for name in ("a.md", "b/a.md", "c.txt"):
        docs.put(name, "The licence of the mill.\n")
    docs.put("d.md", "The licence of the gate.\n")
    docs.index()
    docs.index(docs.folder / "b", collection="other")

    hits = docs.app.search("licence mill", mode="keyword")

    assert ["a.md", "d.md"] == sorted(Path(hit.path).name for hit in hits)
    (copied,) = [hit for hit in hits if hit.also_in]
    places = [(copied.path, copied.collection), *((each.path, each.collection) for each in copied.also_in)]
    assert 4 == len(places)
    assert {
        (str(docs.folder / "a.md"), "default"),
        (str(docs.folder / "b/a.md"), "default"),
        (str(docs.folder / "c.txt"), "default"),
        (str(docs.folder / "b/a.md"), "other"),
    } == set(places)
    assert all(each.first_line == 1 and each.source_id and each.chunk_id for each in copied.also_in)


def test_many_copies_do_not_hide_other_texts(folder: IndexedFolder):
    for number in range(120):
        folder.put(f"copy{number}.md", "wheel wheel wheel")
    folder.put(
        "other.md", "One wheel among very many words about the river, the gate and the miller's house."
    )
    folder.index()

    hits = folder.app.search("wheel", mode="keyword", limit=2)

    assert ["wheel wheel wheel", "other.md"] == [hits[0].text, Path(hits[1].path).name]
    assert 119 == len(hits[0].also_in)


def test_a_long_document_does_not_hide_others(folder: IndexedFolder):
    folder.put("long.md", "\n\n".join(f"# Part {n}\n\n" + "wheel " * 150 + f"part{n}" for n in range(120)))
    folder.put(
        "other.md", "One wheel among very many words about the river, the gate and the miller's house."
    )
    folder.index()

    hits = folder.app.search("wheel", mode="keyword", limit=4)

    assert 4 == len(hits)
    assert "other.md" == Path(hits[3].path).name


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_a_quoted_phrase_is_required_in_every_mode(folder: IndexedFolder, mode: Mode):
    folder.put("one.md", "The water wheel of the mill turns.")
    folder.put("two.md", "A wheel and water, but no mill in sight.")
    folder.index()

    hits = folder.app.search('"water wheel" mill', mode=mode)

    assert ["one.md"] == [Path(hit.path).name for hit in hits]


HOSTILE = [
    "mill " * 2_000,
    "m" * 50_000,
    "\0 mill \0",
    "the of and is",
    '"' * 10_000,
    '"mill" ' * 5_000,
    "(a+)+$ [mill] .* \\",
    "NEAR(mill wheel) AND OR NOT col:mill",
    "\U0001f3a1 mill \U0001f600",
    "who calls " * 2_000,
    "a.b::" * 5_000,
    "aB" * 2_000,
    "mill" + "\u0301" * 10_000,
]


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_no_query_is_an_operator_or_too_much(docs: IndexedFolder):
    docs.put("one.md", "The wheel of Ann Marlow's mill. That is of the and.")
    with docs.manual_worker() as worker:
        docs.app.index(docs.folder, graph=True)
        worker.drain()

    for query in HOSTILE:
        for mode in ("hybrid", "keyword", "vector"):
            found = docs.found(query, mode=mode, graph=True)
            assert found in ([], ["one.md"])
            if "mill" in query and mode == "keyword" and "\u0301" not in query:
                assert found, query[:20]


def test_a_query_as_long_as_a_book_is_refused(folder: IndexedFolder):
    with pytest.raises(InvalidRequest, match="100,001 characters"):
        folder.app.search("x" * 100_001)


@pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
def test_every_chunk_of_a_document_is_returned_if_asked_for(docs: IndexedFolder):
    docs.put("book.md", book(59))
    docs.put("other.md", book(20).replace("subject", "matter"))
    docs.index()
    source = docs.app.documents.why(docs.folder / "book.md").source

    hits = docs.app.search("sentence", mode="vector", limit=1_000, per_source=None, path="*/book.md")

    assert source is not None
    assert source.chunk_count == len({hit.chunk_id for hit in hits}) >= 59


def test_a_vector_search_returns_as_many_chunks_as_there_are(folder: IndexedFolder):
    words = (
        "mill",
        "bread",
        "tax",
        "engine",
        "violin",
        "harbour",
        "glacier",
        "contract",
        "protein",
        "tensor",
    )
    text = "\n\n".join(f"# {word}\n\n" + f"The {word} and its {word}s. " * 40 for word in words)
    folder.put("all.md", text)
    folder.index()
    source = folder.app.documents.why(folder.folder / "all.md").source

    hits = folder.app.search("mill wheel", mode="vector", limit=1_000, per_source=None)

    assert source is not None
    assert source.chunk_count == len(hits) >= len(words)
