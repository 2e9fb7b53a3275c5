"""Deletes and renames: visible at once; the outbox removes the rows later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath

from penstock.catalog.rules.path_scope import PARKED, below, covered, moved, span
from penstock.catalog.rules.publication import REMOVED_WHILE_INDEXING
from penstock.catalog.sql import generations, tombstones
from penstock.catalog.sql.generations import record_event
from penstock.catalog.sql.read_records import SOURCE_ROW, SourceRow
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Move, Place, Removal, RemovalResult, Rename, RenameResult
from penstock.clock import format_time
from penstock.errors import InvalidRequest


def remove(rows: Statements, removal: Removal, limit: int, at: str) -> RemovalResult:
    asked_at = format_time(removal.asked_at)
    scope = (removal.tenant_id, removal.collection or "", removal.branch or "")
    path = removal.path or ""
    # For a single path the range of paths below is empty: both ends are equal.
    first, last = span(path) if removal.below else (path + tombstones.ALONE,) * 2
    # Concurrent additions are either waited for here, or find the tombstone.
    rows.hold("tenant", removal.tenant_id)
    tombstones.add(rows, removal, at)
    newer = tombstones.newer_walks(rows, removal)
    if newer:
        return RemovalResult(0, True, newer)
    found = rows.all(
        _statement(removal), *scope, path, first, last, asked_at, limit + 1, removal.source_id or ""
    )
    begun = [building_id for _, _, building_id, _ in found[:limit] if building_id is not None]
    rows.hold("documents", listed(begun))
    for key, published_id, building_id, published_asked_at in found[:limit]:
        if building_id is not None and rows.value("asked_at_of", building_id) <= asked_at:
            generations.drop(rows, building_id, REMOVED_WHILE_INDEXING, at, inform=True)
        if published_id is not None and published_asked_at <= asked_at:
            hide(rows, key, published_id, at)
    if len(found) <= limit and removal.source_id is None:
        rows.send("unnote_below", *scope, path, first, last, asked_at)
        rows.send("unexpect", *scope, path, first, last, asked_at)
        if removal.below:
            rows.send("retract", *scope, path, first, last, asked_at)
    return RemovalResult(min(len(found), limit), len(found) > limit)


def _statement(removal: Removal) -> str:
    if removal.source_id is not None:
        return "doomed_source"
    narrow = removal.collection and removal.branch and removal.path
    return "doomed_by_path" if narrow else "doomed"


def hide(rows: Statements, key: int, published_id: int | None, at: str) -> None:
    """Make a source invisible with one update, independent of the number of chunks."""
    if published_id is not None:
        record_event(rows, key, "removed", at)
    rows.send("hide", rows.numbers("change", 1)[0], at, key)
    if published_id is not None:
        generations.leave(rows, published_id, key, at)


def rename(rows: Statements, change: Rename, limit: int, at: str) -> RenameResult:
    place = change.place
    if change.folder and below(change.old, change.new):
        raise InvalidRequest(f"{change.old[:200]} cannot be moved into itself")
    first, last = span(change.old)
    asked_at = format_time(change.asked_at)
    rows.hold("tenant", place.tenant_id)
    tombstones.add(rows, _left(place, change.old, change.asked_at, below=change.folder), at)
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
    paths = [path for _, path, _, _ in found[:limit]]
    targets = [moved(change.old, change.new, path) for path in paths]
    for name in ("paths", "documents_at"):
        rows.hold(name, place.tenant_id, place.collection, place.branch, listed(paths + targets))
    for (key, path, published_id, building_id), target in zip(found, targets, strict=False):
        replaced += _make_room(rows, place, target, key, at)
        _move(rows, place, key, (path, target), (published_id, building_id), asked_at, at)
    return RenameResult(min(len(found), limit), replaced, len(found) > limit)


def _left(place: Place, path: str, asked_at: datetime, *, below: bool) -> Removal:
    """A delete of the old path: readings from before the rename, still on the way, are refused."""
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=path,
        below=below,
        asked_at=asked_at,
        reason="renamed",
    )


def _move(
    rows: Statements,
    place: Place,
    key: int,
    paths: tuple[str, str],
    generations_of_it: tuple[int | None, int | None],
    asked_at: str,
    at: str,
) -> None:
    old, target = paths
    record_event(rows, key, "renamed", at, note=target)
    rows.send("move_source", target, asked_at, at, key)
    for document_id in generations_of_it:
        if document_id is not None:
            rows.send("move_document", asked_at, PurePosixPath(target).name, document_id)
    rows.send("unnote", place.tenant_id, place.collection, place.branch, target)
    # The reason for a failure goes with the file.
    rows.send("move_note", target, place.tenant_id, place.collection, place.branch, old)


def move(rows: Statements, place: Place, moves: Sequence[Move], asked_at: datetime, at: str) -> list[bool]:
    where = (place.tenant_id, place.collection, place.branch)
    rows.hold("tenant", place.tenant_id)
    paths = listed([path for move in moves for path in (move.old, move.new)])
    there = {source.path: source for source in SOURCE_ROW.decode_all(rows.all("sources_at", *where, paths))}
    rows.hold("documents_at", *where, paths)
    tombs = tombstones.removals(rows, place, [(one.new, one.source_id) for one in moves], asked_at)
    answers = []
    for one in moves:
        found = there.get(one.old)
        movable = (
            found is not None
            and (found.source_id, found.published_id) == (one.source_id, one.published_id)
            and _is_free(there.get(one.new))
            and not covered(tombs, place, one.new, one.source_id, asked_at)
        )
        if found is not None and movable:
            tombstones.add(rows, _left(place, one.old, asked_at, below=False), at)
            if one.new in there:
                _make_room(rows, place, one.new, found.key, at)
            generations_of_it = (found.published_id, found.building_id)
            _move(rows, place, found.key, (one.old, one.new), generations_of_it, format_time(asked_at), at)
            there[one.new] = there.pop(one.old)
        answers.append(movable)
    moved_ones = (one for one, done in zip(moves, answers, strict=True) if done)
    rows.many("touch", [(one.size, one.mtime_ns, one.source_id, None) for one in moved_ones])
    return answers


def _is_free(found: SourceRow | None) -> bool:
    """Check whether a path has no source, or only one about to be swept."""
    return found is None or (found.published_id is None and found.building_id is None)


def _make_room(rows: Statements, place: Place, target: str, key: int, at: str) -> int:
    """Remove the source at the new path; the row gets a parked path until the sweep."""
    found = rows.one("source_at", place.tenant_id, place.collection, place.branch, target)
    if found is None:
        return 0
    other = SOURCE_ROW.decode(found)
    if other.key == key:
        return 0
    if other.building_id is not None:
        generations.drop(rows, other.building_id, "another source has its path now", at, inform=True)
    hide(rows, other.key, other.published_id, at)
    rows.send("set_path", f"{PARKED}{other.key}", other.key)
    if _is_free(other):
        forget_source(rows, other.key, at)
    return 1 if other.published_id is not None else 0


def forget_source(rows: Statements, key: int, at: str) -> bool:
    """Delete the row of a source without parts, and record the removal for vector caches."""
    gone = rows.one("gone_source", key)
    if gone is None:
        return False
    tenant_id, change_seq, family_key = gone
    if change_seq:
        rows.send("add_gone", change_seq, tenant_id, family_key, at)
    rows.send("delete_source", key)
    return True
