"""Deletes and renames: visible at once; the outbox removes the rows later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeVar

from penstock.catalog.rules.paths import PARKED, below, covered, moved, span
from penstock.catalog.rules.publication import COMPLETED, REMOVED_WHILE_INDEXING, WAITING
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql import generations
from penstock.catalog.sql.chunks import forget_words
from penstock.catalog.sql.generations import record_event
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.records import (
    MISCOUNTED_DOCUMENT,
    MISCOUNTED_PAGE,
    MISCOUNTED_SOURCE,
    SOURCE_ROW,
    MiscountedDocument,
    MiscountedPage,
    SourceRow,
)
from penstock.catalog.sql.statements import Row, RowType, Statements, listed
from penstock.catalog.sql.tasks import Rollup
from penstock.catalog.values import Move, Phase, Place, Removal, RemovalResult, Rename, RenameResult
from penstock.clock import format_time
from penstock.errors import InvalidRequest


def remove(rows: Statements, removal: Removal, limit: int, at: str) -> RemovalResult:
    asked_at = format_time(removal.asked_at)
    scope = (removal.tenant_id, removal.collection or "", removal.branch or "")
    path = removal.path or ""
    # For a single path the range of paths below is empty: both ends are equal.
    first, last = span(path) if removal.below else (path + generations.ALONE,) * 2
    # Concurrent additions are either waited for here, or find the tombstone.
    rows.hold("tenant", removal.tenant_id)
    generations.add(rows, removal, at)
    newer = generations.newer_walks(rows, removal)
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
    generations.add(rows, _left(place, change.old, change.asked_at, below=change.folder), at)
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
    tombs = generations.removals(rows, place, [(one.new, one.source_id) for one in moves], asked_at)
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
            generations.add(rows, _left(place, one.old, asked_at, below=False), at)
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


# Repair of damage from outside: missing rows, and rows belonging to nothing.


MOST = 1_000_000_000


def repair(rows: Statements, limit: int, now: datetime) -> int:
    """Repair rows and return their number, at most ``limit`` of a kind."""
    at = format_time(now)
    with rows.whole_tables():
        rows.send("forget_stray_words")
        wordless = rows.all("wordless", limit)
    rows.many("add_keyword", [(number, keyword_text(text)) for number, text in wordless])
    # A text goes with its words: in SQLite forgetting words that are not there would break the index.
    texts = _found(rows, "stray_texts", limit) if len(wordless) < limit else []
    _forget_texts(rows, [number for (number,) in texts], now)
    vectors = _found(rows, "stray_vectors", limit)
    rows.many("delete_vectors", vectors)
    documents = _found(rows, "stray_documents", limit)
    for document_id, source_key in documents:
        generations.leave(rows, document_id, source_key, at)
    sources = [key for (key,) in _found(rows, "idle_sources", limit) if forget_source(rows, key, at)]
    again = _embed_again(rows, limit, at)
    recounted = recount(rows, limit, at)
    strays = _forget_strays(rows, limit)
    return (
        strays + len(texts) + len(vectors) + len(wordless) + len(documents) + len(sources) + again + recounted
    )


def _forget_strays(rows: Statements, limit: int) -> int:
    """Delete parts of the graph without a text."""
    texts = {
        number for name in ("stray_mentions", "stray_relations") for (number,) in _found(rows, name, limit)
    }
    rows.send("delete_relations", listed(texts))
    rows.send("delete_mentions", listed(texts))
    entities = _found(rows, "stray_entities", limit)
    for tenant_id in sorted({tenant_id for _, tenant_id in entities}):
        rows.hold("graph", tenant_id)
    rows.send("delete_idle_entities", listed(number for number, _ in entities))
    return len(texts) + len(entities)


def _found(rows: Statements, name: str, limit: int) -> list[Row]:
    with rows.whole_tables():
        return rows.all(name, limit)


def _forget_texts(rows: Statements, ids: list[int], now: datetime) -> None:
    removals = RemovalRows(rows, now)
    removals.add_texts("", ids)
    removals.flush()
    rows.many("delete_vectors", [(number,) for number in ids])
    forget_words(rows, ids)
    rows.many("delete_content", [(number,) for number in ids])


def _embed_again(rows: Statements, limit: int, at: str) -> int:
    """Queue chunks with a lost vector for embedding; the document stays published."""
    found = _found(rows, "vectorless", limit)
    if not found:
        return 0
    rollup = Rollup(rows, at)
    rollup.load(document_id for _, _, document_id in found)
    for _, page_id, document_id in found:
        rollup.chunk_moved(Phase.VECTOR, page_id, COMPLETED, WAITING)
        rollup.touch(document_id).chunks[Phase.VECTOR] -= 1
    rows.many("restart_chunk_vector", [(at, number) for number, _, _ in found])
    rollup.apply()
    rows.notify()
    return len(found)


def forget(rows: Statements, tenant_id: str, asked_before: str, limit: int) -> bool:
    """Remove the traces of a tenant, a batch at a time; returns whether none is left."""
    removed = [
        rows.run(name, tenant_id, limit) for name in ("forget_cached", "forget_events", "forget_tokens")
    ]
    for name in ("forget_notes", "forget_walks", "forget_arrivals", "forget_tombstones"):
        removed.append(rows.run(name, tenant_id, asked_before, limit))
    rows.send("forget_project_roots", tenant_id)
    rows.send("idle_spaces")
    return max(removed) < limit


def complaints(rows: Statements) -> list[str]:
    """One line for each page, document and source with wrong counters."""
    pages = MISCOUNTED_PAGE.decode_all(rows.all("miscounted_pages", MOST))
    documents = MISCOUNTED_DOCUMENT.decode_all(rows.all("miscounted_documents", MOST))
    sources = MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", MOST))
    return [
        *(f"page {page.page_id} does not stand where its chunks do" for page in pages),
        *(
            f"generation {one.document_id}{f' of {one.path}' if one.path else ''}"
            " does not stand where its pages do"
            for one in documents
        ),
        *(f"source {source.path} has wrong counters of its published parts" for source in sources),
    ]


def recount(rows: Statements, limit: int, at: str) -> int:
    """Pages first, as documents stand where their pages do. How many rows were put right."""
    pages = _held(rows, "miscounted_pages", MISCOUNTED_PAGE, limit)
    rows.many("recount_page", [MISCOUNTED_PAGE.encode(page) for page in pages])
    documents = _held(rows, "miscounted_documents", MISCOUNTED_DOCUMENT, limit)
    rows.many("recount_document", [MISCOUNTED_DOCUMENT.encode(document) for document in documents])
    _go_on(rows, [document.document_id for document in documents if document.state == "building"], at)
    with rows.whole_tables():
        sources = MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", limit))
    rows.many("recount_source", [MISCOUNTED_SOURCE.encode(source) for source in sources])
    return len(pages) + len(documents) + len(sources)


Miscounted = TypeVar("Miscounted", MiscountedPage, MiscountedDocument)


def _held(rows: Statements, name: str, row_type: RowType[Miscounted], limit: int) -> list[Miscounted]:
    """The miscounted rows, counted again once nothing can move their parts."""
    with rows.whole_tables():
        found = row_type.decode_all(rows.all(name, limit))
    if not found:
        return []
    held = {row.document_id for row in found}
    rows.hold("sources_of", listed(held))
    rows.hold("documents", listed(held))
    with rows.whole_tables():
        counted = row_type.decode_all(rows.all(name, limit))
    return [row for row in counted if row.document_id in held]


def _go_on(rows: Statements, building: list[int], at: str) -> None:
    """Publish documents found complete by the recount; no other transaction would."""
    rollup = Rollup(rows, at)
    rollup.load(building)
    for number in building:
        rollup.touch(number)
    if building:
        rollup.apply()
