"""Registration of the document handlers."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.handlers.files import Files
from penstock.handlers.folders import Folders
from penstock.handlers.moves import Moves
from penstock.handlers.notes import Notes
from penstock.handlers.registry import BatchHandler, Handler, Registry
from penstock.handlers.source_files import NO_FILES, UnusedFiles
from penstock.handlers.tenant_jobs import OpenQueue
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.vectors.protocol import VectorCopies

BATCH = 100


def register(
    registry: Registry,
    catalog: Catalog,
    pipeline: Pipeline,
    state_dirs: tuple[str, ...],
    vector_copies: VectorCopies | None = None,
    open_queue: OpenQueue | None = None,
    *,
    checkpoint_interval: int,
    kept_files: UnusedFiles = NO_FILES,
) -> None:
    """Register all document handlers.

    ``open_queue``: for deleting the jobs of a deleted tenant. ``checkpoint_interval``: files that a folder
    walk compares between two progress reports. ``kept_files``: files that go with their documents.
    """
    files, notes = Files(catalog, pipeline), Notes(catalog, pipeline)
    folders = Folders(catalog, pipeline, state_dirs, checkpoint_interval)
    handlers: dict[tuple[str, str], tuple[Handler | BatchHandler, int]] = {
        ("file", "ingest"): (files.ingest, BATCH),
        ("file", "update"): (files.ingest, BATCH),
        ("file", "delete"): (files.delete, 0),
        ("content", "ingest"): (notes.ingest, BATCH),
        ("content", "update"): (notes.update, 0),
        ("content", "delete"): (notes.delete, 0),
    }
    moves = Moves(catalog, vector_copies, open_queue, kept_files)
    handlers["rename", "update"] = (moves.rename, 0)
    handlers["delete_document", "delete"] = (moves.delete_document, 0)
    handlers["delete_tenant", "delete"] = (moves.delete_tenant, 0)
    for item_type in ("folder", "project"):
        handlers[item_type, "ingest"] = (folders.ingest, 0)
        handlers[item_type, "scan"] = (folders.scan, 0)
        handlers[item_type, "delete"] = (folders.delete, 0)
    for (item_type, op), (handler, batch) in handlers.items():
        # A handler registered by the application takes precedence.
        if registry.find(item_type, op) is None:
            registry.register(item_type, op, handler, batch=batch)
