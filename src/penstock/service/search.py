"""Search by keywords, vectors or both, over one snapshot of the published documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast, get_args

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.rules.words import (
    is_indexed_as_it_is,
    query_words,
    quoted_phrases,
    with_words,
)
from penstock.catalog.values import ChunkView, Filters, KeywordHit, Space
from penstock.config import Settings
from penstock.errors import InvalidRequest, JobError
from penstock.named_tuple import NamedTuple
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector
from penstock.service.corrections import Correction, corrections
from penstock.service.document_filters import catalog_filters
from penstock.service.graph_hits import rank_by_graph, relation_texts, require_graph
from penstock.service.hits import Hit, RankedText, build_hit, collapse, make_snippet, merged, spread
from penstock.service.hits import SearchResult as SearchResult
from penstock.service.options import (
    ContextOptions,
    DocumentFilters,
    FilteredScope,
    Mode,
    SearchRequest,
    refuse_unknown,
)
from penstock.service.passages import PromptContext, context_of, pack
from penstock.service.rankings import Rankings, SpaceRanking
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock.service.projects import SearchScope

MAX_LIMIT = 1_000
MAX_QUERY = 100_000
"""Maximum number of characters of a query. A longer one would be embedded for seconds."""
DEPTH = 100
"""Minimum number of hits taken from each ranking before fusion."""
MAX_DEPTH = 6_400
WIDER = 8
"""Factor of a second look, for when too many of the first hits were copies of one text or of one document."""
READ_AHEAD = 1.25
"""Chunks read for each text that is wanted: some are copies, or of a document with enough hits."""
RERANKED = 50
"""Hits that are given to a re-ranker."""
MAX_SNIPPET = 1_000
"""Maximum length of a snippet from the store, which counts words: a word may be a whole line."""
CONTEXT_HITS = 10
CONTEXT_TOKENS = 50
"""A context is made of so many hits, and one more for each so many tokens: few chunks are shorter."""
MOST_TENANTS = 1_000
"""Maximum number of tenants in the cache of spaces."""


class _Question(NamedTuple):
    query: str
    filters: Filters
    mode: Mode
    limit: int
    graph: bool


class _Asked(NamedTuple):
    mode: Mode
    limit: int
    per_source: int | None
    filters: DocumentFilters


class Reranker(Protocol):
    """Scores the best texts of a search by reading each together with the query."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score each text, higher is better. Raises a JobError on failure."""
        ...


