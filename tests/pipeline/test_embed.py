"""Guarantees of every embedder."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidSetting
from penstock.pipeline.embed import open_embedder, open_space, static_embedder, table_files
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.pipeline.embed.protocol import Embedder, space_of
from penstock.pipeline.embed.word_pieces import WordPieces

PIECES_DIGEST = "74241c80a9f366656535a0353fbe44fe4c479d73c5f2c6ca6d59b6837c4425d3"

LOCAL = ("static", "hashing")
"""Embedders that need nothing but the plain install."""
TEXTS = [
    "The mill grinds corn.",
    "",
    "wheel " * 400,
    "größer 水車",
    "def parseHTTP(self): ...",
    "3.14 2718",
]


@pytest.fixture(params=LOCAL, scope="module")
def embedder(request: pytest.FixtureRequest) -> Embedder:
    made: Embedder = open_embedder(request.param)
    assert request.param == made.name
    return made


def test_one_row_of_length_one_for_each_text(embedder: Embedder):
    vectors = embedder.embed(TEXTS)

    assert (len(TEXTS), embedder.dimension) == vectors.shape
    assert np.float32 == vectors.dtype
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.allclose([1, 0, 1, 1, 1, 1], lengths, atol=1e-6)


def test_no_texts_give_no_rows(embedder: Embedder):
    assert (0, embedder.dimension) == embedder.embed([]).shape


def test_alone_or_in_a_batch_a_text_has_the_same_vector(embedder: Embedder):
    batch = embedder.embed(TEXTS * 20)

    for row, text in enumerate(TEXTS):
        assert np.array_equal(batch[row], embedder.embed([text])[0])
    assert np.array_equal(batch[: len(TEXTS)], batch[-len(TEXTS) :])


@pytest.mark.parametrize("text", ["", " \n\t", "—…!?", "\u200b"])
def test_a_text_without_words_is_near_nothing(embedder: Embedder, text: str):
    assert not embedder.embed([text]).any()


def test_a_lone_surrogate_counts_as_a_replacement_character(embedder: Embedder):
    lone, replaced = embedder.embed(["mill \ud800wheel", "mill \ufffdwheel"])

    assert np.array_equal(lone, replaced)


def test_a_very_long_text_is_embedded_by_its_beginning(embedder: Embedder):
    text = "mill wheel gate " * 100_000

    long, longer = embedder.embed([text, text + "something else entirely"])

    assert np.array_equal(long, longer)
    assert embedder.embed(["x" * 1_000_000]).any()


def test_texts_that_share_words_are_nearer(embedder: Embedder):
    mill, same, other = embedder.embed(
        ["The mill grinds corn at the river.", "corn ground by a river mill", "Parliament passed a tax law."]
    )

    assert mill @ same > mill @ other + 0.1


@given(st.lists(st.text(max_size=80), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_gives_finite_numbers(texts: list[str]):
    for name in LOCAL:
        assert np.isfinite(open_embedder(name).embed(texts)).all()


def test_fingerprints_tell_spaces_apart(embedder: Embedder):
    assert embedder.fingerprint == open_embedder(embedder.name).fingerprint
    assert len(LOCAL) == len({open_embedder(name).fingerprint for name in LOCAL})
    assert HashingEmbedder(64).fingerprint != HashingEmbedder(128).fingerprint


def test_threads_may_share_one(embedder: Embedder):
    texts = [f"word{number} mill {number % 7}" for number in range(400)]
    expected = embedder.embed(texts)

    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: embedder.embed(texts), range(8)):
            assert np.array_equal(expected, vectors)


def test_the_static_table_knows_meaning():
    car, vehicle, bread = open_embedder("static").embed(["a car", "automobiles", "bread and butter"])

    assert car @ vehicle > 2 * max(car @ bread, 0.05)


def test_forgetting_words_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    texts = [f"alpha{number} beta{number} gamma" for number in range(50)]
    expected = open_embedder("static").embed(texts)
    monkeypatch.setattr(static_embedder, "_MAX_CACHED_WORDS", 7)

    assert np.array_equal(expected, open_embedder("static").embed(texts))


def test_capitals_camel_case_and_stop_words_make_no_difference():
    plain, loud, named, question = open_embedder("static").embed(
        ["parse http header", "PARSE HTTP HEADER", "parseHTTPHeader", "How do I parse the http header?"]
    )

    for other in (loud, named, question):
        assert plain @ other > 0.999


def test_missing_weights_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(table_files, "_OWN", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(InvalidSetting) as refusal:
        table_files.find_table_files.__wrapped__()

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
    pieces = WordPieces(table_files.find_table_files().pieces)

    answers = repr([pieces.split(word) for word in words if word])

    assert PIECES_DIGEST == hashlib.sha256(answers.encode()).hexdigest()


def test_the_fingerprint_of_the_table_stays():
    """Vectors of existing catalogs compare with new ones only while this value is the same."""
    assert "static-256-bde25934" == space_of(open_embedder("static"))
    files = table_files.find_table_files()
    found = {"weights.safetensors": files.weights_sha256, "pieces.json": files.pieces_sha256}
    assert table_files.SHA256 == found
    assert table_files.SHA256 == {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in zip(found, (files.weights, files.pieces), strict=True)
    }


def test_an_unknown_embedder_is_refused():
    with pytest.raises(InvalidSetting, match="static, minilm, endpoint, hashing"):
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
