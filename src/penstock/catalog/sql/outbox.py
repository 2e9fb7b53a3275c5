"""The outbox: parts of invisible generations, removed in batches. An interrupted batch does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from penstock.catalog.sql import graph_rows
from penstock.catalog.sql.chunks import forget_words
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.read_records import LEFTOVER_CHUNK, LeftoverChunk
from penstock.catalog.sql.removals import forget_source
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import OutboxEntryKind
from penstock.clock import format_time


def clear(rows: Statements, entry_ids: Sequence[int], limit: int, now: datetime) -> bool:
    """Clear entries; returns whether nothing of them is left."""
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
        graph_rows.remove(rows, tenant_id, texts)
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
