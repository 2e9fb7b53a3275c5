"""Deletes and renames, visible at once; the outbox, which removes the rows later; and repair."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeVar

import msgspec

from penstock.catalog.rules.paths import PARKED, below, covered, moved, span
from penstock.catalog.rules.phases import PerChunkPhase, PerPhase
from penstock.catalog.rules.publication import COMPLETED, REMOVED_WHILE_INDEXING, WAITING
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql import generations, graph
from penstock.catalog.sql.chunks import forget_words
from penstock.catalog.sql.generations import SOURCE_ROW, SourceRow, record_event
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.statements import INDEX_STATUS, Row, RowType, Statements, column, listed
from penstock.catalog.sql.tasks import Rollup
from penstock.catalog.values import (
    Move,
    OutboxEntryKind,
    Phase,
    Place,
    Removal,
    RemovalResult,
    Rename,
    RenameResult,
)
from penstock.clock import format_time
from penstock.errors import InvalidRequest


class LeftoverChunk(msgspec.Struct, frozen=True):
    """A chunk to be removed. ``shared``: another generation of the source or its family has the same text.
    ``claimed``: a task of it is running."""

    chunk_key: int
    content_id: int
    text_hash: str
    shared: int
    claimed: int


class RightCounts(msgspec.Struct, frozen=True):
    """Counters and status of a phase, recomputed from the parts."""

    processing: int
    waiting: int
    failed: int
    completed: int
    status: str


class MiscountedPage(msgspec.Struct, frozen=True):
    """A page with wrong counters, and the right values from the chunks."""

    page_id: int
    document_id: int
    counts: PerChunkPhase[RightCounts]
    chunk_count: int


class MiscountedDocument(msgspec.Struct, frozen=True):
    """A document with wrong counters, and the right values from the pages."""

    document_id: int
    state: str
    path: str | None
    counts: PerPhase[RightCounts]
    page_count: int
    chunk_count: int
    chunks: PerChunkPhase[int]
    failed_count: int


class MiscountedSource(msgspec.Struct, frozen=True):
    """A source with wrong counters, and the right values of the published generation."""

    key: int
    path: str
    page_count: int
    chunk_count: int


_LEFTOVER_CHUNK = RowType(LeftoverChunk)
_MISCOUNTED_PAGE = RowType(MiscountedPage)
_MISCOUNTED_DOCUMENT = RowType(MiscountedDocument, renamed=INDEX_STATUS)
_MISCOUNTED_SOURCE = RowType(MiscountedSource)


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
            _hide(rows, key, published_id, at)
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


def _hide(rows: Statements, key: int, published_id: int | None, at: str) -> None:
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
    _hide(rows, other.key, other.published_id, at)
    rows.send("set_path", f"{PARKED}{other.key}", other.key)
    if _is_free(other):
        _forget_source(rows, other.key, at)
    return 1 if other.published_id is not None else 0


def _forget_source(rows: Statements, key: int, at: str) -> bool:
    """Delete the row of a source without parts, and record the removal for vector caches."""
    gone = rows.one("gone_source", key)
    if gone is None:
        return False
    tenant_id, change_seq, family_key = gone
    if change_seq:
        rows.send("add_gone", change_seq, tenant_id, family_key, at)
    rows.send("delete_source", key)
    return True


def clear(rows: Statements, entry_ids: Sequence[int], limit: int, now: datetime) -> bool:
    """Remove the parts of invisible generations, a batch at a time; returns whether nothing of them is left.

    An interrupted batch does no harm.
    """
    room, at = limit, format_time(now)
    gone: dict[str, list[int]] = {}
    removals = RemovalRows(rows, now)
    # Parts shared by two generations are removed with the later one.
    rows.hold("entries", listed(entry_ids))
    rows.hold("sources_of_entries", listed(entry_ids))
    rows.hold("families_of_entries", listed(entry_ids))
    for entry_id in entry_ids:
        entry = rows.one("entry", entry_id)
        if entry is None:
            continue
        kind, document_id, source_key, space_id = entry
        if kind == OutboxEntryKind.LEFTOVER:
            tenant_id = rows.value("tenant_of", source_key) or ""
            parts = _Parts(rows, tenant_id, at, removals, gone.setdefault(tenant_id, []))
            room -= parts.clear(document_id, source_key, space_id, room)
            if room > 0 and not rows.value("other_leftover", source_key, entry_id):
                # Release the tasks held by these deletes; the entry is deleted after the last one.
                room -= rows.run("release_outbox", source_key, room)
                rows.notify()
            if room <= 0:
                break
        rows.send("delete_entry", entry_id)
        if kind == OutboxEntryKind.LEFTOVER and not rows.value("any_leftover", source_key):
            _forget_source(rows, source_key, at)
    removals.flush()
    for tenant_id, texts in sorted(gone.items()):
        graph.remove(rows, tenant_id, texts)
    return room > 0


class _Parts:
    """The parts of generations of one tenant, removed with all their rows. ``gone`` collects the removed
    texts."""

    def __init__(
        self, rows: Statements, tenant_id: str, at: str, removals: RemovalRows, gone: list[int]
    ) -> None:
        self._rows = rows
        self._tenant_id = tenant_id
        self._at = at
        self._removals = removals
        self._gone = gone

    def clear(self, document_id: int, source_key: int, space_id: int | None, limit: int) -> int:
        """Rows removed; fewer than the limit when the generation is gone."""
        rows = self._rows
        siblings = rows.all("siblings", source_key, document_id)
        others = listed(number for number, _ in siblings)
        parts = _LEFTOVER_CHUNK.decode_all(rows.all("parts", document_id, others, limit))
        orphans = [part for part in parts if not part.shared]
        if space_id is not None:
            self._remember(space_id, orphans)
            if all(space != space_id for _, space in siblings):
                shared = [part.content_id for part in parts if part.shared]
                rows.many("delete_vector", [(number, space_id) for number in shared])
                self._removals.add_vectors(self._tenant_id, space_id, shared)
        self._forget_texts(orphans)
        rows.many("delete_chunk", [(part.chunk_key,) for part in parts])
        removed = len(parts)
        if removed < limit:
            removed += rows.run("delete_pages", document_id, limit - removed)
        if removed < limit:
            rows.send("delete_document", document_id)
        return removed

    def _forget_texts(self, orphans: list[LeftoverChunk]) -> None:
        rows, ids = self._rows, [part.content_id for part in orphans]
        self._gone += ids
        # A running task of such a chunk may still write to an outside store.
        for late in (False, True):
            texts = [part.content_id for part in orphans if bool(part.claimed) is late]
            self._removals.add_texts(self._tenant_id, texts, late=late)
        contents = [(number,) for number in ids]
        rows.many("delete_vectors", contents)
        forget_words(rows, ids)
        rows.many("delete_content", contents)

    def _remember(self, space_id: int, orphans: list[LeftoverChunk]) -> None:
        """Cache the vectors of deleted chunks: a reverted edit or a moved file embeds nothing."""
        hashes = {part.content_id: part.text_hash for part in orphans}
        found = self._rows.all("vectors_of", space_id, listed(hashes))
        kept = {hashes[content_id]: vector for content_id, vector in found}
        cached = [(self._tenant_id, space_id, text, self._at, vector) for text, vector in kept.items()]
        self._rows.many("remember", cached)


def forget_old(rows: Statements, before: str, limit: int) -> int:
    forgotten = rows.run("old_tombstones", before)
    forgotten += rows.run("old_cached", before, limit)
    rows.send("old_events", before, limit)
    rows.send("old_walks", before)
    rows.send("old_arrivals", before)
    rows.send("old_tokens", f"{int(before[:4]) - 1}{before[4:7]}")
    rows.send("idle_spaces")
    last = rows.value("old_gone", before)
    if last is not None:
        forgotten += rows.run("delete_gone", last)
        rows.send("forget_up_to", last)
    return forgotten


_EVERY = 1_000_000_000


def repair(rows: Statements, limit: int, now: datetime) -> int:
    """Repair damage from outside: missing rows, and rows belonging to nothing. Return their number, at most
    ``limit`` of a kind."""
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
    sources = [key for (key,) in _found(rows, "idle_sources", limit) if _forget_source(rows, key, at)]
    again = _embed_again(rows, limit, at)
    recounted = _recount(rows, limit, at)
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


def findings(rows: Statements) -> list[str]:
    """One line for each broken invariant; reads everything."""
    names = [name for name in rows.statements if name.startswith("audit_")]
    with rows.whole_tables():
        found = [text for name in names for text in column(rows.all(name))]
        return found + _miscounted(rows)


def _miscounted(rows: Statements) -> list[str]:
    """One line for each page, document and source with wrong counters."""
    pages = _MISCOUNTED_PAGE.decode_all(rows.all("miscounted_pages", _EVERY))
    documents = _MISCOUNTED_DOCUMENT.decode_all(rows.all("miscounted_documents", _EVERY))
    sources = _MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", _EVERY))
    return [
        *(f"page {page.page_id} does not stand where its chunks do" for page in pages),
        *(
            f"generation {one.document_id}{f' of {one.path}' if one.path else ''}"
            " does not stand where its pages do"
            for one in documents
        ),
        *(f"source {source.path} has wrong counters of its published parts" for source in sources),
    ]


def _recount(rows: Statements, limit: int, at: str) -> int:
    """Pages first, as documents stand where their pages do. How many rows were put right."""
    pages = _held(rows, "miscounted_pages", _MISCOUNTED_PAGE, limit)
    rows.many("recount_page", [_MISCOUNTED_PAGE.encode(page) for page in pages])
    documents = _held(rows, "miscounted_documents", _MISCOUNTED_DOCUMENT, limit)
    rows.many("recount_document", [_MISCOUNTED_DOCUMENT.encode(document) for document in documents])
    _go_on(rows, [document.document_id for document in documents if document.state == "building"], at)
    with rows.whole_tables():
        sources = _MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", limit))
    rows.many("recount_source", [_MISCOUNTED_SOURCE.encode(source) for source in sources])
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
