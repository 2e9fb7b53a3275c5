"""Guarantees of every embedder."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import InvalidSetting
from penstock.pipeline.embed import open_embedder, open_space, space_of, static
from penstock.pipeline.embed.fastembed import FastembedOptions
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.embed.static import HashingEmbedder, WordPieces
from penstock.testing import EmbedderContract
from tests.pipeline.fastembed_model import write_model

PIECES_DIGEST = "74241c80a9f366656535a0353fbe44fe4c479d73c5f2c6ca6d59b6837c4425d3"

LOCAL = ("static", "hashing")
"""Embedders that need nothing but the plain install."""


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=[*LOCAL, "fastembed"], scope="module")
def embedder(request: pytest.FixtureRequest, model_directory: Path) -> Embedder:
    made: Embedder = open_embedder(
        request.param, models_dir=model_directory, fastembed=FastembedOptions(str(model_directory))
    )
    assert request.param == made.name
    return made


class TestEveryEmbedder(EmbedderContract):
    """The embedders that need nothing but the plain install."""


@pytest.mark.parametrize("text", ["—…!?", "..."])
def test_a_text_without_words_is_near_nothing(embedder: Embedder, text: str):
    assert not embedder.embed([text]).any()


def test_a_very_long_text_is_embedded_by_its_beginning(embedder: Embedder):
    text = "mill wheel gate " * 100_000

    long, longer = embedder.embed([text, text + "something else entirely"])

    assert np.array_equal(long, longer)
    assert embedder.embed(["x" * 1_000_000]).any()


def test_fingerprints_tell_spaces_apart(embedder: Embedder):
    others = {open_embedder(name).fingerprint for name in LOCAL}
    assert len(LOCAL) == len(others)
    assert (embedder.name in LOCAL) == (embedder.fingerprint in others)
    assert HashingEmbedder(64).fingerprint != HashingEmbedder(128).fingerprint


def test_each_word_and_each_of_its_trigrams_counts_as_often_as_it_stands_there():
    once, twice, many = HashingEmbedder(4096).embed(["mill", "mill mill", "mill race " * 5])
    parts = [number for number in range(4096) if once[number]]

    assert 5 == len(parts), "mill, <mi, mil, ill, ll>"
    np.testing.assert_allclose(once, twice, rtol=1e-6)
    np.testing.assert_allclose(
        np.abs(once[parts]).max() / np.abs(once[parts]).min(), (1 / 0.3) ** 0.5, rtol=1e-5
    )
    np.testing.assert_allclose(
        many[parts] / np.abs(many[parts]).max(), once[parts] / np.abs(once[parts]).max(), rtol=1e-5
    )


def test_the_static_table_knows_meaning():
    car, vehicle, bread = open_embedder("static").embed(["a car", "automobiles", "bread and butter"])

    assert car @ vehicle > 2 * max(car @ bread, 0.05)


def test_forgetting_words_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    texts = [f"alpha{number} beta{number} gamma" for number in range(50)]
    expected = open_embedder("static").embed(texts)
    monkeypatch.setattr(static, "_MAX_CACHED_WORDS", 7)

    assert np.array_equal(expected, open_embedder("static").embed(texts))


def test_capitals_camel_case_and_stop_words_make_no_difference():
    plain, loud, named, question = open_embedder("static").embed(
        ["parse http header", "PARSE HTTP HEADER", "parseHTTPHeader", "How do I parse the http header?"]
    )

    for other in (loud, named, question):
        assert plain @ other > 0.999


def test_missing_weights_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(static, "_OWN", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(InvalidSetting) as refusal:
        static.find_table_files.__wrapped__()

    assert "pip install --no-deps wordllama" in refusal.value.remedy


def test_the_pieces_of_words_are_those_of_the_tokenizers_library():
    """The digest is of that library's answers; most of these words are of no language."""
    source = random.Random(20)
    ranges = [
        (48, 57),
        (65, 90),
        (97, 122),
        (0xC0, 0x17F),
        (0x391, 0x44F),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0x10000, 0x1F9FF),
    ]
    words = ["", "mill", "Mühle", "l" * 64, "aaaaaaaaab", "ſ", "Ⅷ", "𝔪𝔦𝔩𝔩", "0123456789"]
    for _ in range(5_000):
        scripts = [source.choice(ranges), source.choice(ranges)]
        length = source.randint(1, 20)
        words.append("".join(chr(source.randint(*source.choice(scripts))) for _ in range(length)))
    pieces = WordPieces(static.find_table_files().pieces)

    answers = repr([pieces.split(word) for word in words if word])

    assert PIECES_DIGEST == hashlib.sha256(answers.encode()).hexdigest()


def test_every_piece_of_the_table_is_what_its_characters_are_joined_to():
    file = static.find_table_files().pieces
    pieces = WordPieces(file)
    numbers = json.loads(file.read_bytes())["model"]["vocab"]
    words = {piece[1:]: [number] for piece, number in numbers.items() if piece[0] == "▁" and piece[1:]}

    assert len(words) > 10_000
    assert words == {word: pieces.split(word) for word in words}
    assert words == {word: pieces.joined(word) for word in words}


def test_the_fingerprint_of_the_table_stays():
    """Vectors of existing catalogs compare with new ones only while this value is the same."""
    assert "static-256-bde25934" == space_of(open_embedder("static"))
    files = static.find_table_files()
    found = {"weights.safetensors": files.weights_sha256, "pieces.json": files.pieces_sha256}
    assert static.SHA256 == found
    assert static.SHA256 == {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in zip(found, (files.weights, files.pieces), strict=True)
    }


def test_an_unknown_embedder_is_refused():
    with pytest.raises(InvalidSetting, match="static, minilm, fastembed, endpoint, hashing"):
        open_embedder("gpt")


def test_too_few_places_are_refused():
    with pytest.raises(ValueError):
        HashingEmbedder(4)


def test_the_package_of_the_weights_is_never_run():
    program = (
        "import sys; from penstock.pipeline.embed import open_embedder; open_embedder().embed(['x']);"
        "print(sorted({'wordllama', 'requests', 'pydantic', 'huggingface_hub'} & sys.modules.keys()))"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == answer.stdout.strip()


@pytest.mark.parametrize("name", LOCAL)
def test_an_embedder_is_opened_by_the_name_of_its_space(name: str):
    space = space_of(open_embedder(name))
    opened = open_space(space)

    assert opened is not None
    assert space == space_of(opened)


@pytest.mark.parametrize(
    "space", ["static-256-00000000", "acme-8-12345678", "hashing-x-1", "hashing-4-1", ""]
)
def test_a_space_of_other_weights_or_of_nobody_here_is_not_opened(space: str):
    assert open_space(space) is None
