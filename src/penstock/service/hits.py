"""Hits of a search: one for equal chunks, few per document, with snippets and corrections of the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise

import msgspec

from penstock.catalog.rules.words import (
    humps,
    query_words,
)
from penstock.catalog.values import ChunkView, StoredProperties
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import FileType
from penstock.vocabulary import how_many

_SNIPPET = 240
_WORD_START = r"(?:\b|(?<=_)|(?<=(?-i:[a-z0-9]))(?=(?-i:[A-Z])))"
_WORD_END = r"(?:\b|(?=_)|(?<=(?-i:[a-z0-9]))(?=(?-i:[A-Z])))"
"""A word in a name such as ``maxHeaderSize`` or ``max_header_size`` is a word as well."""
_LOWERED = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
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
    ``graph_rank``: its place among those that the graph leads to, and ``relation``: the way there, such as
    ``mill.run calls mill.open_gate``; None and empty without the graph.
    ``rerank_score``: the score by which a re-ranker ordered the hits, None without one.
    ``also_in``: other places of the same text. ``page_unit``: what ``page`` counts: page, slide, sheet or
    chapter. ``position_unit``: what ``first_line`` and ``last_line`` count: line, paragraph or cell.
    ``url``: the address of a web page, with the anchor of the hit's heading; empty for files.
    ``start`` and ``end``: characters of the page's text. ``chunk_index``: the chunk's number on its page.
    """

    score: float
    weak: bool
    path: str
    url: str = ""
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
    graph_rank: int | None = None
    relation: str = ""
    rerank_score: float | None = None


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A word of a query, and the word that was searched for instead."""

    word: str
    searched: str


class SearchedPart(msgspec.Struct, frozen=True):
    """A tenant that a search covered, in one branch or (None) in all of them.

    ``project``: its name, where the search was about a project. ``notes_only``: of this tenant only notes.
    """

    tenant_id: str
    project: str | None = None
    branch: str | None = None
    notes_only: bool = False


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the index that a search covered. ``everything``: all that the sender may read."""

    parts: tuple[SearchedPart, ...] = ()
    everything: bool = False


def coverage_text(covered: Coverage) -> str:
    """One sentence that names what a search covered."""
    if covered.everything:
        return f"Searched everything: {how_many(len(covered.parts), 'tenant')}."
    named = [_part_text(part) for part in covered.parts]
    return f"Searched {' and '.join(named)}."


def _part_text(part: SearchedPart) -> str:
    if part.notes_only:
        return "your notes"
    name = f"tenant {part.tenant_id}" if part.project is None else f"project {part.project}"
    return name if part.branch is None else f"{name} (branch {part.branch})"


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, with notes about vectors that could not be searched.

    ``words``: the words and quoted phrases of the query that were looked for in each hit. ``corrections``:
    words that occur nowhere, and what was searched for instead. ``covered``: the part of the index that was
    searched.
    """

    hits: list[Hit]
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    covered: Coverage = Coverage()


class RankedText(msgspec.Struct, frozen=True):
    """A text with the score, the best place and all others."""

    score: float
    view: ChunkView
    others: list[ChunkView]
    rerank_score: float | None = None


class Match(msgspec.Struct, frozen=True):
    """Facts about how a chunk matches a query; see ``Hit``."""

    weak: bool
    words: tuple[str, ...]
    similarity: float | None
    keyword_rank: int | None
    vector_rank: int | None
    graph_rank: int | None = None


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


def build_hit(candidate: RankedText, match: Match, snippet: str, relation: str = "") -> Hit:
    view = candidate.view
    file_type = _file_type(view)
    return Hit(
        score=round(candidate.score, 6),
        weak=match.weak,
        path=view.path,
        url=view.properties.address(view.heading_path),
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
        properties=msgspec.structs.replace(view.properties, anchors={}),
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
        graph_rank=match.graph_rank,
        relation=relation,
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


class _QueryMarks(msgspec.Struct, frozen=True):
    """Words of a query to mark in a snippet: plain ones, and a pattern of phrases and others."""

    plain: frozenset[str]
    others: re.Pattern[str] | None

    def first(self, text: str) -> int | None:
        """The place of the first word in a text."""
        lowered = _lowered(text)
        found = [begin for word in self.plain for begin, _ in islice(_spans(word, text, lowered), 1)]
        if self.others and (other := self.others.search(text)):
            found.append(other.start())
        return min(found, default=None)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Places of the words in a text, in order."""
        lowered = _lowered(text)
        found = [span for word in self.plain for span in _spans(word, text, lowered)]
        if self.others:
            found += [match.span() for match in self.others.finditer(text)]
        return [span for before, span in pairwise([(0, 0), *sorted(found)]) if span[0] >= before[1]]


def _lowered(text: str) -> str:
    """A text in lower case, of the same length."""
    lowered = text.lower()
    # A letter that becomes two in lower case: in a text with one, only ASCII letters are lowered.
    return lowered if len(lowered) == len(text) else text.translate(_LOWERED)


def _spans(word: str, text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Places of a plain word, in order: as a whole word of the text, or as a part of a name with humps."""
    begin = lowered.find(word)
    while begin >= 0:
        end = begin + len(word)
        if _is_word(text, begin, end):
            yield begin, end
        begin = lowered.find(word, begin + 1)


def _is_word(text: str, begin: int, end: int) -> bool:
    """Check whether a place in a text is a word, or a part of a name such as ``maxHeaderSize``."""
    free_begin = begin == 0 or not text[begin - 1].isalnum()
    free_end = end == len(text) or not text[end].isalnum()
    if free_begin and free_end:
        return True
    # A hump is seen with the letters on both of its sides.
    found = humps().finditer(text, max(0, begin - 1), min(len(text), end + 2))
    places = {match.start() for match in found}
    inside = any(begin < place < end for place in places)
    return (free_begin or begin in places) and (free_end or end in places) and not inside


@lru_cache(4)
def _marks_of(query: str) -> _QueryMarks:
    """The query's first words. Plain ones are looked up: to compile a pattern for each query takes longer."""
    words = [word for word in query_words(query) if len(word) <= _SNIPPET]
    plain = {word for word in words if word.isascii() and word.isalnum() and len(word) > 2}
    ascii_others = [word for word in words if word.isascii() and not word.isalnum() and len(word) > 2]
    patterns = (
        [rf"{_WORD_START}(?:{'|'.join(map(re.escape, ascii_others))}){_WORD_END}"] if ascii_others else []
    )
    # Scripts without spaces have no word boundaries.
    patterns += [re.escape(word) for word in words if not word.isascii()]
    return _QueryMarks(frozenset(plain), re.compile("|".join(patterns), re.IGNORECASE) if patterns else None)


def make_snippet(text: str, query: str, marks: tuple[str, str]) -> str:
    """Make a snippet for a vector hit: around a word of the query, else the start of the chunk."""
    wanted = _marks_of(query)
    first = wanted.first(text) or 0
    start = max(0, first - _SNIPPET // 3)
    window = text[start : start + _SNIPPET]
    if start:
        # From the next word on, unless there is none before the word found.
        window = _CUT_WORD.sub("", window[: first - start]) + window[first - start :]
    shown = ("…" if start else "") + " ".join(window.split()) + ("…" if start + _SNIPPET < len(text) else "")
    if not any(marks):
        return shown
    pieces, at = [], 0
    for begin, end in wanted.spans(shown):
        pieces += [shown[at:begin], marks[0], shown[begin:end], marks[1]]
        at = end
    return "".join([*pieces, shown[at:]])
