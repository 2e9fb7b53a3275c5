"""Registration of the document handlers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.catalog.protocol import Catalog
from penstock.handlers.context import BatchHandler, Context, Handler, NotHandledHere, Registry
from penstock.handlers.folders import Folders
from penstock.handlers.reindex import OUTDATED
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.payloads import is_off_disk

if TYPE_CHECKING:
    from penstock.handlers.files import Files
    from penstock.handlers.libraries import LibraryJobs
    from penstock.handlers.moves import Moves
    from penstock.handlers.notes import Notes
    from penstock.handlers.removal import OpenQueue
    from penstock.handlers.source_files import FetchedFiles
    from penstock.pipeline.vectors.protocol import VectorCopies

BATCH = 100
Handlers: TypeAlias = dict[tuple[str, str], tuple[Handler | BatchHandler, int]]
"""Handlers by item type and operation, each with the most jobs of a call; 0: one job."""


def register(
    registry: Registry,
    catalog: Catalog,
    pipeline: Pipeline,
    state_dirs: tuple[str, ...],
    open_copies: Callable[[], VectorCopies] | None = None,
    open_queue: OpenQueue | None = None,
    *,
    checkpoint_interval: int,
    kept_files: SourceFiles = NO_FILES,
) -> None:
    """Register all document handlers.

    ``open_copies`` and ``open_queue``: for deleting the vectors and the jobs of a deleted tenant.
    ``checkpoint_interval``: files that a folder walk compares between two progress reports. ``kept_files``:
    files that go with their documents; without fetched ones, jobs of libraries and web pages are left to
    other workers.
    """
    fetched = kept_files.fetched
    folders = Folders(catalog, pipeline, state_dirs, checkpoint_interval)

    def libraries() -> LibraryJobs:
        # Most processes run no job of a library.
        from penstock.handlers.libraries import LibraryJobs

        if fetched is None:
            raise NotHandledHere("this worker keeps no fetched files")
        return LibraryJobs(catalog, pipeline, fetched, state_dirs, open_queue)

    def ingest_folder(context: Context) -> Any:
        page = is_off_disk(context.payload.get("folder_path", "")) and not context.metadata.get(OUTDATED)
        return libraries().crawl(context) if page else folders.ingest(context)

    moved = partial(_loaded_moves, catalog, open_copies, open_queue, kept_files)
    handlers = _handlers_of_contents(catalog, pipeline, fetched) | _handlers_of_moves(moved)
    handlers["library", "ingest"] = (lambda context: libraries().ingest(context), 0)
    handlers["library", "update"] = (lambda context: libraries().update(context), 0)
    handlers["library", "delete"] = (lambda context: libraries().delete(context), 0)
    for item_type in ("folder", "project"):
        handlers[item_type, "ingest"] = (ingest_folder, 0)
        handlers[item_type, "scan"] = (folders.scan, 0)
        handlers[item_type, "delete"] = (folders.delete, 0)
    for (item_type, op), (handler, batch) in handlers.items():
        # A handler registered by the application takes precedence.
        if registry.find(item_type, op) is None:
            registry.register(item_type, op, handler, batch=batch, own=True)


# Loaded with the first job: a command that finds a folder unchanged needs none of these.


def _handlers_of_contents(catalog: Catalog, pipeline: Pipeline, fetched: FetchedFiles | None) -> Handlers:
    """Handlers of files and notes."""

    @functools.cache
    def files() -> Files:
        from penstock.handlers.files import NO_ORIGINS, Files, origins_with

        return Files(catalog, pipeline, NO_ORIGINS if fetched is None else origins_with(fetched))

    @functools.cache
    def notes() -> Notes:
        from penstock.handlers.notes import Notes

        return Notes(catalog, pipeline)

    return {
        ("file", "ingest"): (lambda contexts: files().ingest(contexts), BATCH),
        ("file", "update"): (lambda contexts: files().ingest(contexts), BATCH),
        ("file", "delete"): (lambda context: files().delete(context), 0),
        ("content", "ingest"): (lambda contexts: notes().ingest(contexts), BATCH),
        ("content", "update"): (lambda context: notes().update(context), 0),
        ("content", "delete"): (lambda context: notes().delete(context), 0),
    }


def _handlers_of_moves(moves: Callable[[], Moves]) -> Handlers:
    """Handlers of renames and removals."""
    return {
        ("rename", "update"): (lambda context: moves().rename(context), 0),
        ("delete_document", "delete"): (lambda context: moves().delete_document(context), 0),
        ("delete_tenant", "delete"): (lambda context: moves().delete_tenant(context), 0),
    }


def _loaded_moves(
    catalog: Catalog,
    open_copies: Callable[[], VectorCopies] | None,
    open_queue: OpenQueue | None,
    kept: SourceFiles,
) -> Moves:
    from penstock.handlers.moves import Moves

    return Moves(catalog, open_copies() if open_copies is not None else None, open_queue, kept)
