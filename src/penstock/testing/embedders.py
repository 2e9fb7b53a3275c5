"""Contract of an embedder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.pipeline.embed.protocol import Embedder

TEXTS = (
    "The mill grinds corn.",
    "",
    "wheel " * 400,
    "größer 水車",
    "def parseHTTP(self): ...",
    "3.14 2718",
)


class EmbedderContract:
    """Promises of an embedder. A subclass has the fixture ``embedder``.

    class TestLetters(EmbedderContract):
        @pytest.fixture
        def embedder(self):
            return LetterEmbedder()
    """

    def test_one_row_of_length_one_for_each_text(self, embedder: Embedder) -> None:
        vectors = embedder.embed(TEXTS)

        assert (len(TEXTS), embedder.dimension) == vectors.shape
        assert np.float32 == vectors.dtype
        lengths = np.linalg.norm(vectors, axis=1)
        assert np.allclose([1, 0, 1, 1, 1, 1], lengths, atol=1e-5)

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        assert (0, embedder.dimension) == embedder.embed([]).shape

    def test_alone_or_in_a_batch_a_text_has_the_same_vector(self, embedder: Embedder) -> None:
        batch = embedder.embed(TEXTS * 20)

        for row, text in enumerate(TEXTS):
            assert np.array_equal(batch[row], embedder.embed([text])[0])
        assert np.array_equal(batch[: len(TEXTS)], batch[-len(TEXTS) :])

    @pytest.mark.parametrize("text", ["", " \n\t", "\u200b"])
    def test_a_text_without_content_is_near_nothing(self, embedder: Embedder, text: str) -> None:
        assert not embedder.embed([text]).any()

    def test_a_lone_surrogate_counts_as_a_replacement_character(self, embedder: Embedder) -> None:
        lone, replaced = embedder.embed(["mill \ud800wheel", "mill \ufffdwheel"])

        assert np.array_equal(lone, replaced)

    def test_a_very_long_text_is_embedded(self, embedder: Embedder) -> None:
        assert embedder.embed(["x" * 1_000_000]).any()

    def test_texts_that_share_words_are_nearer(self, embedder: Embedder) -> None:
        mill, same, other = embedder.embed(
            [
                "The mill grinds corn at the river.",
                "corn ground by a river mill",
                "Parliament passed a tax law.",
            ]
        )

        assert mill @ same > mill @ other + 0.1

    # One embedder serves all examples: it has no state that a text changes.
    @given(texts=st.lists(st.text(max_size=80), max_size=5))
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_text_gives_finite_numbers(self, embedder: Embedder, texts: list[str]) -> None:
        assert np.isfinite(embedder.embed(texts)).all()

    def test_threads_may_share_one(self, embedder: Embedder) -> None:
        texts = [f"word{number} mill {number % 7}" for number in range(40)]
        expected = embedder.embed(texts)

        with ThreadPoolExecutor(4) as pool:
            for vectors in pool.map(lambda _: embedder.embed(texts), range(8)):
                assert np.array_equal(expected, vectors)

    def test_the_space_has_a_name(self, embedder: Embedder) -> None:
        assert embedder.name
        assert len(embedder.fingerprint) >= 8
        assert embedder.fingerprint == embedder.fingerprint
