"""How pages and documents stand when they are first written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.catalog.rules.publication import GenerationFacts
from penstock.catalog.rules.rollup import COMPLETED, FAILED, SKIPPED, WAITING, PartCounts, counted
from penstock.catalog.values import NO_EMBEDDER, NO_EXTRACTOR, NO_TEXT, Failure, FailureKind, NewPage

GATE_OCR = "gate: ocr failed"
GATE_VECTOR = "gate: vector failed"


class WantedPhases(NamedTuple):
    """Which phases a generation is to go through."""

    vector: bool
    graphrag: bool


class InitialPage(NamedTuple):
    """How a page counts in each phase, how its chunks do, and what to say of each phase."""

    ocr: int
    vector: int
    graphrag: int
    vector_chunks: PartCounts = PartCounts()
    graphrag_chunks: PartCounts = PartCounts()
    ocr_error: str | None = None
    vector_error: str | None = None
    graphrag_error: str | None = None


class InitialDocument(NamedTuple):
    ocr: PartCounts
    vector: PartCounts
    graphrag: PartCounts
    pages: int
    chunks: int
    vector_chunks: int
    graphrag_chunks: int
    failed: int
    outages: int
    facts: GenerationFacts


def page(
    new: NewPage, wanted: WantedPhases, vector: Sequence[int] = (), graphrag: Sequence[int] = ()
) -> InitialPage:
    """``vector`` and ``graphrag``: how each of its chunks counts."""
    if new.failure is not None:
        return failed_page(new.failure)
    if new.chunks is None:
        return unread_page(wanted)
    return _read_page(counted(vector), counted(graphrag), empty=not new.chunks)


@lru_cache(1024)
def _read_page(vectors: PartCounts, graphs: PartCounts, *, empty: bool) -> InitialPage:
    by_vector, by_graph = vectors.kind, graphs.kind
    return InitialPage(
        ocr=COMPLETED,
        vector=by_vector,
        graphrag=by_graph,
        vector_chunks=vectors,
        graphrag_chunks=graphs,
        vector_error=(NO_TEXT if empty else NO_EMBEDDER) if by_vector == SKIPPED else None,
        graphrag_error=(NO_TEXT if empty else NO_EXTRACTOR) if by_graph == SKIPPED else None,
    )


def whole(standing: InitialPage | InitialDocument) -> bool:
    """Read and embedded to the end, and nothing more wanted: as nearly all are that are written once."""
    if isinstance(standing, InitialPage):
        kinds = (standing.ocr, standing.vector, standing.graphrag)
    else:
        kinds = (standing.ocr.kind, standing.vector.kind, standing.graphrag.kind)
    return kinds == (COMPLETED, COMPLETED, SKIPPED)


@lru_cache(16)
def unread_page(wanted: WantedPhases) -> InitialPage:
    return InitialPage(
        ocr=WAITING,
        vector=WAITING if wanted.vector else SKIPPED,
        graphrag=WAITING if wanted.graphrag else SKIPPED,
        vector_error=None if wanted.vector else NO_EMBEDDER,
        graphrag_error=None if wanted.graphrag else NO_EXTRACTOR,
    )


def failed_page(failure: Failure) -> InitialPage:
    return InitialPage(
        ocr=FAILED,
        vector=SKIPPED,
        graphrag=SKIPPED,
        ocr_error=f"{failure.code}: {failure.message}",
        vector_error=GATE_OCR,
        graphrag_error=GATE_OCR,
    )


def document(pages: list[InitialPage], new: Iterable[NewPage], chunks: int) -> InitialDocument:
    failures = tuple([page.failure for page in new if page.failure is not None])
    # Most documents of a folder stand alike.
    return _document(tuple(pages), failures, chunks)


@lru_cache(1024)
def _document(pages: tuple[InitialPage, ...], failures: tuple[Failure, ...], chunks: int) -> InitialDocument:
    ocr, vector = counted([page.ocr for page in pages]), counted([page.vector for page in pages])
    vector_chunks = sum([page.vector_chunks.completed for page in pages])
    outages = sum(failure.fault is FailureKind.OUTAGE for failure in failures)
    return InitialDocument(
        ocr=ocr,
        vector=vector,
        graphrag=counted([page.graphrag for page in pages]),
        pages=len(pages),
        chunks=chunks,
        vector_chunks=vector_chunks,
        graphrag_chunks=sum([page.graphrag_chunks.completed for page in pages]),
        failed=len(failures),
        outages=outages,
        facts=GenerationFacts(
            ocr=ocr.status,
            vector=vector.status,
            pages=len(pages),
            pages_read=ocr.completed,
            chunks_embedded=vector_chunks,
            outages=outages,
        ),
    )


def why_skipped(counts: PartCounts, chunks: int, unwanted: str) -> str | None:
    """What to say of a document's phase in which nothing was done."""
    if any(counts):
        return None
    return unwanted if chunks else NO_TEXT
