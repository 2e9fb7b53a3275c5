"""Search by keywords, vectors or both, over one snapshot of the published documents."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast, get_args

import msgspec

from penstock.catalog.graph import GraphRelation, StoredEntity
from penstock.catalog.parts import OutsideStore
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.rules import graph
from penstock.catalog.rules.graph import AskedRelation, GraphMatch
from penstock.catalog.rules.words import (
    WORD_PIECES,
    closest_word,
    is_correctable,
    is_indexed_as_it_is,
    is_likelier,
    may_be_misspelt,
    neighbours,
    query_words,
    quoted_phrases,
    with_words,
    words_outside_quotes,
)
from penstock.catalog.values import ChunkView, Filters, KeywordHit, Space
from penstock.config import Settings
from penstock.errors import InvalidRequest, InvalidSetting, JobError, NotInGraph, ServiceUnavailable
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.embed.static import count_tokens
from penstock.pipeline.endpoint import ServiceGuard
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector, PublishedChunks
from penstock.service.documents import catalog_filters
from penstock.service.hits import (
    Correction,
    Coverage,
    Hit,
    Match,
    RankedText,
    build_hit,
    collapse,
    make_snippet,
    spread,
)
from penstock.service.hits import SearchResult as SearchResult
from penstock.service.projects import Places, SearchScope
from penstock.service.requests import (
    ContextOptions,
    DocumentFilters,
    FilteredScope,
    Mode,
    SearchRequest,
    refuse_unknown,
)
from penstock.vector_stores.protocol import SERVICE, PointFilter, VectorStore, collection_name
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock.service.passages import PromptContext

_MAX_LIMIT = 1_000
_MAX_QUERY = 100_000
"""Maximum number of characters of a query. A longer one would be embedded for seconds."""
_DEPTH = 100
"""Minimum number of hits taken from each ranking before fusion."""
_MAX_DEPTH = 6_400
_WIDER = 8
"""Factor of a second look, for when too many of the first hits were copies of one text or of one document."""
_READ_AHEAD = 1.25
"""Chunks read for each text that is wanted: some are copies, or of a document with enough hits."""
RERANKED = 50
"""Hits that are given to a re-ranker."""
_MAX_SNIPPET = 1_000
"""Maximum length of a snippet from the store, which counts words: a word may be a whole line."""
_CONTEXT_HITS = 10
_CONTEXT_TOKENS = 50
"""A context is made of so many hits, and one more for each so many tokens: few chunks are shorter."""
_MOST_TENANTS = 1_000
"""Maximum number of tenants in the cache of spaces."""
_MOST_CORRECTIONS = 3
"""Misspelt words looked up in one query: a text in another language has many unknown words."""
_MOST_TEXTS = 200
"""Texts looked at for each word. A word in more of them is frequent enough to be meant."""
_FIRST_TEXTS = 8
"""Texts looked at first: mostly one is enough to know that there is such a word."""
_SHOWN_TEXTS = 5
"""Texts read to find the form of a word that they have."""


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
        limit, mode = options.get("limit", 10), options.get("mode", "hybrid")
        per_source = options.get("per_source", 3)
        _check(query, mode, limit, per_source)
        scope = within or self._scope(options)
        if options.get("path") is not None or options.get("library") is not None:
            scope = scope.without_notes()
        given, default = _filters(options), self._settings.tenant_id
        answers = [
            self._ask(
                _Question(
                    query=query,
                    filters=catalog_filters(default, **(given | filters)),
                    mode=mode,
                    limit=limit,
                    per_source=per_source,
                    graph=options.get("graph", False),
                ),
                options,
            )
            for filters in scope.filters
        ]
        if len(answers) == 1:
            return msgspec.structs.replace(answers[0], covered=scope.covered)
        return _merged(answers, limit, scope.covered)

    def _scope(self, options: FilteredScope) -> SearchScope:
        """The part of the index that a search is about."""
        return Places(self._catalog, self._settings).search_scope(
            tenant_id=options.get("tenant_id"),
            branch=options.get("branch"),
            project=options.get("project"),
            every=_flag("all", options.get("all", False)),
        )

    def _ask(self, asked: _Question, options: SearchRequest) -> SearchResult:
        query, marks = asked.query, options.get("marks", ("", ""))
        fixed: list[Correction] = []
        with self._catalog.snapshot() as snapshot:
            if asked.graph:
                _require_graph(snapshot, asked.filters)
            rankings, chosen, found = self._find(snapshot, asked)
            if not options.get("exact", False):
                known = {word for words in found.values() for word in words}
                fixed = _corrections(snapshot, query, asked.filters, known)
            if fixed:
                query = with_words(query, {each.word: each.searched for each in fixed})
                asked = msgspec.structs.replace(asked, query=query)
                rankings, chosen, found = self._find(snapshot, asked)
            chosen, failed = self._reranked(query, chosen)
            chosen = chosen[: asked.limit]
            snippets = self._snippets(snapshot, query, chosen, marks)
            related = _relation_texts(snapshot, rankings.graph, [each.view.content_id for each in chosen])
        words = list(query_words(query))
        match = rankings.matches(found, len(words))
        hits = []
        for candidate in chosen:
            view = candidate.view
            snippet = snippets.get(view.content_id, "")
            if not 0 < len(snippet) <= _MAX_SNIPPET:
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
        # Late: other searches need neither passages nor the parsers behind their pages.
        from penstock.service.passages import context_of, pack

        refuse_unknown("context", options, ContextOptions)
        rest = cast("SearchRequest", {name: value for name, value in options.items() if name != "max_tokens"})
        max_tokens = options.get("max_tokens", 2_000)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise InvalidRequest(f"max_tokens: expected 1 or more, got {str(max_tokens)[:40]!r}")
        rest["limit"] = min(_MAX_LIMIT, _CONTEXT_HITS + max_tokens // _CONTEXT_TOKENS)
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
        self, snapshot: CatalogSnapshot, asked: _Question
    ) -> tuple[Rankings, list[RankedText], dict[int, tuple[str, ...]]]:
        """Rank and choose texts, and look up the words of the query in each."""
        rankings, chosen = self._choose(snapshot, asked)
        ids = [candidate.view.content_id for candidate in chosen]
        return rankings, chosen, snapshot.words_in(asked.query, ids)

    def _choose(self, snapshot: CatalogSnapshot, asked: _Question) -> tuple[Rankings, list[RankedText]]:
        """Rank deeper until there are enough texts: the first may all be copies, or of one document."""
        # A re-ranker chooses among more than are shown.
        wanted = asked.limit if self._reranker is None else max(asked.limit, RERANKED)
        depth = max(_DEPTH, wanted * 4)
        views: dict[int, ChunkView | None] = {}
        while True:
            rankings = self._rank(snapshot, asked, depth)
            chosen = _texts(snapshot, asked, wanted, rankings.fused(), views)
            if len(chosen) == wanted or not rankings.cut or depth >= _MAX_DEPTH:
                return rankings, chosen
            depth = min(depth * _WIDER, _MAX_DEPTH)

    def _reranked(self, query: str, chosen: list[RankedText]) -> tuple[list[RankedText], list[str]]:
        """Put the first texts into the order of the re-ranker. If it fails, they stay, and a note says so."""
        if self._reranker is None or not chosen:
            return chosen, []
        first = chosen[:RERANKED]
        try:
            scores = self._reranker.scores(query, [candidate.view.text for candidate in first])
        except JobError as error:
            return chosen, [f"not re-ranked: {error.message}. {error.remedy}"]
        scored = [
            msgspec.structs.replace(each, rerank_score=score)
            for each, score in zip(first, scores, strict=True)
        ]
        # The sort is stable: equal scores stay in the order of the search.
        ordered = sorted(scored, key=lambda candidate: -(candidate.rerank_score or 0.0))
        return ordered + chosen[RERANKED:], []

    def _rank(self, snapshot: CatalogSnapshot, asked: _Question, depth: int) -> Rankings:
        rankings = self._rank_texts(snapshot, asked, depth)
        if not asked.graph:
            return rankings
        graph = _rank_by_graph(snapshot, asked.query, asked.filters, rankings.fused())
        having = _having_phrases(snapshot, asked.query, list(graph.matches))
        matches = {number: match for number, match in graph.matches.items() if number in having}
        return msgspec.structs.replace(rankings, graph=msgspec.structs.replace(graph, matches=matches))

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
            if len(self._known_spaces) >= _MOST_TENANTS:
                self._known_spaces.clear()
            self._known_spaces[tenant_id] = (sequence, spaces)
        return spaces

    def _embedder(self, space: str) -> Embedder | None:
        if space not in self._embedders:
            self._embedders[space] = self._open_space(space)
        return self._embedders[space]


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """A search of one part of the index."""

    query: str
    filters: Filters
    mode: Mode
    limit: int
    per_source: int | None
    graph: bool


def _texts(
    snapshot: CatalogSnapshot,
    asked: _Question,
    wanted: int,
    ranked: Sequence[tuple[int, float]],
    views: dict[int, ChunkView | None],
) -> list[RankedText]:
    """The first texts of a ranking. Only as many chunks are read as needed, and kept in ``views``.

    Copies of a text have the same score, so all chunks with the score of the last text are read as well.
    """
    read = min(len(ranked), math.ceil(_READ_AHEAD * wanted))
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
        chosen = spread(collapse(found), asked.per_source)[:wanted]
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
    if len(query) > _MAX_QUERY:
        raise InvalidRequest(
            f"the query has {len(query):,} characters, more than {_MAX_QUERY:,}",
            remedy="Search for a part of the text; `penstock similar` compares whole documents.",
        )
    if mode not in get_args(Mode):
        raise InvalidRequest(f"mode: expected {', '.join(get_args(Mode))}, got {str(mode)[:40]!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_LIMIT:
        raise InvalidRequest(f"limit: expected 1 to {_MAX_LIMIT:,}, got {str(limit)[:40]!r}")
    if per_source is not None and per_source < 1:
        raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")


def _merged(answers: Sequence[SearchResult], limit: int, covered: Coverage) -> SearchResult:
    """Merge the hits of the same query in different scopes: good ones first, then by score; texts once."""
    hits: dict[str, Hit] = {}
    for hit in sorted((hit for each in answers for hit in each.hits), key=lambda hit: (hit.weak, -hit.score)):
        hits.setdefault(hit.text.strip(), hit)
    corrected = {each.word: each for answer in answers for each in answer.corrections}
    misspelt = [{each.word for each in answer.corrections} for answer in answers]
    # A word that one of the scopes has is no misspelt one.
    fixed = [each for word, each in corrected.items() if all(word in words for words in misspelt)]
    return SearchResult(
        hits=list(hits.values())[:limit],
        notes=tuple(dict.fromkeys(note for each in answers for note in each.notes)),
        words=max((each.words for each in answers), key=len, default=()),
        corrections=tuple(fixed),
        covered=covered,
    )


def _corrections(
    snapshot: CatalogSnapshot, query: str, filters: Filters, found: Collection[str]
) -> list[Correction]:
    """Correct words that no document of the tenant has. ``found``: words known to occur, in lower case."""
    doubtful = [
        word
        for word in words_outside_quotes(query)
        # A capital inside a query begins a name, and names are like other words by chance.
        if (word[0].islower() or query.lstrip().startswith(word))
        and word.lower() not in found
        and is_correctable(word)
        and may_be_misspelt(word, _count_pieces)
    ]
    if not doubtful:
        return []
    missing = _missing(snapshot, _missing(snapshot, doubtful, filters, _FIRST_TEXTS), filters, _MOST_TEXTS)
    return list(_corrected(snapshot, filters, missing[:_MOST_CORRECTIONS]))


def _missing(snapshot: CatalogSnapshot, words: list[str], filters: Filters, most: int) -> list[str]:
    """Words missing from all texts of the tenant. Words of very many texts of others count as known."""
    if not words:
        return []
    known = snapshot.holding(words, Filters(tenant_id=filters.tenant_id), most=most)
    return [
        word
        for word in words
        if word not in known
        or (not known[word].content_ids and not (known[word].cut and most == _MOST_TEXTS))
    ]


def _corrected(snapshot: CatalogSnapshot, filters: Filters, words: Collection[str]) -> Iterator[Correction]:
    for word in words:
        held = snapshot.holding(neighbours(word), filters, most=_MOST_TEXTS)
        texts = {near: holding.content_ids for near, holding in held.items() if holding.content_ids}
        if not texts:
            continue
        # The most frequent; of equally frequent ones the first by letters, so that every store says the same.
        best = min(texts, key=lambda near: (-len(texts[near]), near))
        views = snapshot.hydrate(texts[best][:_SHOWN_TEXTS], filters)
        searched = closest_word(word, (view.text for view in views if view), best)
        if is_likelier(searched, word, _count_pieces):
            yield Correction(word=word, searched=searched)


def _count_pieces(word: str) -> int:
    """Number of pieces of a word; without the vocabulary a constant, so every word may be misspelt."""
    try:
        return count_tokens(word)
    except InvalidSetting:
        return WORD_PIECES + 1


_ASKED_WEIGHT = 2.0
"""Weight of the best chunk of the graph beside the best keyword score, where a relation is asked for."""
_PLAIN_WEIGHT = 0.1
"""The same for other queries; see ``bench/graph_search.py``."""


class _GraphRanking(msgspec.Struct, frozen=True):
    """Chunks that the graph leads to, each with a score up to 1 and the relation that was followed.

    ``asked``: the query asks for a relation. ``best``: the best hit without the graph, if it was the start.
    """

    matches: Mapping[int, GraphMatch]
    weight: float
    asked: bool = False
    best: int | None = None

    def ranks(self) -> dict[int, int]:
        """Places by score, from 1; equal scores have equal places."""
        scores = sorted({match.score for match in self.matches.values()}, reverse=True)
        places: dict[float, int] = {}
        above = 0
        for score in scores:
            places[score] = above + 1
            above += sum(match.score == score for match in self.matches.values())
        return {content_id: places[match.score] for content_id, match in self.matches.items()}


_NO_RANKING = _GraphRanking({}, 0.0)


def _require_graph(snapshot: CatalogSnapshot, filters: Filters) -> None:
    """Refuse a search by the graph where no entities were extracted."""
    if not snapshot.has_graph(filters):
        raise NotInGraph(
            "search by the graph: no entities were extracted from the documents that are searched",
            remedy="Extract them with `penstock index --graph PATH`, or search without the graph.",
        )


def _rank_by_graph(
    snapshot: CatalogSnapshot, query: str, filters: Filters, ranked: Sequence[tuple[int, float]]
) -> _GraphRanking:
    """Rank the chunks around the entities of a query and of its best hits. ``ranked``: hits with scores."""
    named, certain_at = _named(snapshot, query, filters.tenant_id)
    asked = graph.asked_relation(query, certain_at)
    starts = graph.start_weights(named, _of_hits(snapshot, ranked, filters.tenant_id), asked)
    if not starts:
        return _NO_RANKING
    relations = {
        start: graph.followed(start, found, asked)
        for start, found in snapshot.relations_at(list(starts), most=graph.MOST_RELATIONS).items()
    }
    reached = _reached(starts, relations, asked)
    own_chunks = snapshot.chunks_of(reached, most=graph.MOST_CHUNKS) if reached else {}
    found = graph.expand(starts, relations, own_chunks, asked)
    seen = snapshot.visible(filters, list(found))
    matches = {content_id: match for content_id, match in found.items() if content_id in seen}
    weight = _PLAIN_WEIGHT if asked is None else _ASKED_WEIGHT
    best = ranked[0][0] if ranked and certain_at is None else None
    return _GraphRanking(matches, weight, asked is not None, best)


def _relation_texts(
    snapshot: CatalogSnapshot, ranking: _GraphRanking, content_ids: Sequence[int]
) -> dict[int, str]:
    """The relations that led to chunks, as text: source, kind and target."""
    shown = {number: ranking.matches[number] for number in content_ids if number in ranking.matches}
    ends = sorted({end for match in shown.values() for end in (match.source, match.target)})
    names = {each.id: each.name for each in snapshot.entities_by_id(ends)} if ends else {}
    return {
        number: f"{names.get(match.source, '?')} {match.kind} {names.get(match.target, '?')}"
        for number, match in shown.items()
    }


def _named(snapshot: CatalogSnapshot, query: str, tenant_id: str) -> tuple[dict[int, float], int | None]:
    """Entities named in a query, with weights; and the position of a certain name."""
    names = graph.query_names(query)
    lasts = sorted({name.last for name in names})
    by_short: dict[str, list[StoredEntity]] = {}
    for entity in snapshot.entities_called(tenant_id, lasts, most=graph.MOST_NAMESAKES + 1):
        by_short.setdefault(entity.short_key, []).append(entity)
    weights: dict[int, float] = {}
    certain_at = None
    for name in names:
        namesakes = by_short.get(name.last, [])
        meant = [each for each in namesakes if graph.is_named(name, each.name, each.short_key)]
        if not meant or (len(namesakes) > graph.MOST_NAMESAKES and name.name == name.last):
            continue
        if name.certainty == 1.0 and certain_at is None:
            certain_at = name.at
        for each in meant:
            weights[each.id] = max(weights.get(each.id, 0.0), name.certainty)
    return weights, certain_at


def _of_hits(
    snapshot: CatalogSnapshot, ranked: Sequence[tuple[int, float]], tenant_id: str
) -> list[tuple[float, list[int]]]:
    """Entities of the best hits, and the names by which others import them."""
    best = ranked[: graph.SEED_HITS]
    if not best or best[0][1] <= 0:
        return []
    inside = snapshot.entities_in([content_id for content_id, _ in best])
    chosen = {number for found in inside.values() for number in found[: graph.SEED_ENTITIES]}
    aliases = _aliases(snapshot, tenant_id, sorted(chosen))
    return [
        (score / best[0][1], [*found, *(other for one in found for other in aliases.get(one, ()))])
        for content_id, score in best
        if (found := inside.get(content_id, [])[: graph.SEED_ENTITIES])
    ]


def _aliases(snapshot: CatalogSnapshot, tenant_id: str, entity_ids: list[int]) -> dict[int, list[int]]:
    """Entities of code by other names: ``mill.open`` for ``mill.gate.open`` exported by the package."""
    known = [each for each in snapshot.entities_by_id(entity_ids) if "." in each.name]
    shorts = sorted({each.short_key for each in known})
    others = snapshot.entities_called(tenant_id, shorts, most=graph.MOST_NAMESAKES)
    return {
        each.id: [other.id for other in others if graph.is_alias(each.name, other.name)] for each in known
    }


def _reached(
    starts: Mapping[int, float],
    relations: Mapping[int, Sequence[GraphRelation]],
    asked: AskedRelation | None,
) -> list[int]:
    """Entities at the other ends of relations, for a lookup of their chunks; best starts first."""
    reached: dict[int, None] = {}
    for start in sorted(starts, key=lambda number: (-starts[number], number)):
        for relation in relations.get(start, ()):
            if asked is None or relation.source == start:
                reached.setdefault(graph.other_end(start, relation))
    return list(reached)[: graph.MOST_REACHED]


WORDS_COUNT = 0.5
"""Weight of the share of the query's words in a chunk, beside its similarity."""
LEAST = {"static": 0.4, "hashing": 0.3}
"""Least relevance of a hit that is not weak, by embedder: cosines of two models do not compare."""


