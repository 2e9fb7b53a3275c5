"""The phases of a document as data. Initial states, counters, claims and settlements follow this table."""

from __future__ import annotations

import enum
from typing import NamedTuple

from penstock.catalog.values import NO_EMBEDDER, NO_EXTRACTOR, Phase


class Unit(enum.Enum):
    """The part of a document handled by one task."""

    PAGE = "page"
    CHUNK = "chunk"


class PhaseRule(NamedTuple):
    """One phase. ``after``: the phase to complete first, for the same chunk or the page.

    ``unwanted``: the reason on pages and documents that do not want the phase. ``document_status``: the
    column of its status in the table of documents. ``statistics``: its name in ``Snapshot.statistics``.
    """

    phase: Phase
    unit: Unit
    after: Phase | None
    unwanted: str
    document_status: str
    statistics: str

    @property
    def gate_failed(self) -> str:
        """The reason on parts skipped after a failure in the phase before."""
        return f"gate: {self.after} failed"


PHASES = {
    rule.phase: rule
    for rule in (
        PhaseRule(Phase.OCR, Unit.PAGE, None, "", "ocr_status", "ocr_pages"),
        PhaseRule(Phase.VECTOR, Unit.CHUNK, Phase.OCR, NO_EMBEDDER, "vector_index_status", "vector_chunks"),
        PhaseRule(
            Phase.GRAPHRAG, Unit.CHUNK, Phase.VECTOR, NO_EXTRACTOR, "graphrag_index_status", "graphrag_chunks"
        ),
    )
}
CHUNK_PHASES = tuple(phase for phase, rule in PHASES.items() if rule.unit is Unit.CHUNK)
GATE_OCR = PHASES[Phase.VECTOR].gate_failed
GATE_VECTOR = PHASES[Phase.GRAPHRAG].gate_failed

TASKS_PER_TURN = 32
"""Documents of one priority take turns, this many tasks at a time."""


def turns(first: int, given: int, head: int | None, count: int) -> tuple[int, list[int]]:
    """Turns for ``count`` more tasks of a document, and the document's new first turn.

    ``given``: tasks that have theirs. ``head``: the smallest turn waiting. A document whose earlier tasks are
    long done is moved up to the head: it neither waits for turns that passed nor overtakes.
    """
    if head is not None:
        first = max(first, head - given // TASKS_PER_TURN)
    return first, [first + (given + i) // TASKS_PER_TURN for i in range(count)]
