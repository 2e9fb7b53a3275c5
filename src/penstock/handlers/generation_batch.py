"""Drafts on their way into the catalog: unknown texts are embedded, and generations stored, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.portions import Portions
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Outcome, StoreResult
from penstock.errors import NoText, StoreError
from penstock.handlers.chunk_vectors import MOST_TEXTS, PageOwner, embed
from penstock.handlers.registry import Wait
from penstock.pipeline.pipeline import Pipeline
from penstock.vocabulary import how_many

MOST_DOCUMENTS = 100
MOST_CHARS = 8 << 20
"""Characters of chunks that wait to be written: with more the batch is written early, to bound its memory."""
EMBEDDED = "embedded"


class DraftedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation to store, and what its job tells of it."""

    generation: NewGeneration
    tokens: int
    warnings: tuple[str, ...] = ()
    known_id: str | None = None
    """Of the source, where there is one already."""

    @property
    def owner(self) -> PageOwner:
        return PageOwner(self.generation.place.tenant_id, self.known_id)

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
        """How many texts are; one that brings too many leaves all of them to tasks."""
        texts = self.texts
        return texts if texts <= MOST_TEXTS else 0


class GenerationBatch:
    """Collects what jobs of one call have drafted. What does not fit is added after a ``write``."""

    def __init__(self, catalog: Catalog, recipe: Pipeline) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._waiting: list[DraftedGeneration] = []
        self._embedded: list[tuple[PageOwner, Sequence[NewPage]]] = []
        self._texts = self._chars = 0

    def fits(self, filed: DraftedGeneration) -> bool:
        some = len(self._waiting) < MOST_DOCUMENTS and self._chars < MOST_CHARS
        return some and self._texts + filed.embedded_here <= MOST_TEXTS

    def add(self, filed: DraftedGeneration) -> None:
        self._waiting.append(filed)
        self._chars += filed.chars
        texts = filed.embedded_here
        if texts:
            self._texts += texts
            self._embedded.append((filed.owner, filed.generation.pages))

    def write(self) -> list[Any]:
        """Store everything added since; each one's answer, as a handler gives it."""
        waiting, self._waiting, self._texts, self._chars = self._waiting, [], 0, 0
        wanted, self._embedded = self._embedded, []
        if not waiting:
            return []
        vectors = embed(self._catalog, self._recipe, wanted)
        ready = [
            msgspec.structs.replace(filed.generation, pages=vectors.given_to(filed.generation.pages))
            for filed in waiting
        ]
        return [
            stored if isinstance(stored, Exception) else _answer(filed, stored, vectors.made)
            for filed, stored in zip(waiting, self._store_all(ready), strict=True)
        ]

    def _store_all(self, ready: list[NewGeneration]) -> list[StoreResult | Exception]:
        """In the groups that share a transaction, so that an error costs one group another try."""
        return [stored for group in Portions().groups(ready) for stored in self._store(group)]

    def _store(self, ready: Sequence[NewGeneration]) -> Sequence[StoreResult | Exception]:
        """Together; but what the catalog refuses is nobody else's trouble."""
        try:
            return self._catalog.store(ready)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one of them is at fault: alone, each shows whether it is
            if len(ready) == 1:
                return [error]
        return [stored for one in ready for stored in self._store([one])]


def _answer(filed: DraftedGeneration, stored: StoreResult, embedded: set[str]) -> Any:
    made = len(embedded & {chunk.text_hash for chunk in filed.chunks})
    if stored.outcome is Outcome.BUILDING:
        # Whoever tells the job of its end counts what tasks embedded; this came before them.
        progress = msgspec.json.encode({EMBEDDED: made}).decode() if made else None
        return Wait(waiting_for=str(stored.document_id), progress_json=progress)
    if stored.outcome is Outcome.REMOVED:
        return {"outcome": "removed while indexing"}
    if stored.outcome is Outcome.SUPERSEDED:
        return {"outcome": "superseded"}
    if stored.outcome is Outcome.KEPT_BACK:
        return NoText(f"none of {how_many(len(filed.generation.pages), 'page')} could be read")
    answer = {
        "outcome": "indexed",
        "pages": len(filed.generation.pages),
        "chunks": stored.chunks,
        "kept": stored.kept,
        "embedded": made,
        "tokens": filed.tokens,
    }
    if stored.failed:
        answer |= {"partial": True, "failed": stored.failed}
    if not stored.chunks and not stored.failed:
        answer["note"] = "blank"
    if filed.warnings:
        answer["warnings"] = list(filed.warnings[:10])
    return answer
