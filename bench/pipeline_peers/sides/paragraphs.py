"""A splitter as one writes it by hand: paragraphs are joined up to the size of a chunk."""

from __future__ import annotations

from bench.pipeline_peers.embedding import CHUNK_CHARACTERS


def split(text: str) -> list[str]:
    chunks: list[str] = []
    held = ""
    for paragraph in text.split("\n\n"):
        for at in range(0, len(paragraph), CHUNK_CHARACTERS):
            piece = paragraph[at : at + CHUNK_CHARACTERS]
            if held and len(held) + len(piece) + 2 > CHUNK_CHARACTERS:
                chunks.append(held)
                held = piece
            else:
                held = f"{held}\n\n{piece}" if held else piece
    return [*chunks, held] if held.strip() else chunks
