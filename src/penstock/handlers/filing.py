"""Drafts on their way into the catalog: unknown texts are embedded, and generations stored, in batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Outcome, Stored
from penstock.errors import NoText, StoreError
from penstock.handlers.registry import Wait
from penstock.pipeline.recipe import Recipe

MOST_TEXTS = 256
"""Texts embedded between two writes: what a crash costs at most. A document with more is built by tasks."""
MOST_DOCUMENTS = 100
EMBEDDED = "embedded"

log = logging.getLogger("penstock.worker")


class Filed(msgspec.Struct, frozen=True, kw_only=True):
    """A generation to store, and what its job tells of it."""

    generation: NewGeneration
    tokens: int
    warnings: tuple[str, ...] = ()
    known_id: str | None = None
    """Of the source, where there is one already."""

    @property
    def chunks(self) -> Iterator[NewChunk]:
        return (chunk for page in self.generation.pages for chunk in page.chunks or ())

    @property
    def texts(self) -> int:
        return sum(len(page.chunks or ()) for page in self.generation.pages)


class Filing:
    """Collects what jobs of one call have drafted. ``add`` answers when it is worth a ``write``."""

    def __init__(self, catalog: Catalog, recipe: Recipe) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._waiting: list[Filed] = []
        self._texts = 0

    def add(self, filed: Filed) -> bool:
        self._waiting.append(filed)
        self._texts += filed.texts
        return self._texts >= MOST_TEXTS or len(self._waiting) >= MOST_DOCUMENTS

    def write(self) -> list[Any]:
        """Store everything added since; each one's answer, as a handler gives it."""
        waiting, self._waiting, self._texts = self._waiting, [], 0
        if not waiting:
            return []
        vectors, embedded = self._vectors([filed for filed in waiting if filed.texts <= MOST_TEXTS])
        ready = [_with_vectors(filed.generation, vectors) for filed in waiting]
        return [
            stored if isinstance(stored, Exception) else _answer(filed, stored, embedded)
            for filed, stored in zip(waiting, self._store(ready), strict=True)
        ]

    def _store(self, ready: list[NewGeneration]) -> Sequence[Stored | Exception]:
        """Together; but what the catalog refuses is nobody else's trouble."""
        try:
            return self._catalog.store(ready)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one of them is at fault: alone, each shows whether it is
            if len(ready) == 1:
                return [error]
        return [stored for one in ready for stored in self._store([one])]

    def _vectors(self, filed: Sequence[Filed]) -> tuple[dict[str, bytes], set[str]]:
        """By text hash, from the catalog where it has them; and which had to be made."""
        texts: dict[tuple[str, str], str] = {}
        found: dict[str, bytes] = {}
        with self._catalog.snapshot() as snapshot:
            for each in filed:
                tenant_id = each.generation.place.tenant_id
                own = {chunk.text_hash: chunk.text for chunk in each.chunks}
                texts |= {(tenant_id, text_hash): text for text_hash, text in own.items()}
                if each.known_id is not None:
                    # What the last generation had; the cache is asked for all together below.
                    found |= snapshot.vectors(
                        tenant_id, self._recipe.space, list(own), source_id=each.known_id
                    )
            for tenant_id in {tenant_id for tenant_id, _ in texts}:
                hashes = [key[1] for key in texts if key[0] == tenant_id and key[1] not in found]
                found |= snapshot.vectors(tenant_id, self._recipe.space, hashes)
        unknown = {text_hash: text for (_, text_hash), text in texts.items() if text_hash not in found}
        made = self._embedded(unknown) if unknown else {}
        return found | made, set(made)

    def _embedded(self, unknown: dict[str, str]) -> dict[str, bytes]:
        try:
            return dict(zip(unknown, self._recipe.embed(list(unknown.values())), strict=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is one text's trouble, or passes
            log.warning("%d texts are left to tasks: %s: %s", len(unknown), type(error).__name__, error)
            return {}


def _with_vectors(generation: NewGeneration, vectors: dict[str, bytes]) -> NewGeneration:
    pages = tuple(_page_with(page, vectors) for page in generation.pages)
    return msgspec.structs.replace(generation, pages=pages)


def _page_with(page: NewPage, vectors: dict[str, bytes]) -> NewPage:
    if not page.chunks:
        return page
    chunks = tuple(_chunk_with(chunk, vectors.get(chunk.text_hash)) for chunk in page.chunks)
    return msgspec.structs.replace(page, chunks=chunks)


def _chunk_with(chunk: NewChunk, vector: bytes | None) -> NewChunk:
    return chunk if vector is None else msgspec.structs.replace(chunk, vector=vector)


def _answer(filed: Filed, stored: Stored, embedded: set[str]) -> Any:
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
        return NoText(f"none of {len(filed.generation.pages):,} pages could be read")
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
