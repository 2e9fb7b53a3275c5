"""Reindexing of sources after a change of settings or model. Valid parts are reused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock import clock
from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Fingerprints, NewGeneration
from penstock.catalog.views import KnownSource, Source
from penstock.handlers.child_jobs import child_job
from penstock.handlers.context import MAX_CHILDREN, Context, ProgressReport
from penstock.handlers.registry import Wait
from penstock.handlers.walk_counts import WalkCounts
from penstock.items import NOTES, tag_fields
from penstock.job import NewJob
from penstock.pipeline.chunk.text import CHARS_PER_TOKEN, ChunkSizes, estimated_tokens
from penstock.pipeline.draft import keep_reading, outdated, reader_in, sizes_of
from penstock.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from penstock.handlers.generation_batch import DraftedGeneration

OUTDATED = "outdated"
"""Key in a job's metadata: repeat only the outdated work, without comparing files on the disk."""


def from_catalog(
    catalog: Catalog, known: Source, context: Context, wanted: Fingerprints, space: str
) -> DraftedGeneration | None:
    """The published generation again, with the same texts, for another space. None if removed."""
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
        # The time of the original reading, so that a later reading takes precedence.
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
        properties=source.properties,
        job_id=context.job_id,
        priority=context.claim.priority,
        max_retries=context.claim.max_retries,
    )
    tokens = sum(estimated_tokens(chunk.text) for page in pages for chunk in page.chunks or ())
    from penstock.handlers.generation_batch import DraftedGeneration

    return DraftedGeneration(generation=generation, tokens=tokens, known_id=source.source_id)


def why_outdated(known: KnownSource, pipeline: Pipeline) -> str | None:
    """The outdated part of a source: ``reading``, ``model`` or ``graph``; None if the source is current.

    The chunk sizes of its request are kept.
    """
    made = known.fingerprints
    name = "note.md" if known.path.startswith(NOTES) else known.path
    wanted = pipeline.fingerprints(name, sizes_of(made) or ChunkSizes(), reader_in(made.ocr))
    wanted = pipeline.keep_graph(pipeline.of_size(wanted, name, known.size), made, name)
    wanted = keep_reading(wanted, made)
    return outdated(made, wanted)


class Reindex:
    """One reindex job: a child for every outdated source below a path."""

    def __init__(self, catalog: Catalog, pipeline: Pipeline, context: Context, path: str) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._context = context
        self._folder = None if path == "/" else path

    def run(self) -> Any:
        sent = examined = 0
        children: list[NewJob] = []
        for known in known_below(self._catalog, self._context.place, self._folder):
            examined += 1
            if known.published_id is None or why_outdated(known, self._pipeline) is None:
                continue
            sent += 1
            children.append(self._child(known))
            if len(children) >= MAX_CHILDREN:
                self._context.expand(children)
                children = []
        if children:
            self._context.expand(children)
        if not sent:
            return {"outcome": "unchanged", "seen": examined}
        counts = WalkCounts(seen=examined, changed=sent, sent=sent, without_job=examined - sent).as_dict()
        self._context.report(ProgressReport(examined - sent, examined, "indexing", None, counts))
        result = msgspec.json.encode({"outcome": "indexed"} | counts).decode()
        return Wait(progress_json=self._context.last_progress, result_json=result)

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
    """Operation and payload for a note, from the stored text."""
    source, pages = snapshot.get(known.source_id), snapshot.content(known.published_id or 0)
    text = pages[0].text if pages else None
    if text is None:
        text = "\n\n".join(chunk.text for page in pages for chunk in page.chunks or ())
    body: dict[str, Any] = {"content": text, "document_id": known.source_id}
    if source is not None and "source_type" in (metadata := msgspec.json.decode(source.metadata)):
        body["source_type"] = metadata["source_type"]
    if source is not None and source.tags:
        body |= tag_fields(source.tags)
    return "update", body


def _sizes(known: KnownSource) -> dict[str, int]:
    sizes, usual = sizes_of(known.fingerprints), ChunkSizes()
    if sizes is None or sizes == usual:
        return {}
    return {"chunk_size": sizes.size // CHARS_PER_TOKEN, "chunk_overlap": sizes.overlap // CHARS_PER_TOKEN}