class Similarity(msgspec.Struct, frozen=True):
    """Cosine of a chunk and the query, or an upper bound."""

    embedder: str
    cosine: float


def is_weak(words_found: int, words_asked: int, similarities: Sequence[Similarity]) -> bool:
    """Decide whether a hit is weak: it shares few words with the query and has another meaning.

    The rule and its limits come from a measurement (``bench/weak_hits.py``). Hits of queries from another
    field should be weak, and relevant hits should not.

    ``similarities`` has one entry if the chunk's vector was compared. Otherwise it has the most that each
    vector space allows; it is empty if vectors were not searched. Words alone make no hit weak: without a
    similarity, and for an embedder that was not measured, no hit is.
    """
    share = words_found / words_asked if words_asked else 0.0
    return bool(similarities) and all(
        each.embedder in LEAST and each.cosine + WORDS_COUNT * share < LEAST[each.embedder]
        for each in similarities
    )


VECTOR_WEIGHTS = {"static": 0.7, "hashing": 0.7, "minilm": 1.5}
"""Weight of the best cosine beside the best keyword score, by embedder; see ``bench/search_quality.py``."""
_UNMEASURED_WEIGHT = 1.0
"""Weight for models that were not measured."""


class SpaceRanking(msgspec.Struct, frozen=True):
    """The nearest chunks of one vector space, best first. ``limit``: at most so many were asked for."""

    embedder: str
    near: list[NearVector]
    limit: int

    def least(self) -> float:
        """The cosine assumed for a chunk outside this ranking: the smallest one inside."""
        return self.near[-1].score if self.near else 0.0

    def most(self) -> float:
        """The largest possible cosine of a chunk outside this ranking."""
        return self.near[-1].score if len(self.near) >= self.limit else 0.0


