"""Deletes and renames: what is seen changes at once, rows go later through the outbox."""

from __future__ import annotations

from pathlib import PurePosixPath

from penstock.catalog.covering import below, moved, span
from penstock.catalog.publishing import REMOVED_WHILE_INDEXING
from penstock.catalog.sql import generations, tombstones
from penstock.catalog.sql.statements import Rows, listed
from penstock.catalog.values import Removal, Removed, Rename, Renamed
from penstock.clock import format_time
from penstock.errors import InvalidRequest

PARKED = "\x01"
"""How the path of a source begins whose place was taken, until it is swept. No path asked for does."""


def remove(rows: Rows, removal: Removal, limit: int, at: str) -> Removed:
    asked_at = format_time(removal.asked_at)
    scope = (removal.tenant_id, removal.collection or "", removal.branch or "")
    path = removal.path or ""
    # Nothing lies between the two of a path that means itself alone.
    first, last = span(path) if removal.below else (path + tombstones.ALONE,) * 2
    # What is being added meanwhile is waited for, or finds the tombstone.
    rows.hold("tenant", removal.tenant_id)
    tombstones.add(rows, removal, at)
    found = rows.all(
        _statement(removal), *scope, path, first, last, asked_at, limit + 1, removal.source_id or ""
    )
    rows.hold("documents", listed(row[2] for row in found[:limit] if row[2] is not None))
    for key, published_id, building_id, published_asked_at in found[:limit]:
        if building_id is not None and rows.value("asked_at_of", building_id) <= asked_at:
            generations.drop(rows, building_id, REMOVED_WHILE_INDEXING, at, inform=True)
        if published_id is not None and published_asked_at <= asked_at:
            hide(rows, key, published_id, at)
    if len(found) <= limit and removal.source_id is None:
        rows.send("unnote_below", *scope, path, first, last, asked_at)
    return Removed(min(len(found), limit), len(found) > limit)


def _statement(removal: Removal) -> str:
    if removal.source_id is not None:
        return "doomed_source"
    narrow = removal.collection and removal.branch and removal.path
    return "doomed_by_path" if narrow else "doomed"


def hide(rows: Rows, key: int, published_id: int | None, at: str) -> None:
    """One update makes a source invisible, whatever its size."""
    rows.send("hide", rows.numbers("change", 1)[0], at, key)
    if published_id is not None:
        generations.leave(rows, published_id, key, at)


def rename(rows: Rows, change: Rename, limit: int, at: str) -> Renamed:
    place = change.place
    if change.folder and below(change.old, change.new):
        raise InvalidRequest(f"{change.old[:200]} cannot be moved into itself")
    first, last = span(change.old)
    asked_at = format_time(change.asked_at)
    rows.hold("tenant", place.tenant_id)
    # What was read at the old path before, and is still on its way here, comes too late.
    tombstones.add(rows, _left(change), at)
    found = rows.all(
        "sources_below_shortest" if below(change.new, change.old) else "sources_below",
        place.tenant_id,
        place.collection,
        place.branch,
        change.old,
        first,
        last,
        int(change.folder),
        limit + 1,
        asked_at,
    )
    replaced = 0
    paths = [row[1] for row in found[:limit]]
    targets = [moved(change.old, change.new, path) for path in paths]
    for name in ("paths", "documents_at"):
        rows.hold(name, place.tenant_id, place.collection, place.branch, listed(paths + targets))
    for (key, _, published_id, building_id), target in zip(found, targets, strict=False):
        replaced += _make_room(rows, change, target, key, at)
        rows.send("move_source", target, asked_at, at, key)
        for document_id in (published_id, building_id):
            if document_id is not None:
                rows.send("move_document", asked_at, PurePosixPath(target).name, document_id)
        rows.send("unnote", place.tenant_id, place.collection, place.branch, target)
    return Renamed(min(len(found), limit), replaced, len(found) > limit)


def _left(change: Rename) -> Removal:
    """What the old path is no longer."""
    place = change.place
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=change.old,
        below=change.folder,
        asked_at=change.asked_at,
        reason="renamed",
    )


def _make_room(rows: Rows, change: Rename, target: str, key: int, at: str) -> int:
    """What stood at the new path is removed; its row keeps out of the way until it is swept."""
    place = change.place
    found = rows.one("source_at", place.tenant_id, place.collection, place.branch, target)
    if found is None or found[0] == key:
        return 0
    other, _, published_id, building_id, _ = found
    if building_id is not None:
        generations.drop(rows, building_id, "another source has its path now", at, inform=True)
    hide(rows, other, published_id, at)
    rows.send("set_path", f"{PARKED}{other}", other)
    if published_id is None and building_id is None:
        forget_source(rows, other, at)
    return 1 if published_id is not None else 0


def forget_source(rows: Rows, key: int, at: str) -> bool:
    """The row goes when nothing of the source is left; caches will learn of it."""
    gone = rows.one("gone_source", key)
    if gone is None:
        return False
    tenant_id, change_seq = gone
    if change_seq:
        rows.send("add_gone", change_seq, tenant_id, key, at)
    rows.send("delete_source", key)
    return True
