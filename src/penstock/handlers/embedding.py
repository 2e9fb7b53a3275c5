"""Vectors for drafted pages: from the catalog where it has them, made where it has not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import NewChunk, NewPage
from penstock.pipeline.recipe import Recipe

MOST_TEXTS = 256
"""Texts embedded between two writes: what a crash costs at most. A document with more is built by tasks."""

log = logging.getLogger("penstock.worker")


class Owner(NamedTuple):
    """Whose pages they are; ``source_id`` where the catalog knows the source already."""

    tenant_id: str
    source_id: str | None


class Vectors(NamedTuple):
    by_hash: dict[str, bytes]
    made: set[str]
    """Hashes of the texts that nobody had embedded before."""

    def given_to(self, pages: Iterable[NewPage]) -> tuple[NewPage, ...]:
        return tuple(_page_with(page, self.by_hash) for page in pages)


def embed(catalog: Catalog, recipe: Recipe, wanted: Sequence[tuple[Owner, Sequence[NewPage]]]) -> Vectors:
    texts: dict[tuple[str, str], str] = {}
    found: dict[str, bytes] = {}
    with catalog.snapshot() as snapshot:
        for owner, pages in wanted:
            own = {chunk.text_hash: chunk.text for page in pages for chunk in page.chunks or ()}
            texts |= {(owner.tenant_id, text_hash): text for text_hash, text in own.items()}
            if owner.source_id is not None:
                # What its last generation had; the cache is asked for all together below.
                found |= snapshot.vectors(owner.tenant_id, recipe.space, list(own), source_id=owner.source_id)
        for tenant_id in {tenant_id for tenant_id, _ in texts}:
            hashes = [key[1] for key in texts if key[0] == tenant_id and key[1] not in found]
            found |= snapshot.vectors(tenant_id, recipe.space, hashes)
    unknown = {text_hash: text for (_, text_hash), text in texts.items() if text_hash not in found}
    made = _made(recipe, unknown) if unknown else {}
    return Vectors(found | made, set(made))


def _made(recipe: Recipe, unknown: dict[str, str]) -> dict[str, bytes]:
    try:
        return dict(zip(unknown, recipe.embed(list(unknown.values())), strict=True))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is one text's trouble, or passes
        log.warning("%d texts are left to tasks: %s: %s", len(unknown), type(error).__name__, error)
        return {}


def _page_with(page: NewPage, vectors: dict[str, bytes]) -> NewPage:
    if not page.chunks:
        return page
    chunks = tuple(_chunk_with(chunk, vectors.get(chunk.text_hash)) for chunk in page.chunks)
    return msgspec.structs.replace(page, chunks=chunks)


def _chunk_with(chunk: NewChunk, vector: bytes | None) -> NewChunk:
    return chunk if vector is None else msgspec.structs.replace(chunk, vector=vector)
