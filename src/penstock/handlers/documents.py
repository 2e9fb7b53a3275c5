"""The handlers that keep the index equal to its sources, registered."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.handlers.files import Files
from penstock.handlers.folders import Folders
from penstock.handlers.notes import Notes
from penstock.handlers.registry import Registry
from penstock.pipeline.recipe import Recipe

BATCH = 100


def register(registry: Registry, catalog: Catalog, recipe: Recipe, state_dirs: tuple[str, ...]) -> None:
    files, notes = Files(catalog, recipe), Notes(catalog, recipe)
    folders = Folders(catalog, recipe, state_dirs)
    for op in ("ingest", "update"):
        registry.register("file", op, files.ingest, batch=BATCH)
    registry.register("file", "delete", files.delete)
    registry.register("content", "ingest", notes.ingest, batch=BATCH)
    registry.register("content", "update", notes.update)
    registry.register("content", "delete", notes.delete)
    for item_type in ("folder", "project"):
        registry.register(item_type, "ingest", folders.ingest)
        registry.register(item_type, "scan", folders.scan)
        registry.register(item_type, "delete", folders.delete)
