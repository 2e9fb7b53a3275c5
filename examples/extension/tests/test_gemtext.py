"""The contracts of Penstock, on every part of this package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from penstock_gemtext.letters import LetterEmbedder
from penstock_gemtext.sections import SectionChunker
from penstock_gemtext.vector_files import VectorFiles

from penstock.testing import (
    ChunkerContract,
    EmbedderContract,
    FormatContract,
    FormatSample,
    VectorStoreContract,
)


class TestFormat(FormatContract):
    @pytest.fixture
    def sample(self) -> FormatSample:
        return FormatSample("mill.gmi", b"# The mill\n\n=> gemini://mill.example The wheel\n", "The wheel")


class TestChunker(ChunkerContract):
    @pytest.fixture
    def chunker(self) -> SectionChunker:
        return SectionChunker()


class TestEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> LetterEmbedder:
        return LetterEmbedder()


class TestVectorStore(VectorStoreContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[], VectorFiles]:
        return lambda: VectorFiles(f"vectorfiles+local:{tmp_path}/vectors", 10)
