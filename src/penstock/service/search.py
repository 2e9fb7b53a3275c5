"""Search by keywords, vectors or both, over one snapshot of the published documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias, TypedDict, Unpack, get_args

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.rules.query_terms import MOST_TERMS
from penstock.catalog.views import ChunkView, Filters, Space
from penstock.config import Settings
from penstock.errors import InvalidRequest
from penstock.items import validate_name
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.vectors.protocol import NearestVectors
from penstock.vocabulary import how_many

Mode: TypeAlias = Literal["hybrid", "keyword", "vector"]

MAX_LIMIT = 1_000
DEPTH = 100
"""Minimum number of hits taken from each ranking before fusion."""
RANK_OFFSET = 60
"""Constant of reciprocal rank fusion; larger values bring the first ranks closer together."""
WEIGHTS = {"keyword": 1.0, "vector": 0.3}
"""Measured on CACM and Cranfield (bench/retrieval.py): static vectors add recall more than precision."""
SNIPPET = 240
MOST_TENANTS = 1_000
"""Maximum number of tenants in the cache of spaces."""
_WORD = re.compile(r"\w+")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One matching chunk. ``snippet`` has the query's words between ``marks``."""

    score: float
    path: str
    title: str
    snippet: str
    text: str
    page: int | None
    first_line: int | None
    last_line: int | None
    heading: str
    symbols: str
    tags: tuple[str, ...]
    file_type: str
    tenant_id: str
    collection: str
    branch: str
    source_id: str
    chunk_id: str


class SearchFilters(TypedDict, total=False):
    """Filters of a search. ``path`` is a glob; ``tag`` includes tags below it."""

    tenant_id: str | None
    collection: str | None
    branch: str | None
    path: str | None
    file_type: str | None
    tag: str | None


