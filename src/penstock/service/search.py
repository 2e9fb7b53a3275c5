"""Search by keywords, vectors or both, over one snapshot of the published documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, Unpack, get_args

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.rules.query_terms import keyword_text, query_words, quoted_phrases
from penstock.catalog.views import ChunkView, Filters, KeywordHit, Space
from penstock.config import Settings
from penstock.errors import InvalidRequest, JobError
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector
from penstock.service.document_filters import DocumentFilters, catalog_filters
from penstock.service.hits import Hit, RankedText, build_hit, collapse, make_snippet, spread
from penstock.service.rankings import Rankings, SpaceRanking
from penstock.vocabulary import how_many

Mode: TypeAlias = Literal["hybrid", "keyword", "vector"]

MAX_LIMIT = 1_000
DEPTH = 100
"""Minimum number of hits taken from each ranking before fusion."""
MAX_DEPTH = 6_400
WIDER = 8
"""Factor of a second look, for when too many of the first hits were copies of one text or of one document."""
MAX_SNIPPET = 1_000
"""Maximum length of a snippet from the store, which counts words: a word may be a whole line."""
MOST_TENANTS = 1_000
"""Maximum number of tenants in the cache of spaces."""


class SearchRequest(DocumentFilters, total=False):
    """Options of a search: ``limit`` hits, at most ``per_source`` (None: any number) per document."""

    mode: Mode
    limit: int
    per_source: int | None
    marks: tuple[str, str]


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, with notes about vectors that could not be searched.

    ``words``: the words and quoted phrases of the query that were looked for in each hit.
    """

    hits: list[Hit]
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class _Question(NamedTuple):
    query: str
    filters: Filters
    mode: Mode
    limit: int


