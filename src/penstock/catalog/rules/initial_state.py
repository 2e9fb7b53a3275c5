"""The state of pages and documents when they are first written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from penstock.catalog.rules.phases import CHUNK_PHASES, PHASES, WantedPhases, gate_failed
from penstock.catalog.rules.publication import GenerationFacts
from penstock.catalog.rules.rollup import COMPLETED, FAILED, SKIPPED, WAITING, PartCounts, counted
from penstock.catalog.values import NO_TEXT, Failure, FailureKind, NewPage, Phase
from penstock.named_tuple import NamedTuple

_NO_CHUNKS = (PartCounts(),) * len(CHUNK_PHASES)
_AT = {phase: at for at, phase in enumerate(PHASES)}
_CHUNK_PHASE_AT = {phase: at for at, phase in enumerate(CHUNK_PHASES)}


class InitialPage(NamedTuple):
    """The state of a new page in each phase, the reasons, and the counts of the chunks."""

    kinds: tuple[int, ...]
    errors: tuple[str | None, ...]
    chunks: tuple[PartCounts, ...] = _NO_CHUNKS

    def kind(self, phase: Phase) -> int:
        return self.kinds[_AT[phase]]

    def error(self, phase: Phase) -> str | None:
        return self.errors[_AT[phase]]

    def counts(self, phase: Phase) -> PartCounts:
        """The counts of the page's chunks in a chunk phase."""
        return self.chunks[_CHUNK_PHASE_AT[phase]]


class InitialDocument(NamedTuple):
    """Page counts of a new document in each phase, and completed chunks in each chunk phase."""

    counts: tuple[PartCounts, ...]
    pages: int
    chunks: int
    completed_chunks: tuple[int, ...]
    failed: int
    outages: int
    facts: GenerationFacts
    error: str | None = None
    """Code and message of the first failure."""


def page(new: NewPage, wanted: WantedPhases, chunks: Sequence[tuple[int, ...]] = ()) -> InitialPage:
    """The state of a new page. ``chunks``: the kind of each chunk in each chunk phase."""
    if new.failure is not None:
        return failed_page(new.failure)
    if new.chunks is None:
        return unread_page(wanted)
    counts = tuple([counted(kinds) for kinds in zip(*chunks, strict=True)]) if chunks else _NO_CHUNKS
    return _read_page(counts, empty=not new.chunks)


@lru_cache(1024)
def _read_page(chunks: tuple[PartCounts, ...], *, empty: bool) -> InitialPage:
    kinds = [counts.kind for counts in chunks]
    reasons = [
        (NO_TEXT if empty else PHASES[phase].unwanted) if kind == SKIPPED else None
        for phase, kind in zip(CHUNK_PHASES, kinds, strict=True)
    ]
    return InitialPage(kinds=(COMPLETED, *kinds), errors=(None, *reasons), chunks=chunks)


def whole(standing: InitialPage | InitialDocument) -> bool:
    """Check whether all is read and embedded and nothing else is wanted, the common case."""
    if isinstance(standing, InitialPage):
        kinds = standing.kinds
    else:
        kinds = tuple([counts.kind for counts in standing.counts])
    first, second, *others = kinds
    return first == second == COMPLETED and all(kind == SKIPPED for kind in others)


@lru_cache(16)
def unread_page(wanted: WantedPhases) -> InitialPage:
    reasons = [
        None if is_wanted else PHASES[phase].unwanted
        for phase, is_wanted in zip(CHUNK_PHASES, wanted, strict=True)
    ]
    kinds = [WAITING if is_wanted else SKIPPED for is_wanted in wanted]
    return InitialPage(kinds=(WAITING, *kinds), errors=(None, *reasons))


def failed_page(failure: Failure) -> InitialPage:
    return skipped_page(gate_failed(Phase.OCR), error_text(failure))


def error_text(failure: Failure) -> str:
    return f"{failure.code}: {failure.message}"


def skipped_page(reason: str | None, ocr_error: str | None = None) -> InitialPage:
    """A page with failed ocr: the chunk phases are skipped, for this reason."""
    count = len(CHUNK_PHASES)
    return InitialPage(kinds=(FAILED, *[SKIPPED] * count), errors=(ocr_error, *[reason] * count))


def document(pages: list[InitialPage], new: Iterable[NewPage], chunks: int) -> InitialDocument:
    failures = tuple([page.failure for page in new if page.failure is not None])
    # Most documents of a folder have the same state.
    return _document(tuple(pages), failures, chunks)


def failed_document(failure: Failure) -> InitialDocument:
    """The state of a document that failed as a whole: no pages, and one failure in ocr."""
    outages = int(failure.fault is FailureKind.OUTAGE)
    ocr = counted([FAILED])
    return InitialDocument(
        counts=(ocr, *_NO_CHUNKS),
        pages=0,
        chunks=0,
        completed_chunks=(0,) * len(CHUNK_PHASES),
        failed=1,
        outages=outages,
        facts=GenerationFacts(ocr.status, PartCounts().status, 0, 0, 0, outages),
        error=error_text(failure),
    )


@lru_cache(1024)
def _document(pages: tuple[InitialPage, ...], failures: tuple[Failure, ...], chunks: int) -> InitialDocument:
    counts = tuple([counted([page.kinds[at] for page in pages]) for at in _AT.values()])
    completed = tuple([sum([page.chunks[at].completed for page in pages]) for at in _CHUNK_PHASE_AT.values()])
    outages = sum(failure.fault is FailureKind.OUTAGE for failure in failures)
    ocr = counts[_AT[Phase.OCR]]
    return InitialDocument(
        counts=counts,
        pages=len(pages),
        chunks=chunks,
        completed_chunks=completed,
        failed=len(failures),
        outages=outages,
        facts=GenerationFacts(
            ocr=ocr.status,
            vector=counts[_AT[Phase.VECTOR]].status,
            pages=len(pages),
            pages_read=ocr.completed,
            chunks_embedded=completed[_CHUNK_PHASE_AT[Phase.VECTOR]],
            outages=outages,
        ),
        error=error_text(failures[0]) if failures else None,
    )


def error_of(phase: Phase, counts: PartCounts, standing: InitialDocument) -> str | None:
    """The error of a document in ocr, or the reason for a chunk phase in which nothing was done."""
    if phase not in _CHUNK_PHASE_AT:
        return standing.error if counts.kind == FAILED else None
    if any(counts):
        return None
    if not standing.pages and standing.error is not None:
        return gate_failed(Phase.OCR)
    return PHASES[phase].unwanted if standing.chunks else NO_TEXT
