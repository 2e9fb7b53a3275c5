"""Source code in the languages of the extra ``grammars``: whole definitions with their names, or lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.pipeline.chunk import languages
from penstock.pipeline.chunk.languages import GRAMMARS, MAX_MORE_PARSED, MORE_GRAMMARS
from penstock.pipeline.chunk.text import Chunk, ChunkSizes
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.extract.protocol import Shape
from penstock.pipeline.pipeline import Pipeline
from tests.pipeline.code_samples import SAMPLES


def cut(text: str, language: str, size: int = 2048) -> list[Chunk]:
    return chunk_page(text, Shape.CODE, language, ChunkSizes(size))


def test_about_25_languages_have_a_grammar():
    assert SAMPLES.keys() == MORE_GRAMMARS.keys()
    assert len(GRAMMARS) >= 25


@pytest.mark.parametrize("language", SAMPLES)
@pytest.mark.parametrize("size", [2048, 128])
def test_names_are_qualified_and_in_order(language: str, size: int):
    expected, text = SAMPLES[language]

    chunks = cut(text, language, size)

    assert expected.split() == list(dict.fromkeys(name for chunk in chunks for name in chunk.symbols))


@pytest.mark.parametrize(
    ("language", "function"),
    [
        ("ruby", "def f{n}(water)\n  {body}\nend\n"),
        ("php", "<?php\nfunction f{n}($water) {{\n  {body}\n}}\n"),
        ("shell", "f{n}() {{\n  {body}\n}}\n"),
        ("kotlin", "fun f{n}(water: Int) {{\n  {body}\n}}\n"),
        ("dart", "int f{n}(int water) {{\n  {body}\n}}\n"),
        ("lua", "function f{n}(water)\n  {body}\nend\n"),
        ("elixir", "def f{n}(water) do\n  {body}\nend\n"),
        ("haskell", "f{n} :: Int -> Int\nf{n} 0 = 1\nf{n} water = g water\n"),
    ],
)
def test_functions_stay_whole_while_they_fit(language: str, function: str):
    body = "\n  ".join(["x = water"] * 6) if language != "dart" else "water = 1; " * 6
    functions = [function.format(n=number, body=body) for number in range(30)]

    chunks = cut("\n".join(functions).replace("\n<?php\n", "\n"), language, 400)

    for number, one in enumerate(functions):
        whole = one.removeprefix("<?php\n").strip()
        assert [True] == [f"f{number}" in chunk.symbols for chunk in chunks if whole in chunk.text]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Whether a grammar is installed is looked up again, here and after the test."""
    yield
    languages.grammar_installed.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_without_the_extra_code_is_cut_by_lines(monkeypatch: pytest.MonkeyPatch):
    _, text = SAMPLES["ruby"]
    with_grammar = Pipeline(HashingEmbedder()).fingerprints("a.rb", ChunkSizes())
    python = Pipeline(HashingEmbedder()).fingerprints("a.py", ChunkSizes())
    languages.grammar_installed.cache_clear()
    monkeypatch.setattr(languages, "find_spec", lambda _: None)

    chunks = cut(text, "ruby")

    assert [(text.strip(), ())] == [(chunk.text, chunk.symbols) for chunk in chunks]
    # Once the extra is installed, files in the language are read again; others are not.
    assert with_grammar != Pipeline(HashingEmbedder()).fingerprints("a.rb", ChunkSizes())
    assert python == Pipeline(HashingEmbedder()).fingerprints("a.py", ChunkSizes())


def test_long_files_are_cut_by_lines():
    assert not any(chunk.symbols for chunk in cut("f() {\n  x\n}\n" * (MAX_MORE_PARSED // 10), "shell"))
