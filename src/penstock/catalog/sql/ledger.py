"""The ledger of unindexed paths, the vector cache, tokens, fingerprints, imported rows and projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.catalog.parts import ImportedRow, ProjectRoot
from penstock.catalog.sql.records import LEDGER_ROW, LEFTOVER_CHUNK, LedgerRow, LeftoverChunk
from penstock.catalog.sql.statements import Statements, listed, readable
from penstock.catalog.values import LedgerEntry, OutboxEntryKind, Phase, Place, TokenUse, Touch
from penstock.clock import format_time
from penstock.errors import FingerprintMismatch

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog
    from penstock.catalog.sql.outside_stores import RemovalRows


def note(rows: Statements, entries: Sequence[LedgerEntry], at: str) -> None:
    rows.many("note", [LEDGER_ROW.encode(_ledger_row(entry, at)) for entry in entries])


def _ledger_row(entry: LedgerEntry, at: str) -> LedgerRow:
    return LedgerRow(
        place=entry.place,
        path=entry.path,
        kind=entry.kind,
        rule=entry.rule,
        cause=readable(entry.cause),
        remedy=entry.remedy,
        job_id=entry.job_id,
        at=at if entry.at is None else format_time(entry.at),
    )


def touch(rows: Statements, touches: Sequence[Touch]) -> list[bool]:
    rows.many(
        "touch",
        [
            (
                one.size,
                one.mtime_ns,
                one.source_id,
                None if one.asked_at is None else format_time(one.asked_at),
            )
            for one in touches
            if not one.failed
        ],
    )
    for one in touches:
        if one.failed:
            rows.send("touch_failed", one.size, one.mtime_ns, one.source_id)
    live = {source_id for (source_id,) in rows.all("live_sources", listed(one.source_id for one in touches))}
    return [one.source_id in live for one in touches]


def expect(rows: Statements, arrivals: Sequence[tuple[Place, str, str]], at: str) -> None:
    rows.many(
        "expect",
        [
            (place.tenant_id, place.collection, place.branch, path, read_from, at)
            for place, path, read_from in arrivals
        ],
    )


def remember(rows: Statements, tenant_id: str, space: str, vectors: Mapping[str, bytes], at: str) -> None:
    from penstock.catalog.sql.chunks import Spaces

    space_id = Spaces(rows).number(space, vectors.values())
    rows.many("remember", [(tenant_id, space_id, text, at, vector) for text, vector in vectors.items()])


def add_tokens(rows: Statements, uses: Sequence[TokenUse]) -> None:
    values = [(use.tenant_id, use.service, use.month, use.job_id, use.tokens) for use in uses]
    rows.many("add_tokens", values)


def set_fingerprints(rows: Statements, fingerprints: Mapping[Phase, str], *, replace: bool) -> None:
    rows.hold("fingerprints")
    known: dict[str, str] = dict(rows.all("fingerprints"))
    for phase, fingerprint in fingerprints.items():
        if known.get(phase, fingerprint) != fingerprint and not replace:
            raise FingerprintMismatch(f"{phase} is done with {known[phase]} here, not with {fingerprint}")
        rows.send("set_fingerprint", phase, fingerprint)


class CatalogImports:
    """Rows imported from other queues."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def imported(self, kind: str, source: str, name: str, row_ids: Sequence[str]) -> dict[str, ImportedRow]:
        with self._catalog.snapshot() as snapshot:
            found = snapshot.rows.all("imported", kind, source, name, listed(row_ids))
        return {row_id: ImportedRow(name, row_id, outcome, job_id) for row_id, outcome, job_id in found}

    def record_imports(self, kind: str, source: str, rows: Sequence[ImportedRow]) -> None:
        if rows:
            self._catalog.write(
                lambda sent: sent.many("record_import", [(kind, source, *row) for row in rows])
            )


class CatalogProjects:
    """Top folders of projects."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def all(self) -> list[ProjectRoot]:
        with self._catalog.snapshot() as snapshot:
            return [ProjectRoot(*row) for row in snapshot.rows.all("project_roots")]

    def at(self, roots: Sequence[str]) -> list[ProjectRoot]:
        with self._catalog.snapshot() as snapshot:
            return [ProjectRoot(*row) for row in snapshot.rows.all("project_roots_at", listed(roots))]

    def record(self, project: ProjectRoot) -> ProjectRoot:
        def work(rows: Statements) -> ProjectRoot:
            rows.send("add_project_root", *project)
            return ProjectRoot(*rows.all("project_roots_at", listed([project.root]))[0])

        return self._catalog.write(work)

    def move(self, old: str, new: str) -> bool:
        def work(rows: Statements) -> bool:
            rows.send("delete_project_root", new)
            return rows.run("move_project_root", new, old) > 0

        return self._catalog.write(work)


# The outbox: parts of invisible generations, removed in batches. An interrupted batch does no harm.


def clear(rows: Statements, entry_ids: Sequence[int], limit: int, now: datetime) -> bool:
    """Clear entries; returns whether nothing of them is left."""
    # Imported here: every command reads the projects from this module, and few clear anything.
    from penstock.catalog.sql import graph
    from penstock.catalog.sql.outside_stores import RemovalRows
    from penstock.catalog.sql.removals import forget_source

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
            forget_source(rows, source_key, at)
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
        parts = LEFTOVER_CHUNK.decode_all(rows.all("parts", document_id, others, limit))
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
        from penstock.catalog.sql.chunks import forget_words

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
