"""Sources that were made otherwise than they would be now: what is still right of them is not done again."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Fingerprints, NewGeneration
from penstock.catalog.views import KnownSource, Source
from penstock.handlers.child_jobs import child_job
from penstock.handlers.context import MOST_CHILDREN, Context
from penstock.handlers.generation_batch import DraftedGeneration
from penstock.handlers.registry import Wait
from penstock.job import NewJob
from penstock.pipeline.chunk.protocol import CHARS_PER_TOKEN, ChunkSizes, estimated_tokens
from penstock.pipeline.fingerprints import outdated, sizes_of
from penstock.pipeline.pipeline import Pipeline

OUTDATED = "outdated"
"""In the metadata of a job: only what was made otherwise is to be done again, whatever the disk says."""
NOTES = "note:"
"""Paths of notes begin so; no file's path does."""


def from_catalog(
    catalog: Catalog, known: Source, context: Context, wanted: Fingerprints, space: str
) -> DraftedGeneration | None:
    """The published generation once more, its texts as they are, for another space. None: it is no more."""
    with catalog.snapshot() as snapshot:
        source = snapshot.get(known.source_id)
        if source is None or source.read_at is None or source.published_id != known.published_id:
            return None
        pages = snapshot.content(source.published_id or 0)
    generation = NewGeneration(
        place=source.place,
        path=source.path,
        content_hash=source.content_hash,
        asked_at=context.asked_at,
        # It is as old as what was read then: a later reading goes before it.
        read_at=source.read_at,
        pages=pages,
        space=space,
        fingerprints=wanted,
        size=source.size,
        mtime_ns=source.mtime_ns,
        file_type=source.file_type,
        title=source.title,
        tags=source.tags,
        metadata=source.metadata,
        job_id=context.job_id,
        priority=context.claim.priority,
        max_retries=context.claim.max_retries,
    )
    tokens = sum(estimated_tokens(chunk.text) for page in pages for chunk in page.chunks or ())
    return DraftedGeneration(generation=generation, tokens=tokens, known_id=source.source_id)


def why_outdated(known: KnownSource, recipe: Pipeline) -> str | None:
    """``reading`` or ``model``: what of it would be done otherwise now; None: nothing. How it is cut was its
    request's to say, and stays."""
    made = Fingerprints(known.ocr_fingerprint, known.vector_fingerprint, known.graphrag_fingerprint)
    name = "note.md" if known.path.startswith(NOTES) else known.path
    return outdated(made, recipe.fingerprints(name, sizes_of(made) or ChunkSizes()))


class Reindex:
    """One job's: a child for every source below a path that is outdated."""

    def __init__(self, catalog: Catalog, recipe: Pipeline, context: Context, path: str) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._context = context
        self._folder = None if path == "/" else path

    def run(self) -> Any:
        sent = looked_at = 0
        children: list[NewJob] = []
        for known in known_below(self._catalog, self._context.place, self._folder):
            looked_at += 1
            if known.published_id is None or why_outdated(known, self._recipe) is None:
                continue
            sent += 1
            children.append(self._child(known))
            if len(children) >= MOST_CHILDREN:
                self._context.expand(children)
                children = []
        if children:
            self._context.expand(children)
        if not sent:
            return {"outcome": "unchanged", "seen": looked_at}
        self._context.progress(looked_at, looked_at, "looked at", seen=looked_at, changed=sent)
        return Wait(progress_json=self._context.told)

    def _child(self, known: KnownSource) -> NewJob:
        if known.path.startswith(NOTES):
            with self._catalog.snapshot() as snapshot:
                op, body = _note(snapshot, known)
            item_type = "content"
        else:
            item_type, op, body = "file", "update", {"file_path": known.path}
        priority = self._context.claim.priority
        body |= _sizes(known)
        return child_job(self._context, clock.new_id(), item_type, op, body, priority=priority)


def _note(snapshot: CatalogSnapshot, known: KnownSource) -> tuple[str, dict[str, Any]]:
    """A note has no file to be read again; its text is kept with it."""
    source, pages = snapshot.get(known.source_id), snapshot.content(known.published_id or 0)
    text = pages[0].text if pages else None
    if text is None:
        text = "\n\n".join(chunk.text for page in pages for chunk in page.chunks or ())
    body: dict[str, Any] = {"content": text, "document_id": known.source_id}
    if source is not None and "source_type" in (said := msgspec.json.decode(source.metadata)):
        body["source_type"] = said["source_type"]
    if source is not None and source.tags:
        body |= {"main_tag": source.tags[0].partition("/")[0], "full_tag": source.tags[0]}
    return "update", body


def _sizes(known: KnownSource) -> dict[str, int]:
    sizes, usual = sizes_of(Fingerprints(ocr=known.ocr_fingerprint)), ChunkSizes()
    if sizes is None or sizes == usual:
        return {}
    return {"chunk_size": sizes.size // CHARS_PER_TOKEN, "chunk_overlap": sizes.overlap // CHARS_PER_TOKEN}
