"""Reads of a search: published generations only, in one snapshot."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from penstock.catalog import protocol, values
from penstock.catalog.graph import GraphRelation, StoredEntity
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.rules.words import phrases, query_words, quoted_phrases
from penstock.catalog.sql.statements import Row, RowType, Statements, column, listed
from penstock.catalog.values import (
    ChunkView,
    Filters,
    Holding,
    KeywordHit,
    SourceMark,
    Space,
    VectorBatch,
    VectorChanges,
)

_CHUNK_VIEW = RowType(ChunkView)

_VECTORS_AT_ONCE = 4_096
_MENTIONS_AT_ONCE = 5_000
"""Mentions of an entity looked at for those that are more than the end of a relation."""
OVERFETCH = 8
"""Factor for reading more ranks, when too many of the first belong to others or are not published."""
_FEW = 3
"""A filter passes few documents if fewer than one of so many pass."""


class SearchReads:
    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._allowed: dict[Filters, list[int]] = {}

    def _match(self, query: str) -> str:
        """A person's words for the store's keyword index; nothing in them is an operator."""
        return match_expression(query)

    def _all_of(self, terms: Sequence[str]) -> str:
        """Terms, all of which a text must have, for the store's index; empty if no word is in them."""
        return " AND ".join(f'"{term}"' for term in terms)

    def _filters(self, filters: Filters) -> tuple[str | None, ...]:
        if filters.path is not None:
            protocol.check(filters.path)
        return (
            filters.tenant_id,
            filters.collection,
            filters.branch,
            filters.path,
            filters.file_type,
            filters.tag,
            *_folded(filters),
        )

    def _space(self, name: str) -> int | None:
        number: int | None = self._rows.value("space", name)
        return number

    def keyword(
        self,
        query: str,
        filters: Filters,
        *,
        limit: int = 10,
        marks: tuple[str, str] = ("", ""),
        snippets: int | None = None,
    ) -> list[KeywordHit]:
        words = self._match(query)
        if not words or limit < 1:
            return []
        looked_at = limit + limit // 4 + 20
        while True:
            hits, cut = self._ranked(words, filters, limit, looked_at)
            if len(hits) >= limit or not cut:
                break
            looked_at *= OVERFETCH
        hits = hits[:limit]
        shown = column(hits[:snippets])
        texts = self._snippets(words, marks, shown) if shown else {}
        return [KeywordHit(number, -rank, texts.get(number, "")) for number, rank in hits]

    def _ranked(self, words: str, filters: Filters, limit: int, most: int) -> tuple[list[Row], bool]:
        """Published chunks among the first ranks, with their ranks; and whether fewer than ``limit`` of them
        were found although there are further ranks."""
        where, allowed = self._filters(filters), self.matching(filters)
        if allowed is None:
            return self._visible("ranked", limit, most, *where, words, most)
        if _FEW * len(allowed) >= self._rows.value("source_count", filters.tenant_id):
            # Most texts pass: those of the first ranks are checked, as without a filter.
            wider = _FEW * most
            hits, cut = self._visible("ranked", limit, wider, *where, words, wider)
            if not cut:
                return hits, False
        if not allowed:
            return [], False
        return self._visible("ranked_among", limit, most, *where, words, most, listed(allowed))

    def _visible(self, name: str, limit: int, most: int, *values: object) -> tuple[list[Row], bool]:
        """The visible ones of ``most`` ranks, at least ``limit``; and whether they are too few, with further
        ranks left. Whether a rank is visible is looked up as it is read, so not for more than needed."""
        hits: list[Row] = []
        read = 0
        for batch in self._rows.batches(name, limit, *values):
            read += len(batch)
            hits += [(number, rank) for number, rank, visible in batch if visible]
            if len(hits) >= limit:
                return hits, False
        return hits, read == most

    def _snippets(self, words: str, marks: tuple[str, str], ids: list[int]) -> dict[int, str]:
        return dict(self._rows.all("snippets", words, *marks, listed(ids)))

    def snippets(
        self, query: str, content_ids: Sequence[int], marks: tuple[str, str] = ("", "")
    ) -> dict[int, str]:
        words = self._match(query)
        return self._snippets(words, marks, list(content_ids)) if words and content_ids else {}

    def words_in(self, query: str, content_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        asked = query_words(query).items()
        words = [(word, wanted) for word, terms in asked if (wanted := self._all_of(terms))]
        if not words or not content_ids:
            return {}
        listed_terms = listed([wanted for _, wanted in words])
        found: dict[int, list[int]] = {}
        for number, content_id in self._rows.all("words_in", listed_terms, listed(content_ids)):
            found.setdefault(content_id, []).append(number)
        return {
            content_id: tuple(words[number][0] for number in sorted(numbers))
            for content_id, numbers in found.items()
        }

    def holding(self, words: Sequence[str], filters: Filters, *, most: int) -> dict[str, Holding]:
        terms = [(word, term) for word in words if (term := self._all_of([word]))]
        if not terms:
            return {}
        rows = self._rows.all("holding", listed([term for _, term in terms]), most)
        found = {terms[number][0]: msgspec.json.decode(ids, type=list[int]) for number, ids in rows}
        every = listed(sorted({number for ids in found.values() for number in ids}))
        seen = set(column(self._rows.all("visible", *self._filters(filters), every))) if found else set()
        return {
            word: Holding([number for number in ids if number in seen], len(ids) >= most)
            for word, ids in found.items()
        }

    def _narrowed(self, filters: Filters) -> bool:
        """Check whether anything but the tenant is filtered by."""
        return any(value is not None for value in self._filters(filters)[1:])

    def matching(self, filters: Filters) -> list[int] | None:
        if not self._narrowed(filters):
            return None
        if filters not in self._allowed:
            # Asked for by words and by vectors; a snapshot does not change.
            found = column(self._rows.all("matching", *self._filters(filters)))
            self._allowed[filters] = list(dict.fromkeys(found))
        return self._allowed[filters]

    def visible(self, filters: Filters, content_ids: Sequence[int]) -> set[int]:
        return set(column(self._rows.all("visible", *self._filters(filters), listed(content_ids))))

    def spaces(self, tenant_id: str | None) -> list[Space]:
        found = self._rows.all("all_spaces") if tenant_id is None else self._rows.all("spaces", tenant_id)
        return [Space(*row) for row in found]

    def changes(self, tenant_id: str, since: int | None = None) -> VectorChanges:
        sequence: int = self._rows.value("sequence", "change")
        if since == sequence:
            return VectorChanges(sequence, False)
        if since is None or since < self._rows.value("sequence", "forgotten"):
            return VectorChanges(sequence, True)
        changed = self._rows.all("changed_sources", tenant_id, since)
        changed += self._rows.all("gone_sources", tenant_id, since)
        published: dict[int, int] = dict(changed)
        fresh = tuple(key for key, sources in published.items() if sources)
        return VectorChanges(sequence, False, stale=tuple(published), fresh=fresh)

    def witnesses(self, tenant_id: str, until: int, *, limit: int = 32) -> list[SourceMark]:
        return [SourceMark(*row) for row in self._rows.all("witnesses", tenant_id, until, limit)]

    def load(
        self, tenant_id: str, space: str, family_keys: Collection[int] | None = None
    ) -> Iterator[VectorBatch]:
        space_id = self._space(space)
        if space_id is None:
            return
        name: str = "load_vectors"
        values: tuple[Any, ...] = (tenant_id, space_id)
        if family_keys is not None:
            name, values = "load_some_vectors", (*values, listed(family_keys))
        for batch in self._rows.batches(name, _VECTORS_AT_ONCE, *values):
            content_ids, keys, vectors = zip(*batch, strict=True)
            yield VectorBatch(
                array("q", content_ids).tobytes(), array("q", keys).tobytes(), b"".join(vectors)
            )

    def hydrate(self, content_ids: Sequence[int], filters: Filters | None = None) -> list[ChunkView | None]:
        if filters is None:
            found = self._rows.joined("hydrate_columns", "hydrate_all_where", listed(content_ids))
        else:
            where = self._filters(filters)
            found = self._rows.joined("hydrate_columns", "hydrate_where", *where, listed(content_ids))
        # Backwards: the first row of a text remains.
        by_id = {chunk.content_id: chunk for chunk in reversed(_CHUNK_VIEW.decode_all(found))}
        return [by_id.get(number) for number in content_ids]

    def locate(self, source_id: str, chunk_ids: Sequence[str]) -> dict[str, int]:
        return dict(self._rows.all("locate", source_id, listed(chunk_ids)))

    # The graph.

    def has_graph(self, filters: Filters) -> bool:
        return self._rows.one(f"any_extracted_{EXTRACTING}", *self._filters(filters)) is not None

    def entities_called(self, tenant_id: str, names: Sequence[str], *, most: int) -> list[StoredEntity]:
        found = self._rows.all("entities_called", tenant_id, listed(names), most)
        return [StoredEntity(number, kind, "", short, name) for number, name, kind, short in found]

    def entities_by_id(self, entity_ids: Sequence[int]) -> list[StoredEntity]:
        return [StoredEntity(*row) for row in self._rows.all("stored_entities", listed(entity_ids))]

    def entities_in(self, content_ids: Sequence[int]) -> dict[int, list[int]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for content_id, entity_id, occurrences in self._rows.all("text_mentions", listed(content_ids)):
            if occurrences:
                found.setdefault(content_id, []).append((-occurrences, entity_id))
        return {
            content_id: [entity_id for _, entity_id in sorted(rows)] for content_id, rows in found.items()
        }

    def relations_at(self, entity_ids: Sequence[int], *, most: int) -> dict[int, list[GraphRelation]]:
        found = self._rows.all("relations_at", listed(entity_ids), most)
        return {number: [GraphRelation(*row) for row in msgspec.json.decode(rows)] for number, rows in found}

    def chunks_of(self, entity_ids: Sequence[int], *, most: int) -> dict[int, list[int]]:
        found = self._rows.all("chunks_of", listed(entity_ids), most, _MENTIONS_AT_ONCE)
        return {number: msgspec.json.decode(ids, type=list[int]) for number, ids in found}


def _folded(filters: Filters) -> tuple[str | None, ...]:
    """Filters of properties, in the form in which properties are stored for them."""
    author, title, language = filters.author, filters.title, filters.language
    return (
        None if author is None else values.folded(author),
        None if title is None else values.folded(title),
        None if language is None else values.language_key(language),
        filters.created_from,
        filters.created_before,
    )


def match_expression(query: str) -> str:
    """A person's words for FTS5, any of them, with all quoted phrases; nothing in them is an operator."""
    wanted = " OR ".join(f'"{phrase}"' for phrase in phrases(query))
    required = " AND ".join(f'"{phrase}"' for phrase in quoted_phrases(query))
    return f"({required}) AND ({wanted})" if required else wanted