class Search:
    """Search over a catalog. ``open_space`` returns the embedder of a vector space, None if unknown here.

    With a ``reranker`` the best hits are put into its order.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        open_space: Callable[[str], Embedder | None],
        vectors: NearestVectors,
        reranker: Reranker | None = None,
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._open_space = open_space
        self._embedders: dict[str, Embedder | None] = {}
        self._vectors = vectors
        self._reranker = reranker
        self._known_spaces: dict[str, tuple[int, list[Space]]] = {}

    def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks, best first, at most ``per_source`` (3) per document.

            for hit in app.search("how does the mill take in water", collection="docs"):
                print(hit.path, hit.first_line, hit.snippet)

        Words between double quotes are a phrase that each hit has; nothing else in a query is an operator.
        A misspelt word that no document has is corrected, unless ``exact``. With ``graph``, "who calls
        open_gate" also finds what the graph knows of; raises ``NotInGraph`` if no entities were extracted.

        Searched is one tenant: ``tenant_id``, or by default that of the settings. ``project`` names a project
        by its name or folder (True: the one around the current folder), ``all=True`` searches every tenant.
        """
        return self.ask(query, **options).hits

    def ask(
        self, query: str, *, within: SearchScope | None = None, **options: Unpack[SearchRequest]
    ) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones, and what was searched.

        ``within``: the scope that a door has decided, instead of the options for it.
        """
        refuse_unknown("search", options, SearchRequest)
        limit, mode, per_source = (
            options.get("limit", 10),
            options.get("mode", "hybrid"),
            options.get("per_source", 3),
        )
        _check(query, mode, limit, per_source)
        scope = within or self._scope(options)
        if options.get("path") is not None or options.get("library") is not None:
            scope = scope.without_notes()
        asked = [
            self._ask(query, options, _Asked(mode, limit, per_source, _filters(options) | filters))
            for filters in scope.filters
        ]
        if len(asked) == 1:
            return msgspec.structs.replace(asked[0], covered=scope.covered)
        return merged(asked, limit, scope.covered)

    def _scope(self, options: FilteredScope) -> SearchScope:
        """The part of the index that a search is about."""
        from penstock.service.projects import Places

        return Places(self._catalog, self._settings).search_scope(
            tenant_id=options.get("tenant_id"),
            branch=options.get("branch"),
            project=options.get("project"),
            every=_flag("all", options.get("all", False)),
        )

    def _ask(self, query: str, options: SearchRequest, asked_for: _Asked) -> SearchResult:
        """Search one part of the index."""
        limit, per_source = asked_for.limit, asked_for.per_source
        marks, graph = options.get("marks", ("", "")), options.get("graph", False)
        filters = catalog_filters(self._settings.tenant_id, **asked_for.filters)
        asked = _Question(query, filters, asked_for.mode, limit, graph)
        fixed: list[Correction] = []
        with self._catalog.snapshot() as snapshot:
            if graph:
                require_graph(snapshot, filters)
            rankings, chosen, found = self._find(snapshot, asked, per_source)
            if not options.get("exact", False):
                known = {word for words in found.values() for word in words}
                fixed = corrections(snapshot, query, filters, known)
            if fixed:
                query = with_words(query, {each.word: each.searched for each in fixed})
                rankings, chosen, found = self._find(snapshot, asked._replace(query=query), per_source)
            chosen, failed = self._reranked(query, chosen)
            chosen = chosen[:limit]
            snippets = self._snippets(snapshot, query, chosen, marks)
            related = relation_texts(snapshot, rankings.graph, [each.view.content_id for each in chosen])
        words = list(query_words(query))
        match = rankings.matches(found, len(words))
        hits = []
        for candidate in chosen:
            view = candidate.view
            snippet = snippets.get(view.content_id, "")
            if not 0 < len(snippet) <= MAX_SNIPPET:
                snippet = make_snippet(view.text, query, marks)
            relation = related.get(view.content_id, "")
            hits.append(build_hit(candidate, match(view.content_id), snippet, relation))
        return SearchResult(
            hits=hits,
            notes=(*rankings.notes, *failed),
            words=tuple(words),
            corrections=tuple(fixed),
        )

    def context(
        self, query: str, *, within: SearchScope | None = None, **options: Unpack[ContextOptions]
    ) -> PromptContext:
        """Pack the best passages into a budget of tokens, numbered, for the prompt of a language model.

            prompt = f"Answer by these passages, and cite their numbers.\\n\\n{app.context(question).text}"

        ``max_tokens`` (2,000) are those of the Llama family; most models count fewer. Weak hits are left out.
        The other options are those of ``search``.
        """
        from penstock.pipeline.embed.protocol import count_tokens

        refuse_unknown("context", options, ContextOptions)
        rest = cast("SearchRequest", {name: value for name, value in options.items() if name != "max_tokens"})
        max_tokens = options.get("max_tokens", 2_000)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise InvalidRequest(f"max_tokens: expected 1 or more, got {str(max_tokens)[:40]!r}")
        rest["limit"] = min(MAX_LIMIT, CONTEXT_HITS + max_tokens // CONTEXT_TOKENS)
        rest["per_source"] = None
        answer = self.ask(query, within=within, **rest)
        good = [hit for hit in answer.hits if not hit.weak]
        passages = pack(good, max_tokens, count_tokens)
        notes = answer.notes
        if not good and answer.hits:
            notes += ("only weak matches, which are left out",)
        if good and not passages:
            notes += (f"not even the place of the best passage fits into {how_many(max_tokens, 'token')}",)
        return context_of(
            passages,
            max_tokens,
            count_tokens,
            notes=notes,
            corrections=answer.corrections,
            covered=answer.covered,
        )

    def _snippets(
        self, snapshot: CatalogSnapshot, query: str, chosen: Sequence[RankedText], marks: tuple[str, str]
    ) -> dict[int, str]:
        """Snippets by the store, only for texts indexed without added words, which would be shown too."""
        plain = [each.view for each in chosen if is_indexed_as_it_is(each.view.text)]
        return snapshot.snippets(query, [view.content_id for view in plain], marks)

    def _find(
        self, snapshot: CatalogSnapshot, asked: _Question, per_source: int | None
    ) -> tuple[Rankings, list[RankedText], dict[int, tuple[str, ...]]]:
        """Rank and choose texts, and look up the words of the query in each."""
        rankings, chosen = self._choose(snapshot, asked, per_source)
        ids = [candidate.view.content_id for candidate in chosen]
        return rankings, chosen, snapshot.words_in(asked.query, ids)

    def _choose(
        self, snapshot: CatalogSnapshot, asked: _Question, per_source: int | None
    ) -> tuple[Rankings, list[RankedText]]:
        """Rank deeper until there are enough texts: the first may all be copies, or of one document."""
        # A re-ranker chooses among more than are shown.
        wanted = asked.limit if self._reranker is None else max(asked.limit, RERANKED)
        depth = max(DEPTH, wanted * 4)
        views: dict[int, ChunkView | None] = {}
        while True:
            rankings = self._rank(snapshot, asked, depth)
            chosen = _texts(snapshot, asked, per_source, wanted, rankings.fused(), views)
            if len(chosen) == wanted or not rankings.cut or depth >= MAX_DEPTH:
                return rankings, chosen
            depth = min(depth * WIDER, MAX_DEPTH)

    def _reranked(self, query: str, chosen: list[RankedText]) -> tuple[list[RankedText], list[str]]:
        """Put the first texts into the order of the re-ranker. If it fails, they stay, and a note says so."""
        if self._reranker is None or not chosen:
            return chosen, []
        first = chosen[:RERANKED]
        try:
            scores = self._reranker.scores(query, [candidate.view.text for candidate in first])
        except JobError as error:
            return chosen, [f"not re-ranked: {error.message}. {error.remedy}"]
        scored = [each._replace(rerank_score=score) for each, score in zip(first, scores, strict=True)]
        # The sort is stable: equal scores stay in the order of the search.
        ordered = sorted(scored, key=lambda candidate: -(candidate.rerank_score or 0.0))
        return ordered + chosen[RERANKED:], []

    def _rank(self, snapshot: CatalogSnapshot, asked: _Question, depth: int) -> Rankings:
        rankings = self._rank_texts(snapshot, asked, depth)
        if not asked.graph:
            return rankings
        graph = rank_by_graph(snapshot, asked.query, asked.filters, rankings.fused())
        having = _having_phrases(snapshot, asked.query, list(graph.matches))
        matches = {number: match for number, match in graph.matches.items() if number in having}
        return rankings._replace(graph=graph._replace(matches=matches))

    def _rank_texts(self, snapshot: CatalogSnapshot, asked: _Question, depth: int) -> Rankings:
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
            near = self._visible(snapshot, space.name, vector, filters, depth, allowed)
            having = _having_phrases(snapshot, query, [hit.content_id for hit in near])
            near = [hit for hit in near if hit.content_id in having]
            rankings.append(SpaceRanking(embedder.name, near, depth))
            notice = self._vectors.notice()
            notes += [notice] if notice and notice not in notes else []
        return rankings, notes

    def _visible(
        self,
        snapshot: CatalogSnapshot,
        space: str,
        vector: npt.NDArray[np.float32],
        filters: Filters,
        depth: int,
        allowed: list[int] | None,
    ) -> list[NearVector]:
        """The nearest chunks that pass the filters. Of the documents allowed, some have chunks that only
        their version in another branch has."""
        wanted = depth
        while True:
            near = self._vectors.nearest(
                snapshot, filters.tenant_id, space, vector, limit=wanted, allowed=allowed
            )
            if allowed is None:
                return near
            seen = snapshot.visible(filters, [hit.content_id for hit in near])
            chosen = [hit for hit in near if hit.content_id in seen]
            if len(chosen) >= depth or len(near) < wanted:
                return chosen[:depth]
            wanted *= 4

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


def _texts(
    snapshot: CatalogSnapshot,
    asked: _Question,
    per_source: int | None,
    wanted: int,
    ranked: Sequence[tuple[int, float]],
    views: dict[int, ChunkView | None],
) -> list[RankedText]:
    """The first texts of a ranking. Only as many chunks are read as needed, and kept in ``views``.

    Copies of a text have the same score, so all chunks with the score of the last text are read as well.
    """
    read = min(len(ranked), math.ceil(READ_AHEAD * wanted))
    while True:
        while 0 < read < len(ranked) and ranked[read][1] >= ranked[read - 1][1]:
            read += 1
        new = [content_id for content_id, _ in ranked[:read] if content_id not in views]
        views.update(zip(new, snapshot.hydrate(new, asked.filters), strict=True))
        found = [
            (score, view)
            for content_id, score in ranked[:read]
            # A hit has to be a chunk of the tenant: a stale copy of vectors may hold others.
            if (view := views[content_id]) and view.place.tenant_id == asked.filters.tenant_id
        ]
        chosen = spread(collapse(found), per_source)[:wanted]
        if len(chosen) == wanted or read == len(ranked):
            return chosen
        read = min(len(ranked), 4 * read)


def _having_phrases(snapshot: CatalogSnapshot, query: str, content_ids: list[int]) -> Set[int]:
    """Ids of the chunks with every quoted phrase of the query."""
    required = {phrase.lower() for phrase in quoted_phrases(query)}
    if not required:
        return set(content_ids)
    words = snapshot.words_in(query, content_ids)
    return {number for number in content_ids if required <= set(words.get(number, ()))}


def _filters(options: Mapping[str, Any]) -> DocumentFilters:
    """The filters among the options of a search."""
    names = DocumentFilters.__optional_keys__
    return cast("DocumentFilters", {name: value for name, value in options.items() if name in names})


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name}: expected true or false, got {str(value)[:40]!r}")
    return value


def _check(query: str, mode: str, limit: int, per_source: int | None) -> None:
    if not isinstance(query, str) or not query.strip():
        raise InvalidRequest("the query is empty", remedy="Give at least one word.")
    if len(query) > MAX_QUERY:
        raise InvalidRequest(
            f"the query has {len(query):,} characters, more than {MAX_QUERY:,}",
            remedy="Search for a part of the text; `penstock similar` compares whole documents.",
        )
    if mode not in get_args(Mode):
        raise InvalidRequest(f"mode: expected {', '.join(get_args(Mode))}, got {str(mode)[:40]!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(f"limit: expected 1 to {MAX_LIMIT:,}, got {str(limit)[:40]!r}")
    if per_source is not None and per_source < 1:
        raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")
