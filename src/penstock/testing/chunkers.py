"""Contract of a chunker."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.pipeline.chunk.text import Chunk, Chunker, ChunkSizes

_PROSE = "# Mill\n\n" + "\n\n".join(f"Paragraph {number} of the mill. " * 12 for number in range(40)) + "\n"
_SIZES = ChunkSizes(size=400)


def uncovered(text: str, chunks: list[Chunk]) -> str:
    """Characters, other than white space, in no chunk."""
    covered = bytearray(len(text))
    for chunk in chunks:
        covered[chunk.start : chunk.end] = b"\x01" * (chunk.end - chunk.start)
    return "".join(text[place] for place, flag in enumerate(covered) if not flag).strip()


class ChunkerContract:
    """Promises of a chunker. A subclass has the fixture ``chunker``, and may replace ``sample``."""

    @pytest.fixture
    def sample(self) -> str:
        """A text of the kind that the chunker is made for, several chunks long."""
        return _PROSE

    def test_chunks_are_stretches_of_the_text_in_order(self, chunker: Chunker, sample: str) -> None:
        chunks = chunker.chunk(sample, _SIZES)

        assert len(chunks) > 1
        assert [sample[chunk.start : chunk.end] for chunk in chunks] == [chunk.text for chunk in chunks]
        assert sorted(chunk.start for chunk in chunks) == [chunk.start for chunk in chunks]

    def test_nothing_but_white_space_is_left_out(self, chunker: Chunker, sample: str) -> None:
        assert uncovered(sample, chunker.chunk(sample, _SIZES)) == ""

    def test_no_chunk_is_longer_than_allowed(self, chunker: Chunker, sample: str) -> None:
        for sizes in (ChunkSizes(size=256), _SIZES, ChunkSizes(size=400, overlap=100)):
            chunks = chunker.chunk(sample, sizes)
            assert max(len(chunk.text) for chunk in chunks) <= sizes.size + sizes.overlap

    def test_lines_are_those_of_the_text(self, chunker: Chunker, sample: str) -> None:
        for chunk in chunker.chunk(sample, _SIZES):
            assert 1 + sample.count("\n", 0, chunk.start) == chunk.start_line
            assert chunk.start_line <= chunk.end_line <= 1 + sample.count("\n", 0, chunk.end)

    def test_the_same_text_is_cut_alike(self, chunker: Chunker, sample: str) -> None:
        assert chunker.chunk(sample, _SIZES) == chunker.chunk(sample, _SIZES)
        assert chunker.name
        assert chunker.version

    def test_an_edit_moves_only_nearby_cuts(self, chunker: Chunker, sample: str) -> None:
        middle = sample.index("\n", len(sample) // 2)
        edited = sample[:middle] + " An added remark." + sample[middle:]

        before = {chunk.text for chunk in chunker.chunk(sample, _SIZES)}
        after = {chunk.text for chunk in chunker.chunk(edited, _SIZES)}

        assert len(after - before) <= max(4, len(after) // 4)

    # One chunker serves all examples: it is pure.
    @given(text=st.text(max_size=600))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_text_is_cut(self, chunker: Chunker, text: str) -> None:
        chunks = chunker.chunk(text, ChunkSizes(size=64))
        assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
        assert uncovered(text, chunks) == ""