class Search:
    """Search over a catalog. ``open_space`` returns the embedder of a vector space, None if unknown here."""

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        open_space: Callable[[str], Embedder | None],
        vectors: NearestVectors,
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._open_space = open_space
        self._embedders: dict[str, Embedder | None] = {}
        self._vectors = vectors
        self._known_spaces: dict[str, tuple[int, list[Space]]] = {}

    def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks, best first, at most ``per_source`` (3) per document.

            for hit in app.search("how does the mill take in water", collection="docs"):
                print(hit.path, hit.first_line, hit.snippet)

        Words between double quotes are a phrase that each hit has; nothing else in a query is an operator.
        """
        return self.ask(query, **options).hits

    def ask(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        limit: int = 10,
        per_source: int | None = 3,
        marks: tuple[str, str] = ("", ""),
        **narrowed: Unpack[DocumentFilters],
    ) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones."""
        _check(query, mode, limit, per_source)
        asked = _Question(query, catalog_filters(self._settings.tenant_id, **narrowed), mode, limit)
        with self._catalog.snapshot() as snapshot:
            rankings, chosen = self._choose(snapshot, asked, per_source)
            ids = [candidate.view.content_id for candidate in chosen]
            found = snapshot.words_in(query, ids)
            snippets = snapshot.snippets(query, list(found), marks)
        words = list(query_words(query))
        match = rankings.matches(found, len(words))
        hits = []
        for candidate in chosen:
            view = candidate.view
            snippet = snippets.get(view.content_id, "")
            if not 0 < len(snippet) <= MAX_SNIPPET or keyword_text(view.text) != view.text:
                snippet = make_snippet(view.text, query, marks)
            hits.append(build_hit(candidate, match(view.content_id), snippet))
        return SearchResult(hits=hits, notes=tuple(rankings.notes), words=tuple(words))

    def _choose(
        self, snapshot: CatalogSnapshot, asked: _Question, per_source: int | None
    ) -> tuple[Rankings, list[RankedText]]:
        """Rank deeper until there are enough texts: the first may all be copies, or of one document."""
        depth = max(DEPTH, asked.limit * 4)
        views: dict[int, ChunkView | None] = {}
        while True:
            rankings = self._rank(snapshot, asked, depth)
            ranked = rankings.fused()
            new = [content_id for content_id, _ in ranked if content_id not in views]
            views.update(zip(new, snapshot.hydrate(new), strict=True))
            found = [
                (score, view)
                for content_id, score in ranked
                # A hit has to be a chunk of the tenant, whatever a stale copy of vectors holds.
                if (view := views[content_id]) and view.place.tenant_id == asked.filters.tenant_id
            ]
            chosen = spread(collapse(found), per_source)[: asked.limit]
            if len(chosen) == asked.limit or not rankings.cut or depth >= MAX_DEPTH:
                return rankings, chosen
            depth = min(depth * WIDER, MAX_DEPTH)

    def _rank(self, snapshot: CatalogSnapshot, asked: _Question, depth: int) -> Rankings:
        keyword: list[KeywordHit] = []
        if asked.mode != "vector":
            # Snippets are made of the few chunks that are chosen.
            keyword = snapshot.keyword(asked.query, asked.filters, limit=depth, snippets=0)
        if asked.mode == "keyword":
            return Rankings(depth, keyword, [], [])
        return Rankings(depth, keyword, *self._nearest(snapshot, asked.query, asked.filters, depth))

    def _nearest(
        self, snapshot: CatalogSnapshot, query: str, filters: Filters, depth: int
    ) -> tuple[list[SpaceRanking], list[str]]:
        """Rank the chunks of each vector space separately: scores of two models do not compare.

        During a change of model there are two spaces.
        """
        rankings: list[SpaceRanking] = []
        notes: list[str] = []
        allowed = snapshot.matching(filters)
        for space in self._spaces(snapshot, filters.tenant_id):
            embedder = self._embedder(space.name)
            if embedder is None:
                notes.append(
                    f"{how_many(space.chunks, 'chunk')} searched by words only: the vectors are of "
                    f"{space.name}, which is not available here"
                )
                continue
            try:
                vector = embedder.embed([query])[0]
            except JobError as error:
                unsearched = f"{how_many(space.chunks, 'chunk')} searched by words only"
                notes.append(f"{unsearched}: {error.message}. {error.remedy}")
                continue
            near = self._vectors.nearest(
                snapshot, filters.tenant_id, space.name, vector, limit=depth, allowed=allowed
            )
            rankings.append(SpaceRanking(embedder.name, _with_phrases(snapshot, query, near), depth))
            notice = self._vectors.notice()
            notes += [notice] if notice and notice not in notes else []
        return rankings, notes

    def _spaces(self, snapshot: CatalogSnapshot, tenant_id: str) -> list[Space]:
        """Spaces of a tenant, cached until a change: counting reads every source."""
        sequence = snapshot.changes(tenant_id).sequence
        at, spaces = self._known_spaces.get(tenant_id, (-1, []))
        if at != sequence:
            spaces = snapshot.spaces(tenant_id)
            if len(self._known_spaces) >= MOST_TENANTS:
                self._known_spaces.clear()
            self._known_spaces[tenant_id] = (sequence, spaces)
        return spaces

    def _embedder(self, space: str) -> Embedder | None:
        if space not in self._embedders:
            self._embedders[space] = self._open_space(space)
        return self._embedders[space]


def _with_phrases(snapshot: CatalogSnapshot, query: str, near: list[NearVector]) -> list[NearVector]:
    """Leave out chunks without a quoted phrase of the query."""
    required = {phrase.lower() for phrase in quoted_phrases(query)}
    if not required:
        return near
    words = snapshot.words_in(query, [hit.content_id for hit in near])
    return [hit for hit in near if required <= set(words.get(hit.content_id, ()))]


def _check(query: str, mode: str, limit: int, per_source: int | None) -> None:
    if not isinstance(query, str) or not query.strip():
        raise InvalidRequest("the query is empty", remedy="Give at least one word.")
    if mode not in get_args(Mode):
        raise InvalidRequest(f"mode: expected {', '.join(get_args(Mode))}, got {str(mode)[:40]!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(f"limit: expected 1 to {MAX_LIMIT:,}, got {str(limit)[:40]!r}")
    if per_source is not None and per_source < 1:
        raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")