class Rankings(msgspec.Struct, frozen=True):
    """Rankings of a search, ``depth`` deep. ``notes``: spaces that could not be searched."""

    depth: int
    keyword: list[KeywordHit]
    spaces: list[SpaceRanking]
    notes: list[str]
    graph: _GraphRanking = _NO_RANKING

    @property
    def cut(self) -> bool:
        """Check whether a deeper search could find more."""
        return len(self.keyword) >= self.depth or any(len(space.near) >= self.depth for space in self.spaces)

    def fused(self, weights: Mapping[str, float] = VECTOR_WEIGHTS) -> list[tuple[int, float]]:
        """Merge all rankings; see ``_fused``. ``weights``: of the vectors, by embedder."""
        # The score of a chunk outside the keyword ranking: nothing, unless the ranking was cut.
        outside = self.keyword[-1].score if len(self.keyword) >= self.depth else 0.0
        keyword = _Scores({hit.content_id: hit.score for hit in self.keyword}, outside)
        spaces = [
            _Scores(
                {hit.content_id: hit.score for hit in space.near},
                space.least(),
                weights.get(space.embedder, _UNMEASURED_WEIGHT),
            )
            for space in self.spaces
        ]
        return _fused(keyword, spaces, self.graph)

    def matches(self, words: Mapping[int, tuple[str, ...]], asked: int) -> Callable[[int], Match]:
        """Return a function describing the match of a chunk. ``words``: found ones, of ``asked`` in all."""
        places = {hit.content_id: place for place, hit in enumerate(self.keyword, 1)}
        near = {
            hit.content_id: (place, space.embedder, hit.score)
            for space in self.spaces
            for place, hit in enumerate(space.near, 1)
        }
        graph_ranks = self.graph.ranks()
        # A chunk outside all rankings may be in a space that could not be searched.
        most = [] if self.notes else [Similarity(space.embedder, space.most()) for space in self.spaces]

        def weak(content_id: int) -> bool:
            similarities = [Similarity(*near[content_id][1:])] if content_id in near else most
            return is_weak(len(words.get(content_id, ())), asked, similarities)

        # A chunk that was asked for by a relation is as good as the entity that the relation leads from.
        related = self.graph.asked and (self.graph.best is None or not weak(self.graph.best))

        def match(content_id: int) -> Match:
            vector_rank, _, cosine = near.get(content_id, (None, None, None))
            graph_rank = graph_ranks.get(content_id)
            return Match(
                weak(content_id) and not (related and graph_rank is not None),
                words.get(content_id, ()),
                cosine,
                places.get(content_id),
                vector_rank,
                graph_rank,
            )

        return match


