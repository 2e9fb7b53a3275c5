"""Removal of documents in batches, except those requested again since."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime

import msgspec

from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.rules.path_scope import below, covers
from penstock.catalog.values import Place, Removal, Touch, Walk
from penstock.handlers.container_paths import container_of
from penstock.payloads import is_off_disk
from penstock.pipeline.walk.ignore import WalkRules
from penstock.pipeline.walk.walker import SinglePathRules


def remove_all(catalog: Catalog, removal: Removal) -> int:
    """Remove all matching documents; returns the number of sources."""
    return sum(removed_in_batches(catalog, removal))


def removed_in_batches(catalog: Catalog, removal: Removal) -> Iterator[int]:
    """Remove documents batch by batch; yields the number of sources of each batch.

    Walks requested after the delete come first: files on disk that they include count as requested again.
    """
    while True:
        removed = catalog.remove(removal)
        if removed.newer:
            for walk in removed.newer:
                _touch_wanted(catalog, removal, walk)
            removal = msgspec.structs.replace(removal, heard=removal.heard.union(removed.newer))
            continue
        yield removed.sources
        if not removed.more:
            return


def _touch_wanted(catalog: Catalog, removal: Removal, walk: Walk) -> None:
    path_rules = single_path_rules(walk)
    inside = removal.path is not None and below(walk.root, removal.path)
    wanted: list[Touch] = []
    for known in known_below(catalog, walk.place, removal.path if inside else walk.root):
        covered = covers(removal, walk.place, known.path, known.source_id, removal.asked_at)
        if covered and known.published_id is not None and is_wanted(path_rules, walk.root, known.path):
            wanted.append(Touch(known.source_id, known.size, known.mtime_ns, walk.asked_at))
        if len(wanted) >= BATCH:
            catalog.touch(wanted)
            wanted = []
    if wanted:
        catalog.touch(wanted)


def single_path_rules(walk: Walk) -> SinglePathRules:
    return SinglePathRules(walk.root, msgspec.json.decode(walk.rules, type=WalkRules))


def is_wanted(path_rules: SinglePathRules, root: str, path: str) -> bool:
    """Check whether the file exists and would be included by the walk."""
    container = container_of(path)
    if container is not None:
        path = container.path
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode) or not path.startswith(root.rstrip("/") + "/"):
        return False
    return path_rules.skipped(path[len(root.rstrip("/")) + 1 :], found.st_size) is None


def removal_of_one(place: Place, path: str, asked_at: datetime) -> Removal:
    """Removal of a document and its members. If a folder replaced the file, documents in the folder stay."""
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=path,
        # A page has no members: pages with a longer address are pages of their own.
        below=not is_off_disk(path) and not os.path.isdir(path),  # noqa: PTH112 - it never raises
        asked_at=asked_at,
    )
