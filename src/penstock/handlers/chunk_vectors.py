"""Vectors for drafted pages: reused from the catalog where possible, embedded otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import NewPage
from penstock.handlers.token_meter import OwnedText, embed_texts
from penstock.named_tuple import NamedTuple
from penstock.pipeline.pipeline import Pipeline
from penstock.vocabulary import how_many

MAX_TEXTS = 256
"""Texts embedded between two writes: the most that a crash costs. Larger documents are built by tasks."""

log = logging.getLogger("penstock.worker")


class PageOwner(NamedTuple):
    """Tenant, source and job of some pages; ``source_id`` is None for a new source."""

    tenant_id: str
    source_id: str | None
    job_id: str | None = None


class EmbeddedTexts(NamedTuple):
    by_hash: dict[str, bytes]
    new_hashes: set[str]
    """Hashes of the texts that were not embedded before."""

    def add_to(self, pages: Iterable[NewPage]) -> tuple[NewPage, ...]:
        return tuple([_page_with(page, self.by_hash) for page in pages])


def embed(
    catalog: Catalog, pipeline: Pipeline, wanted: Sequence[tuple[PageOwner, Sequence[NewPage]]]
) -> EmbeddedTexts:
    if pipeline.vectors_outside:
        # Only tasks write to the outside store, and they embed.
        return EmbeddedTexts({}, set())
    by_tenant: dict[str, dict[str, OwnedText]] = {}
    found: dict[str, bytes] = {}
    with catalog.snapshot() as snapshot:
        for owner, pages in wanted:
            texts = by_tenant.setdefault(owner.tenant_id, {})
            texts_of_owner = [
                (chunk.text_hash, OwnedText(owner.tenant_id, owner.job_id, chunk.text))
                for page in pages
                for chunk in page.chunks or ()
            ]
            texts.update(texts_of_owner)
            if owner.source_id is not None:
                # Vectors of its last generation. The cache is read below, for all owners at once.
                hashes = list(dict(texts_of_owner))
                found |= snapshot.vectors(owner.tenant_id, pipeline.space, hashes, source_id=owner.source_id)
        for tenant_id, texts in by_tenant.items():
            hashes = [text_hash for text_hash in texts if text_hash not in found]
            found |= snapshot.vectors(tenant_id, pipeline.space, hashes)
    unknown = {
        text_hash: text
        for texts in by_tenant.values()
        for text_hash, text in texts.items()
        if text_hash not in found
    }
    embedded = _embed_new(catalog, pipeline, unknown) if unknown else {}
    return EmbeddedTexts(found | embedded, set(embedded))


def _embed_new(catalog: Catalog, pipeline: Pipeline, unknown: dict[str, OwnedText]) -> dict[str, bytes]:
    try:
        return dict(zip(unknown, embed_texts(catalog, pipeline, list(unknown.values())), strict=True))
    except Exception as error:  # noqa: BLE001 - one bad text, or a passing failure: the tasks find out
        log.warning(
            "embedding failed, %s left to tasks: %s: %s",
            how_many(len(unknown), "text is", "texts are"),
            type(error).__name__,
            error,
        )
        return {}


def _page_with(page: NewPage, vectors: dict[str, bytes]) -> NewPage:
    if not page.chunks:
        return page
    chunks = [
        chunk if (vector := vectors.get(chunk.text_hash)) is None else replace(chunk, vector=vector)
        for chunk in page.chunks
    ]
    return replace(page, chunks=tuple(chunks))
