"""The phases of a document as data: initial states, counters, claims, settlements and lanes follow."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Annotated, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Phase(enum.StrEnum):
    """The phases of a document, in order. Each phase has a lane of the same name."""

    OCR = "ocr"
    VECTOR = "vector"
    GRAPHRAG = "graphrag"


class Fingerprints(msgspec.Struct, frozen=True):
    """Models and settings of each phase. Equal text: nothing to redo.

    A phase after vector without a fingerprint is not wanted.
    """

    ocr: str = ""
    vector: str = ""
    graphrag: str = ""


class Unit(enum.Enum):
    """The part of a document handled by one task."""

    PAGE = "page"
    CHUNK = "chunk"


class PhaseRule(msgspec.Struct, frozen=True):
    """One phase. ``after``: the phase to complete first, for the same chunk or the page.

    ``unwanted``: the reason on pages and documents that do not want the phase. ``batch``: tasks claimed at
    once. ``piece``: fewest tasks of a batch that are run together, since a piece has a fixed cost.
    ``extracts``: a completed task has a number of entities and relationships.
    """

    phase: Phase
    unit: Unit
    after: Phase | None
    unwanted: str
    batch: int
    piece: int
    extracts: bool = False

    @property
    def document_status(self) -> str:
        """Column for the status of the phase in the table of documents."""
        return f"{self.phase}_status" if self.unit is Unit.PAGE else f"{self.phase}_index_status"

    @property
    def statistics(self) -> str:
        """Name of the phase in ``Snapshot.statistics``."""
        return f"{self.phase}_{self.unit.value}s"


PHASES = {
    rule.phase: rule
    for rule in (
        # Pages are not split into pieces: a piece opens their file. See also ``RECOGNITION_BATCH``.
        PhaseRule(Phase.OCR, Unit.PAGE, None, "", batch=32, piece=32),
        PhaseRule(Phase.VECTOR, Unit.CHUNK, Phase.OCR, "no embedder configured", batch=256, piece=8),
        PhaseRule(
            Phase.GRAPHRAG,
            Unit.CHUNK,
            Phase.VECTOR,
            "no extractor configured",
            batch=64,
            piece=8,
            extracts=True,
        ),
    )
}
CHUNK_PHASES = tuple(phase for phase, rule in PHASES.items() if rule.unit is Unit.CHUNK)
LATER_PHASES = tuple(phase for phase in CHUNK_PHASES if phase is not Phase.VECTOR)
"""Chunk phases that publication does not wait for. Each comes after vector, or after another of them."""

EXTRACTING = next(phase for phase, rule in PHASES.items() if rule.extracts)
"""The phase that finds entities and relations."""


def _comes_after(phase: Phase, other: Phase) -> bool:
    before = PHASES[phase].after
    return before is not None and (before is other or _comes_after(before, other))


FOLLOWERS = {
    phase: tuple(later for later in LATER_PHASES if _comes_after(later, phase)) for phase in CHUNK_PHASES
}
"""The phases of a chunk that cannot begin once a phase has failed for good."""

PerPhase: TypeAlias = Annotated[dict[Phase, T], tuple(PHASES)]
PerChunkPhase: TypeAlias = Annotated[dict[Phase, T], CHUNK_PHASES]
PerLaterPhase: TypeAlias = Annotated[dict[Phase, T], LATER_PHASES]
"""Fields with a value for each phase: several columns in a row."""

WantedPhases: TypeAlias = tuple[bool, ...]
"""For each of ``CHUNK_PHASES`` whether a generation wants it."""


@lru_cache(256)
def wanted_phases(fingerprints: Fingerprints, *, vectors: bool) -> WantedPhases:
    """The chunk phases wanted by a generation. Without the phase before, a phase could never begin."""
    wanted = {Phase.OCR: True, Phase.VECTOR: vectors}
    for phase in LATER_PHASES:
        before = PHASES[phase].after
        assert before is not None
        wanted[phase] = wanted[before] and getattr(fingerprints, phase) != ""
    return tuple([wanted[phase] for phase in CHUNK_PHASES])


def gate_failed(phase: Phase) -> str:
    """The reason on parts skipped after a permanent failure in ``phase``."""
    return f"gate: {phase} failed"


_TASKS_PER_TURN = 32
"""Documents of one priority take turns, this many tasks at a time."""


RECOGNITION_BATCH = 1
"""Pages claimed at once to be recognized: a page takes so long that the claim costs nothing in comparison,
and a worker that dies loses only the page in hand."""
RECOGNITIONS_PER_TURN = 4
"""The same for pages whose text must be recognized, each of which takes about a second."""


def turns(
    first: int, given: int, head: int | None, count: int, size: int = _TASKS_PER_TURN
) -> tuple[int, list[int]]:
    """Turns for ``count`` more tasks of a document, and the document's new first turn.

    ``given``: tasks that have theirs. ``size``: tasks of one turn. ``head``: the smallest turn waiting. A
    document whose earlier tasks are long done is moved up to the head: it neither waits for turns that
    passed nor overtakes.
    """
    if head is not None:
        first = max(first, head - given // size)
    return first, [first + (given + i) // size for i in range(count)]
