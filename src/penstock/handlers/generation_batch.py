"""Batches of drafted documents: new texts are embedded and generations stored together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.portions import Portions
from penstock.catalog.values import (
    Adoption,
    Fingerprints,
    Gate,
    NewChunk,
    NewGeneration,
    NewPage,
    Outcome,
    StoreResult,
)
from penstock.catalog.views import Source
from penstock.errors import NoText, StoreError
from penstock.handlers.chunk_vectors import MAX_TEXTS, PageOwner, embed
from penstock.handlers.context import Context
from penstock.handlers.document_notes import EMBEDDED
from penstock.handlers.registry import Wait
from penstock.pipeline.draft import same_reading
from penstock.pipeline.pipeline import Pipeline
from penstock.vocabulary import how_many

MAX_DOCUMENTS = 100
MAX_CHARS = 8 << 20
"""Characters of waiting chunks above which the batch is written early, to bound its memory."""


class DraftedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation to store, with details for the result of the job."""

    generation: NewGeneration
    tokens: int
    warnings: tuple[str, ...] = ()
    known_id: str | None = None
    """Id of the source, if it exists already."""

    @property
    def owner(self) -> PageOwner:
        return PageOwner(self.generation.place.tenant_id, self.known_id, self.generation.job_id)

    @property
    def chunks(self) -> Iterator[NewChunk]:
        return (chunk for page in self.generation.pages for chunk in page.chunks or ())

    @property
    def texts(self) -> int:
        return sum([len(page.chunks) for page in self.generation.pages if page.chunks])

    @property
    def chars(self) -> int:
        return sum([len(chunk.text) for chunk in self.chunks])

    @property
    def embedded_here(self) -> int:
        """Number of texts to embed in the job; 0 if too many, or held by the document gate: left to tasks."""
        texts = self.texts
        return texts if texts <= MAX_TEXTS and not self._held_by_gate else 0

    @property
    def _held_by_gate(self) -> bool:
        if self.generation.gate is Gate.PAGE:
            return False
        return any(page.chunks is None and page.failure is None for page in self.generation.pages)


class GenerationBatch:
    """Collects the drafts of one call. If ``fits`` is False, call ``write`` before ``add``."""

    def __init__(self, catalog: Catalog, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._waiting: list[DraftedGeneration] = []
        self._embedded: list[tuple[PageOwner, Sequence[NewPage]]] = []
        self._texts = self._chars = 0

    def fits(self, drafted: DraftedGeneration) -> bool:
        some = len(self._waiting) < MAX_DOCUMENTS and self._chars < MAX_CHARS
        return some and self._texts + drafted.embedded_here <= MAX_TEXTS

    def add(self, drafted: DraftedGeneration) -> None:
        self._waiting.append(drafted)
        self._chars += drafted.chars
        texts = drafted.embedded_here
        if texts:
            self._texts += texts
            self._embedded.append((drafted.owner, drafted.generation.pages))

    def write(self) -> list[Any]:
        """Store all added generations; returns the handler's answer for each."""
        waiting, self._waiting, self._texts, self._chars = self._waiting, [], 0, 0
        wanted, self._embedded = self._embedded, []
        if not waiting:
            return []
        vectors = embed(self._catalog, self._pipeline, wanted)
        ready = [
            msgspec.structs.replace(drafted.generation, pages=vectors.add_to(drafted.generation.pages))
            for drafted in waiting
        ]
        return [
            stored if isinstance(stored, Exception) else _result(drafted, stored, vectors.new_hashes)
            for drafted, stored in zip(waiting, self._store_all(ready), strict=True)
        ]

    def _store_all(self, ready: list[NewGeneration]) -> list[StoreResult | Exception]:
        """Store generations in the groups of one transaction each: an error affects one group only."""
        return [stored for group in Portions().groups(ready) for stored in self._store(group)]

    def _store(self, ready: Sequence[NewGeneration]) -> Sequence[StoreResult | Exception]:
        """Store generations together, or one by one if the catalog refuses one of them."""
        try:
            return self._catalog.store(ready)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one generation is at fault: stored alone, each shows whether it is
            if len(ready) == 1:
                return [error]
        return [stored for one in ready for stored in self._store([one])]


def _result(drafted: DraftedGeneration, stored: StoreResult, embedded: set[str]) -> Any:
    embedded_count = len(embedded & {chunk.text_hash for chunk in drafted.chunks})
    if stored.outcome is Outcome.BUILDING:
        # At the end, only texts embedded by tasks are counted; these were embedded before.
        progress = msgspec.json.encode({EMBEDDED: embedded_count}).decode() if embedded_count else None
        return Wait(waiting_for=str(stored.document_id), progress_json=progress)
    if stored.outcome is Outcome.REMOVED:
        return {"outcome": "removed while indexing"}
    if stored.outcome is Outcome.SUPERSEDED:
        return {"outcome": "superseded"}
    if stored.outcome is Outcome.KEPT_BACK:
        return NoText(f"none of {how_many(len(drafted.generation.pages), 'page')} could be read")
    result = {
        "outcome": "indexed",
        "pages": len(drafted.generation.pages),
        "chunks": stored.chunks,
        "kept": stored.kept,
        "embedded": embedded_count,
        "tokens": drafted.tokens,
    }
    if stored.failed:
        result |= {"partial": True, "failed": stored.failed}
    if not stored.chunks and not stored.failed:
        result["note"] = "blank"
    if drafted.warnings:
        result["warnings"] = list(drafted.warnings[:10])
    return result


def stored_since(context: Context, known: Source) -> dict[str, Any]:
    """Chunks of a child's file already stored by an interrupted attempt at the same request."""
    at = known.published_at
    if context.claim.parent_id is None or at is None or at < context.asked_at:
        return {}
    return {"chunks": known.chunk_count}


def adopted(
    catalog: Catalog, context: Context, known: Source, wanted: Fingerprints, content_hash: str
) -> Wait | None:
    """Adopt an unfinished or partial generation of the same content: only missing parts are done."""
    for document_id in filter(None, (known.building_id, known.published_id if known.partial else None)):
        with catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
        if document is None or document.content_hash != content_hash:
            continue
        if not same_reading(wanted, document.fingerprints):
            continue
        adoption = Adoption(
            document_id=document_id,
            asked_at=context.asked_at,
            read_at=clock.now(),
            job_id=context.job_id,
            priority=context.claim.priority,
        )
        if catalog.adopt(adoption):
            return Wait(waiting_for=str(document_id))
    return None