class SearchRequest(TypedDict, total=False):
    """Options of a search: ``limit`` hits, at most ``per_source`` (None: any number) per document."""

    mode: Mode
    limit: int
    per_source: int | None
    marks: tuple[str, str]
    tenant_id: str | None
    collection: str | None
    branch: str | None
    path: str | None
    file_type: str | None
    tag: str | None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, with notes about vectors that could not be searched."""

    hits: list[Hit]
    notes: tuple[str, ...] = ()


class Search:
    """Search over a catalog. ``open_space`` returns a space's embedder, or None where there is none."""

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

        Words between double quotes count as a phrase; nothing else in a query is an operator.
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
        **narrowed: Unpack[SearchFilters],
    ) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones."""
        _check(query, mode, limit, per_source)
        filters = self._filters(**narrowed)
        depth = max(DEPTH, limit * 4)
        notes: list[str] = []
        with self._catalog.snapshot() as snapshot:
            snippets: dict[int, str] = {}
            rankings: list[tuple[float, list[int]]] = []
            if mode != "vector":
                # Hits further down make their snippet when they are shown.
                hits = snapshot.keyword(query, filters, limit=depth, marks=marks, snippets=limit)
                snippets = {hit.content_id: hit.snippet for hit in hits[:limit]}
                rankings.append((WEIGHTS["keyword"], [hit.content_id for hit in hits]))
            if mode != "keyword":
                nearest, notes = self._nearest(snapshot, query, filters, depth)
                rankings += [(WEIGHTS["vector"], ranking) for ranking in nearest]
            ranked = fused(rankings)
            views = snapshot.hydrate([content_id for content_id, _ in ranked])
        found = [
            (score, view)
            for (_, score), view in zip(ranked, views, strict=True)
            # A hit has to be a chunk of the tenant, whatever a stale copy of vectors holds.
            if view is not None and view.place.tenant_id == filters.tenant_id
        ]
        chosen = _spread(found, per_source)[:limit]
        shown = [_hit(score, view, snippets.get(view.content_id), query, marks) for score, view in chosen]
        return SearchResult(hits=shown, notes=tuple(notes))

    def _filters(self, **narrowed: Unpack[SearchFilters]) -> Filters:
        for name, value in narrowed.items():
            if value is not None and not isinstance(value, str):
                raise InvalidRequest(f"{name}: expected a text, got {type(value).__name__}")
        file_type = narrowed.get("file_type")
        return Filters(
            tenant_id=validate_name("tenant_id", narrowed.get("tenant_id") or self._settings.tenant_id),
            collection=narrowed.get("collection"),
            branch=narrowed.get("branch"),
            path=narrowed.get("path"),
            file_type=file_type.removeprefix(".").lower() if file_type else None,
            tag=narrowed.get("tag"),
        )

    def _nearest(
        self, snapshot: CatalogSnapshot, query: str, filters: Filters, depth: int
    ) -> tuple[list[list[int]], list[str]]:
        """Rank the chunks of each vector space separately: scores of two models do not compare.

        During a change of model there are two spaces.
        """
        rankings: list[list[int]] = []
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
            vector = embedder.embed([query])[0]
            near = self._vectors.nearest(
                snapshot, filters.tenant_id, space.name, vector, limit=depth, allowed=allowed
            )
            rankings.append([hit.content_id for hit in near])
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


def fused(rankings: Sequence[tuple[float, Sequence[int]]]) -> list[tuple[int, float]]:
    """Merge rankings by reciprocal rank fusion; ties by id."""
    scores: dict[int, float] = {}
    for weight, ranking in rankings:
        for rank, content_id in enumerate(ranking):
            scores[content_id] = scores.get(content_id, 0.0) + weight / (RANK_OFFSET + 1 + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _check(query: str, mode: str, limit: int, per_source: int | None) -> None:
    if not isinstance(query, str) or not query.strip():
        raise InvalidRequest("the query is empty", remedy="Give at least one word.")
    if mode not in get_args(Mode):
        raise InvalidRequest(f"mode: expected {', '.join(get_args(Mode))}, got {str(mode)[:40]!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(f"limit: expected 1 to {MAX_LIMIT:,}, got {str(limit)[:40]!r}")
    if per_source is not None and per_source < 1:
        raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")


def _spread(
    found: Iterable[tuple[float, ChunkView]], per_source: int | None
) -> list[tuple[float, ChunkView]]:
    """Limit the number of hits per document."""
    if per_source is None:
        return list(found)
    taken: dict[str, int] = {}
    chosen = []
    for score, view in found:
        taken[view.source_id] = taken.get(view.source_id, 0) + 1
        if taken[view.source_id] <= per_source:
            chosen.append((score, view))
    return chosen


def _hit(score: float, view: ChunkView, snippet: str | None, query: str, marks: tuple[str, str]) -> Hit:
    return Hit(
        score=round(score, 6),
        path=view.path,
        title=view.title,
        snippet=snippet or _snippet(view.text, query, marks),
        text=view.text,
        page=view.page_number if view.page_count > 1 else None,
        first_line=view.first_line,
        last_line=view.last_line,
        heading=view.heading_path,
        symbols=view.symbols,
        tags=view.tags,
        file_type=view.file_type,
        tenant_id=view.place.tenant_id,
        collection=view.place.collection,
        branch=view.place.branch,
        source_id=view.source_id,
        chunk_id=view.chunk_id,
    )


@lru_cache(4)
def _words_of(query: str) -> re.Pattern[str] | None:
    """A pattern of the query's first words; a pasted page would make matching slow."""
    words = dict.fromkeys(word for word in _WORD.findall(query) if 2 < len(word) <= SNIPPET)
    some = "|".join(map(re.escape, islice(words, MOST_TERMS)))
    return re.compile(rf"\b(?:{some})\b", re.IGNORECASE) if some else None


def _snippet(text: str, query: str, marks: tuple[str, str]) -> str:
    """Make a snippet for a vector hit: around a word of the query, else the start of the chunk."""
    pattern = _words_of(query)
    first = pattern.search(text) if pattern else None
    start = max(0, first.start() - SNIPPET // 3) if first else 0
    window = " ".join(text[start : start + SNIPPET].split())
    shown = ("…" if start else "") + window + ("…" if start + SNIPPET < len(text) else "")
    return pattern.sub(lambda match: f"{marks[0]}{match[0]}{marks[1]}", shown) if pattern else shown