class _Scores(msgspec.Struct, frozen=True):
    """Scores of one ranking by chunk, the score of chunks outside, and the weight of the best."""

    by_chunk: Mapping[int, float]
    outside: float
    weight: float = 1.0

    def scaled(self) -> tuple[dict[int, float], float]:
        """Shares of the best score, times the weight: of each chunk, and of a chunk outside."""
        best = max(self.by_chunk.values(), default=0.0)
        if best <= 0:
            return {}, 0.0
        factor = self.weight / best
        shares = {chunk: max(score, 0.0) * factor for chunk, score in self.by_chunk.items()}
        return shares, max(self.outside, 0.0) * factor


def _fused(
    keyword: _Scores, spaces: Sequence[_Scores], graph: _GraphRanking = _NO_RANKING
) -> list[tuple[int, float]]:
    """Merge rankings by the sum of their scores, each as a share of its best; ties by id.

    Scores say more than ranks: a chunk far ahead of the next stays ahead. A chunk has a vector in one space,
    so the best of its scaled cosines counts. Scores of the graph are shares already. The result is between 0
    and 1.
    """
    by_words, no_words = keyword.scaled()
    whole = (keyword.weight if keyword.by_chunk else 0.0) + max((one.weight for one in spaces), default=0.0)
    by_graph = {chunk: graph.weight * match.score for chunk, match in graph.matches.items()}
    whole += graph.weight if by_graph else 0.0
    by_vector, no_vector = _best_shares(spaces)
    chunks = {*keyword.by_chunk, *by_graph}.union(*(space.by_chunk for space in spaces))
    in_words, in_vectors = by_words.get, by_vector.get
    for chunk, score in by_graph.items():
        by_words[chunk] = in_words(chunk, no_words) + score
    scores = [
        (-(in_words(chunk, no_words) + in_vectors(chunk, no_vector)) / whole, chunk) for chunk in chunks
    ]
    scores.sort()
    return [(chunk, -score) for score, chunk in scores]


