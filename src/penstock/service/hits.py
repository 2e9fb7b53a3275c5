"""Hits of a search: identical chunks as one hit, few per document, each with a snippet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from penstock.catalog.rules.query_terms import query_words
from penstock.catalog.values import StoredProperties
from penstock.catalog.views import ChunkView
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import FileType
from penstock.service.corrections import Correction

SNIPPET = 240
_WORD_START = r"(?:\b|(?<=_)|(?<=(?-i:[a-z0-9]))(?=(?-i:[A-Z])))"
_WORD_END = r"(?:\b|(?=_)|(?<=(?-i:[a-z0-9]))(?=(?-i:[A-Z])))"
"""A word in a name such as ``maxHeaderSize`` or ``max_header_size`` is a word as well."""
_CUT_WORD = re.compile(r"\A\S+\s")


class HitLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Another place of a hit's text."""

    path: str
    page: int | None
    page_unit: str
    first_line: int | None
    position_unit: str
    collection: str
    branch: str
    source_id: str
    chunk_id: str


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One matching chunk. ``snippet`` has the query's words between ``marks``.

    ``weak``: it shares few words with the query and is far from it in meaning. ``words``: the words of the
    query that it holds. ``similarity``: the cosine, None if the chunk is not among the nearest or vectors
    were not searched. ``keyword_rank`` and ``vector_rank``: its places in the two rankings, from 1.
    ``rerank_score``: the score by which a re-ranker ordered the hits, None without one.
    ``also_in``: other places of the same text. ``page_unit``: what ``page`` counts: page, slide, sheet or
    chapter. ``position_unit``: what ``first_line`` and ``last_line`` count: line, paragraph or cell.
    ``start`` and ``end``: characters of the page's text. ``chunk_index``: the chunk's number on its page.
    """

    score: float
    weak: bool
    path: str
    title: str
    snippet: str
    text: str
    page: int | None
    page_unit: str
    first_line: int | None
    last_line: int | None
    position_unit: str
    heading: str
    start: int
    end: int
    symbols: str
    tags: tuple[str, ...]
    file_type: str
    properties: StoredProperties
    tenant_id: str
    collection: str
    branch: str
    source_id: str
    chunk_id: str
    chunk_index: int
    also_in: tuple[HitLocation, ...]
    words: tuple[str, ...]
    similarity: float | None
    keyword_rank: int | None
    vector_rank: int | None
    rerank_score: float | None = None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, with notes about vectors that could not be searched.

    ``words``: the words and quoted phrases of the query that were looked for in each hit. ``corrections``:
    words that occur nowhere, and what was searched for instead.
    """

    hits: list[Hit]
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()


class RankedText(NamedTuple):
    """A text with its score, its best place and all others."""

    score: float
    view: ChunkView
    others: list[ChunkView]
    rerank_score: float | None = None


class Match(NamedTuple):
    """Facts about how a chunk matches a query; see ``Hit``."""

    weak: bool
    words: tuple[str, ...]
    similarity: float | None
    keyword_rank: int | None
    vector_rank: int | None


def collapse(found: Iterable[tuple[float, ChunkView]]) -> list[RankedText]:
    """Collapse chunks of the same text, apart from white space around it, to the first of them."""
    by_text: dict[str, RankedText] = {}
    for score, view in found:
        known = by_text.setdefault(view.text.strip(), RankedText(score, view, []))
        if known.view is not view:
            known.others.append(view)
    return list(by_text.values())


def spread(candidates: Sequence[RankedText], per_source: int | None) -> list[RankedText]:
    """Limit the number of hits per document."""
    if per_source is None:
        return list(candidates)
    taken: dict[str, int] = {}
    chosen = []
    for candidate in candidates:
        source_id = candidate.view.source_id
        taken[source_id] = taken.get(source_id, 0) + 1
        if taken[source_id] <= per_source:
            chosen.append(candidate)
    return chosen


def build_hit(candidate: RankedText, match: Match, snippet: str) -> Hit:
    view = candidate.view
    file_type = _file_type(view)
    return Hit(
        score=round(candidate.score, 6),
        weak=match.weak,
        path=view.path,
        title=view.title,
        snippet=snippet,
        text=view.text,
        page=_page(view),
        page_unit=file_type.page_unit,
        first_line=view.first_line,
        last_line=view.last_line,
        position_unit=file_type.position_unit,
        heading=view.heading_path,
        start=view.start,
        end=view.end,
        symbols=view.symbols,
        tags=view.tags,
        file_type=view.file_type,
        properties=view.properties,
        tenant_id=view.place.tenant_id,
        collection=view.place.collection,
        branch=view.place.branch,
        source_id=view.source_id,
        chunk_id=view.chunk_id,
        chunk_index=view.chunk_index,
        also_in=tuple(map(_location, candidate.others)),
        words=match.words,
        similarity=None if match.similarity is None else round(match.similarity, 4),
        keyword_rank=match.keyword_rank,
        vector_rank=match.vector_rank,
        rerank_score=None if candidate.rerank_score is None else round(candidate.rerank_score, 6),
    )


def _location(view: ChunkView) -> HitLocation:
    file_type = _file_type(view)
    return HitLocation(
        path=view.path,
        page=_page(view),
        page_unit=file_type.page_unit,
        first_line=view.first_line,
        position_unit=file_type.position_unit,
        collection=view.place.collection,
        branch=view.place.branch,
        source_id=view.source_id,
        chunk_id=view.chunk_id,
    )


def _file_type(view: ChunkView) -> FileType:
    return file_types.stored_type(view.file_type, view.properties.media_type)


def _page(view: ChunkView) -> int | None:
    return view.page_number if view.page_count > 1 else None


@lru_cache(4)
def _words_of(query: str) -> re.Pattern[str] | None:
    """A pattern of the query's first words; a pasted page would make matching slow."""
    words = [word for word in query_words(query) if 2 < len(word) <= SNIPPET and word.isascii()]
    others = [word for word in query_words(query) if len(word) <= SNIPPET and not word.isascii()]
    patterns = [rf"{_WORD_START}(?:{'|'.join(map(re.escape, words))}){_WORD_END}"] if words else []
    # Scripts without spaces have no word boundaries.
    patterns += map(re.escape, others)
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


def make_snippet(text: str, query: str, marks: tuple[str, str]) -> str:
    """Make a snippet for a vector hit: around a word of the query, else the start of the chunk."""
    pattern = _words_of(query)
    first = pattern.search(text) if pattern else None
    start = max(0, first.start() - SNIPPET // 3) if first else 0
    window = text[start : start + SNIPPET]
    if start and first:
        # From the next word on, unless there is none before the word found.
        window = _CUT_WORD.sub("", window[: first.start() - start]) + window[first.start() - start :]
    shown = ("…" if start else "") + " ".join(window.split()) + ("…" if start + SNIPPET < len(text) else "")
    return pattern.sub(lambda match: f"{marks[0]}{match[0]}{marks[1]}", shown) if pattern else shown
