"""The phases of a document, and what decides whether one has to run again."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping

import msgspec


class Phase(enum.StrEnum):
    """In the order they run: each needs the one before it."""

    OCR = "ocr"
    """Source to Markdown, per page."""
    VECTOR = "vector"
    """Chunk to embedding to vector store."""
    GRAPHRAG = "graphrag"
    """Chunk to entities to graph store."""

    @property
    def later(self) -> tuple[Phase, ...]:
        phases = tuple(Phase)
        return phases[phases.index(self) + 1 :]


class Fingerprints(msgspec.Struct, frozen=True):
    """Per phase: everything that can change its result besides its input.

    Chunking belongs to the ocr phase: chunk rows are written with their page.
    """

    ocr: str
    vector: str
    graphrag: str = ""

    def changed(self, other: Fingerprints) -> tuple[Phase, ...]:
        """What has to run again when this becomes ``other``: the first phase that differs and all later."""
        for phase in Phase:
            if getattr(self, phase) != getattr(other, phase):
                return (phase, *phase.later)
        return ()


def fingerprint(parts: Mapping[str, object]) -> str:
    """16 hex digits of the names and values given, whatever their order."""
    canonical = msgspec.json.encode(dict(sorted(parts.items())))
    return hashlib.sha256(canonical).hexdigest()[:16]