def _best_shares(spaces: Sequence[_Scores]) -> tuple[dict[int, float], float]:
    """The best share of each chunk in any space, and the share of a chunk outside of all."""
    scaled = [space.scaled() for space in spaces]
    outside = max((share for _, share in scaled), default=0.0)
    if len(scaled) == 1:
        return scaled[0]
    chunks = dict.fromkeys(chunk for shares, _ in scaled for chunk in shares)
    return {chunk: max(shares.get(chunk, least) for shares, least in scaled) for chunk in chunks}, outside


MOST_SOURCES = 256
"""Sources named in one call; more are compared with the hits afterwards."""
_SPARE = 20
_STORE_WIDER = 4
_MOST = 20_000
"""Points asked for at most, when the first ones were of documents that are not published or not asked for."""
_FILL = "A worker copies them from the catalog; `penstock verify --fix` does it at once."


class StoreSearch:
    """Search in a vector store. ``own``: the search in the catalog's vectors."""

    def __init__(
        self, catalog: Catalog, own: NearestVectors, store: VectorStore, guard: ServiceGuard
    ) -> None:
        self._catalog = catalog
        self._own = own
        self._store = store
        self._guard = guard
        self._turn = threading.Lock()
        self._notice: str | None = None

    def notice(self) -> str | None:
        return self._notice

    def nearest(
        self,
        snapshot: PublishedChunks,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        def instead(why: str) -> list[NearVector]:
            self._notice = f"the catalog's own vectors were searched: {why}"
            return self._own.nearest(snapshot, tenant_id, space, query, limit=limit, allowed=allowed)

        attached = self._catalog.outside.attached(OutsideStore.VECTOR)
        if attached is None or attached.address != self._store.address or not attached.filled:
            progress = self._catalog.outside.fill_progress(OutsideStore.VECTOR)
            ours = progress is not None and progress.address == self._store.address
            part = f" (about {progress.percent} %)" if progress is not None and ours else ""
            return instead(f"the vector store {self._store.address} does not hold all vectors{part}. {_FILL}")
        collection = collection_name(attached.catalog_id, space)
        try:
            with self._turn, self._guard.calling(SERVICE):
                found = self._near(snapshot, tenant_id, collection, query.tolist(), limit, allowed)
        except ServiceUnavailable as error:
            self._guard.delay(error)
            return instead(f"{error.message}. {error.remedy}")
        if found is None:
            return instead(
                f"the vector store {self._store.address} has lost its collection {collection}. {_FILL}"
            )
        self._notice = None
        return found

    def _near(
        self,
        snapshot: PublishedChunks,
        tenant_id: str,
        collection: str,
        query: list[float],
        limit: int,
        allowed: Collection[int] | None,
    ) -> list[NearVector] | None:
        """Published chunks: more points are read until there are enough. None: there is no collection."""
        if allowed is not None and not allowed:
            return []
        filters = Filters(tenant_id=tenant_id)
        sources = None if allowed is None else frozenset(allowed)
        few = sources is not None and len(sources) <= MOST_SOURCES
        where = PointFilter(tenant_id, sources if few else None)
        wanted = limit + _SPARE
        while True:
            points = self._store.search(collection, query, limit=wanted, where=where)
            if points is None:
                return None
            near = [
                NearVector(point.content_id, point.score)
                for point in points
                # A vector of zeros is near nothing.
                if point.score != 0 and (sources is None or point.source_key in sources)
            ]
            published = snapshot.visible(filters, [one.content_id for one in near])
            near = [one for one in near if one.content_id in published]
            if len(near) >= limit or len(points) < wanted or wanted >= _MOST:
                return sorted(near, key=lambda one: (-one.score, one.content_id))[:limit]
            wanted = min(wanted * _STORE_WIDER, _MOST)
