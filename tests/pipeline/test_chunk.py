"""Guarantees of every chunker, and the places of cuts."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.chunk.text import Chunk, ChunkSizes, estimated_tokens
from penstock.pipeline.draft import chunk_page, chunker
from penstock.pipeline.extract.protocol import Shape
from penstock.pipeline.pipeline import chunk_sizes

WORDS = [a + b + c for a in ("mill", "weir", "gate") for b in ("stone", "race", "") for c in "aeiouxyz"]
MARKDOWN_LINES = st.sampled_from(
    [
        "",
        "# One",
        "## Two",
        "###### Six",
        "Setext",
        "======",
        "---",
        "- item",
        "  continued, with commas. And a sentence! Another?",
        "| a | b |",
        "|---|---|",
        "```python",
        "```",
        "~~~",
        "    indented",
        "> quoted ``` text",
        "a" * 90,
        "word " * 40,
        "日本語の文章。句点で切れる。" * 6,
        "\t",
        "\ud800 lone",
        "é e\u0301 \u200b\u202e",
    ]
)
TEXTS = st.one_of(
    st.lists(MARKDOWN_LINES, max_size=60).map("\n".join),
    st.text(max_size=600),
)
SHAPES = st.sampled_from(
    [(shape, None) for shape in Shape if shape is not Shape.CODE]
    + [(Shape.CODE, language) for language in ("python", "javascript", "cpp", "cobol", None)]
)


def prose(rng: random.Random, paragraphs: int, shortest: int, longest: int) -> list[str]:
    made = []
    for number in range(paragraphs):
        if number % 25 == 0:
            made.append(f"## Section {number} {rng.choice(WORDS)}")
            continue
        text = ""
        length = rng.randint(shortest, longest)
        while len(text) < length:
            text += rng.choice(WORDS) + (". " if rng.random() < 0.1 else " ")
        made.append(text.strip())
    return made


def cut(paragraphs: list[str], size: int = 2048) -> list[Chunk]:
    return chunk_page("\n\n".join(paragraphs), Shape.MARKDOWN, None, ChunkSizes(size))


def covered(text: str, chunks: list[Chunk]) -> str:
    """The text without everything outside the chunks."""
    kept = []
    reached = 0
    for chunk in chunks:
        kept.append(text[max(chunk.start, reached) : chunk.end])
        reached = max(reached, chunk.end)
    return "".join(kept)


@given(TEXTS, SHAPES, st.integers(64, 300), st.integers(0, 32))
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_and_every_offset_is_exact(
    text: str, shape: tuple[Shape, str | None], size: int, overlap: int
):
    chunks = chunk_page(text, *shape, ChunkSizes(size, overlap))

    assert [text[chunk.start : chunk.end] for chunk in chunks] == [chunk.text for chunk in chunks]
    assert "".join(text.split()) == "".join(covered(text, chunks).split())
    assert all(chunk.text.strip() and len(chunk.text) <= size + overlap for chunk in chunks)
    assert [chunk.start_line for chunk in chunks] == [
        1 + text.count("\n", 0, chunk.start) for chunk in chunks
    ]
    assert [chunk.end_line for chunk in chunks] == [1 + text.count("\n", 0, chunk.end) for chunk in chunks]
    assert sorted(chunk.end for chunk in chunks) == [chunk.end for chunk in chunks]


@given(TEXTS, SHAPES)
@settings(max_examples=50, deadline=None)
def test_the_same_text_gives_the_same_chunks(text: str, shape: tuple[Shape, str | None]):
    assert chunk_page(text, *shape) == chunk_page(text, *shape)


@pytest.mark.parametrize(("shortest", "longest", "allowed"), [(200, 900, 3), (20, 120, 6)])
@pytest.mark.parametrize("seed", range(2))
def test_an_edit_of_one_paragraph_moves_few_boundaries(shortest: int, longest: int, allowed: int, seed: int):
    rng = random.Random(seed)
    paragraphs = prose(rng, 2400, shortest, longest)
    before = {chunk.text for chunk in cut(paragraphs)}

    changes = []
    for number in range(30):
        edited = list(paragraphs)
        place = rng.randrange(len(edited))
        if number % 3 == 0:
            words = edited[place].split(" ")
            words[rng.randrange(len(words))] = "changed"
            edited[place] = " ".join(words)
        elif number % 3 == 1:
            edited[place] += " And a sentence more."
        else:
            edited[place] = "Quite another text. " + edited[place][::-1]
        changes.append(len([chunk for chunk in cut(edited) if chunk.text not in before]))

    assert max(changes) <= allowed
    assert sum(changes) / len(changes) < 1.6


@pytest.mark.parametrize("change", ["insert", "delete", "front"])
def test_boundaries_find_each_other_again_after(change: str):
    rng = random.Random(change)
    paragraphs = prose(rng, 1000, 50, 600)
    before = {chunk.text for chunk in cut(paragraphs)}
    for _ in range(20):
        edited = list(paragraphs)
        place = 0 if change == "front" else rng.randrange(len(edited))
        if change == "delete":
            del edited[place]
        else:
            edited.insert(place, rng.choice(WORDS) * 9)

        assert len([chunk for chunk in cut(edited) if chunk.text not in before]) <= 4


def test_one_endless_line_finds_itself_again_too():
    rng = random.Random(7)
    words = [rng.choice(WORDS) + str(rng.randrange(1000)) for _ in range(20_000)]
    before = {chunk.text for chunk in chunk_page(" ".join(words), Shape.PROSE)}
    words[9_000] = "changed"

    after = chunk_page(" ".join(words), Shape.PROSE)

    assert len([chunk for chunk in after if chunk.text not in before]) <= 3


def test_repeated_text_is_cut_into_few_different_chunks():
    chunks = chunk_page("the same line again\n" * 20_000, Shape.ROWS)

    assert len({chunk.text for chunk in chunks}) <= 5


def test_chunks_are_neither_slivers_nor_too_full():
    lengths = [len(chunk.text) for chunk in cut(prose(random.Random(1), 2000, 50, 700))]

    assert max(lengths) <= 2048
    assert 900 < sum(lengths) / len(lengths) < 1500
    assert len([length for length in lengths if length < 300]) < len(lengths) / 50


def test_a_heading_stays_with_what_follows():
    text = "\n\n".join(f"## Part {n}\n\n" + " ".join(WORDS) * 4 for n in range(30))

    chunks = chunk_page(text, Shape.MARKDOWN, None, ChunkSizes(1200))

    assert [] == [chunk.text for chunk in chunks if re.search(r"(^|\n)## Part \d+$", chunk.text)]


def test_heading_path_of_a_chunk_is_that_of_its_start():
    body = " ".join(WORDS * 8)
    text = f"# Mill\n\n{body}\n\n## Wheel\n\n{body}\n\n### Shaft ###\n\n{body}\n\nGate\n----\n\n{body}\n"

    paths = [chunk.headings for chunk in chunk_page(text, Shape.MARKDOWN, None, ChunkSizes(600))]

    expected = [("Mill",), ("Mill", "Wheel"), ("Mill", "Wheel", "Shaft"), ("Mill", "Gate")]
    assert expected == list(dict.fromkeys(paths))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape.RST, "Mill\n====\n\nBODY\n\nWheel\n-----\n\nBODY\n\n- not\n\n====\n\nBODY"),
        (Shape.ASCIIDOC, "= Mill\n\nBODY\n\n== Wheel\n\nBODY\n\n==not\n\nBODY"),
        (Shape.ORG, "* Mill\n\nBODY\n\n** Wheel\n\nBODY\n\n*not* bold\n\nBODY"),
    ],
)
def test_headings_of_other_markup(shape: Shape, text: str):
    text = text.replace("BODY", " ".join(WORDS * 4))

    paths = [chunk.headings for chunk in chunk_page(text, shape, None, ChunkSizes(600))]

    assert [("Mill",), ("Mill", "Wheel")] == list(dict.fromkeys(paths))


@pytest.mark.parametrize(
    "block",
    [
        "```python\n" + "value = 1\n\n# not a heading\n" * 20 + "```",
        "~~~~\n" + "```\n\n" * 30 + "~~~~",
        "| name | text |\n|---|---|\n" + "| mill | grinds the corn |\n" * 20,
    ],
)
def test_code_and_tables_stay_whole_while_they_fit(block: str):
    filler = "\n\n".join(prose(random.Random(3), 12, 100, 300)[1:])
    text = f"{filler}\n\n{block}\n\n{filler}"

    chunks = chunk_page(text, Shape.MARKDOWN, None, ChunkSizes(1000))

    assert 1 == len([chunk for chunk in chunks if block.strip() in chunk.text])
    assert {()} == {chunk.headings for chunk in chunks}


def test_rows_are_cut_between_lines_only():
    text = "".join(f"{n};{'x' * (n % 90)};end\n" for n in range(800))

    for chunk in chunk_page(text, Shape.ROWS, None, ChunkSizes(300)):
        assert all(line.endswith(";end") for line in chunk.text.splitlines())


def test_overlap_repeats_the_words_before():
    text = " ".join(f"w{n}" for n in range(2000))

    chunks = chunk_page(text, Shape.PROSE, None, ChunkSizes(400, 80))

    assert all(0 < before.end - after.start <= 81 for before, after in itertools.pairwise(chunks))
    assert all(re.fullmatch(r"w\d+", chunk.text.split()[0]) for chunk in chunks)


@pytest.mark.parametrize("text", ["", " \n\t\n", "\u2003\n"])
def test_white_space_has_no_chunks(text: str):
    assert [] == chunk_page(text, Shape.MARKDOWN)


@pytest.mark.parametrize(("size", "overlap"), [(63, 0), (100, 51), (100, -1)])
def test_sizes_that_make_no_sense_are_refused(size: int, overlap: int):
    with pytest.raises(ValueError):
        ChunkSizes(size, overlap)


def test_sizes_in_tokens():
    assert ChunkSizes() == chunk_sizes(512, 0)
    assert ChunkSizes(400, 40) == chunk_sizes(100, 10)
    assert 3 == estimated_tokens("nine char")


@pytest.mark.parametrize("text", ["x" * 2_000_000, "\n" * 200_000, "lorem ipsum dolor " * 100_000])
def test_hostile_texts_take_linear_time(text: str):
    chunks = chunk_page(text, Shape.MARKDOWN)

    assert all(len(chunk.text) <= 2048 for chunk in chunks)


def test_every_chunker_has_a_name_and_a_version():
    made = [chunker(shape, "python") for shape in Shape]

    assert len(made) == len({chunker.name for chunker in made})
    assert all(chunker.version for chunker in made)
