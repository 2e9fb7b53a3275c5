"""Passages for the prompt of a language model, and a search for chunks that are similar to given ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import ChunkView, Filters, Source, Space
from penstock.errors import InvalidRequest, UnknownDocument
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector
from penstock.service.documents import Documents
from penstock.service.hits import Correction, Coverage, Hit, Match, build_hit, collapse, make_snippet, spread
from penstock.service.pages import joined
from penstock.service.requests import SimilarOptions, path_place, refuse_unknown
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CUT = "…"
_BETWEEN = "\n\n"
_LAST_WORD = re.compile(r"\s\S{1,40}\Z")
_MAX_LIMIT = 1_000
_LEAST_DEPTH = 100
_PAGES_AT_ONCE = 100
Counter = Callable[[str], int]


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring chunks of a page as one text, with the number by which it is cited.

    ``cut``: the end is left out, because the whole did not fit. The other fields are those of a hit.
    """

    number: int
    path: str
    page: int | None
    page_unit: str
    first_line: int | None
    last_line: int | None
    position_unit: str
    heading: str
    score: float
    tokens: int
    text: str
    cut: bool
    source_id: str
    chunk_ids: tuple[str, ...]


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """Passages of a query, best first. ``text`` has all of them, each after a line with number and place.

    ``tokens`` are those of ``text``, at most ``max_tokens``.
    """

    text: str
    tokens: int
    max_tokens: int
    passages: tuple[Passage, ...]
    notes: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    covered: Coverage = Coverage()


class _Group:
    """Neighbouring hits of one page. ``rank``: of the best hit; ``tokens``: of the text."""

    def __init__(self, rank: int, hits: Sequence[Hit], count: Counter) -> None:
        self.rank = rank
        self.hits = sorted(hits, key=lambda hit: hit.start)
        self.text = joined(self.hits).strip()
        self.tokens = count(self.text)

    def touches(self, hit: Hit) -> bool:
        """Check whether a hit overlaps or adjoins this text."""
        return any(
            (each.source_id, each.page) == (hit.source_id, hit.page)
            and (
                abs(each.chunk_index - hit.chunk_index) <= 1
                or (each.start < hit.end and hit.start < each.end)
            )
            for each in self.hits
        )


def pack(hits: Iterable[Hit], max_tokens: int, count: Counter) -> list[Passage]:
    """Take hits, best first, as long as the text of all passages has at most ``max_tokens``.

    Neighbours become one passage. A hit that does not fit is left out, and a smaller one after it may be
    taken. If not even the best fits, its beginning is taken.
    """
    ranked = list(hits)
    groups: list[_Group] = []
    for rank, hit in enumerate(ranked):
        if any(hit.text.strip() in group.text for group in groups):
            continue
        beside = [group for group in groups if group.touches(hit)]
        merged = _Group(
            min([rank, *(group.rank for group in beside)]),
            [hit, *(each for group in beside for each in group.hits)],
            count,
        )
        others = sorted(
            [*(group for group in groups if group not in beside), merged], key=lambda group: group.rank
        )
        if sum(passage.tokens for passage in _passages(others, count)) <= max_tokens:
            groups = others
    if not groups and ranked:
        return _beginning(ranked[0], max_tokens, count)
    return _passages(groups, count)


def _beginning(hit: Hit, max_tokens: int, count: Counter) -> list[Passage]:
    """The longest fitting beginning of a hit; nothing if the place alone is too long."""
    (whole,) = _passages([_Group(0, [hit], count)], count)

    def cut(kept: int) -> Passage:
        # At the end of a word, unless the script has no spaces.
        text = _LAST_WORD.sub("", whole.text[: kept + 1]) if kept < len(whole.text) else whole.text
        shorter = msgspec.structs.replace(whole, text=text[:kept].rstrip() + _CUT, cut=True)
        return msgspec.structs.replace(shorter, tokens=count(_rendered([shorter])))

    least, most = 0, len(whole.text)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if cut(middle).tokens <= max_tokens else (least, middle - 1)
    return [cut(least)] if least else []


def _passages(groups: Sequence[_Group], count: Counter) -> list[Passage]:
    return [_passage(number, group, count) for number, group in enumerate(groups, 1)]


def _passage(number: int, group: _Group, count: Counter) -> Passage:
    first, last = group.hits[0], group.hits[-1]
    passage = Passage(
        number=number,
        path=first.path,
        page=first.page,
        page_unit=first.page_unit,
        first_line=first.first_line,
        last_line=last.last_line,
        position_unit=first.position_unit,
        heading=first.heading,
        score=max(hit.score for hit in group.hits),
        tokens=group.tokens,
        text=group.text,
        cut=False,
        source_id=first.source_id,
        chunk_ids=tuple(hit.chunk_id for hit in group.hits),
    )
    around = count(_head(passage)) + count(_BETWEEN if number > 1 else "")
    return msgspec.structs.replace(passage, tokens=group.tokens + around)


def _rendered(passages: Sequence[Passage]) -> str:
    """Text of passages for a prompt: each after its number and place."""
    return _BETWEEN.join(f"{_head(each)}{each.text}" for each in passages)


def _head(passage: Passage) -> str:
    return f"[{passage.number}] {place_text(passage)}\n"


def place_text(found: Passage | Hit) -> str:
    """Path, page, lines and heading of a passage or hit, on one line."""
    page = "" if found.page is None else f", {found.page_unit} {found.page}"
    first, last = found.first_line, found.last_line
    lines = ""
    if first is not None:
        span = f"{first}-{last}" if last is not None and last > first else f"{first}"
        joint = ":" if found.position_unit == "line" and not page else f", {found.position_unit} "
        lines = f"{joint}{span}"
    heading = f" ({found.heading})" if found.heading else ""
    return " ".join(f"{found.path}{page}{lines}{heading}".split())


def context_of(
    passages: Sequence[Passage],
    max_tokens: int,
    count: Counter,
    *,
    notes: tuple[str, ...] = (),
    corrections: tuple[Correction, ...] = (),
    covered: Coverage,
) -> PromptContext:
    """Put passages together to the text of a prompt."""
    text = _rendered(passages)
    return PromptContext(
        text=text,
        tokens=count(text),
        max_tokens=max_tokens,
        passages=tuple(passages),
        notes=notes,
        corrections=corrections,
        covered=covered,
    )


class Similar:
    """Search by a chunk instead of words: the stored vector is the query, so no model is needed."""

    def __init__(self, catalog: Catalog, documents: Documents, vectors: NearestVectors) -> None:
        self._catalog = catalog
        self._documents = documents
        self._vectors = vectors

    def similar(
        self,
        path_or_id: str | os.PathLike[str],
        line: int | None = None,
        **options: Unpack[SimilarOptions],
    ) -> list[Hit]:
        """Find chunks of the tenant's other documents, nearest first.

        for hit in app.similar("docs/mill.md", 12):
            print(hit.path, hit.similarity)

        ``line`` chooses the chunk; in a document without lines, such as a PDF, it is the page. Without it
        the document as a whole is compared. ``limit`` (10): hits in all, ``per_source`` (3, or None for any
        number): in each document. The other options name the place of a document given by its path.
        """
        refuse_unknown("similar", options, SimilarOptions)
        limit = options.get("limit", 10)
        per_source = options.get("per_source", 3)
        if not 1 <= limit <= _MAX_LIMIT:
            raise InvalidRequest(f"limit: expected 1 to {_MAX_LIMIT:,}, got {limit}")
        if per_source is not None and per_source < 1:
            raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")
        source = self._documents.source(os.fspath(path_or_id), **path_place(options))
        with self._catalog.snapshot() as snapshot:
            own = _chunks(snapshot, source)
            asked = own if line is None else _at(own, line, source.path)
            near = self._nearest(snapshot, source, own, asked, max(_LEAST_DEPTH, 4 * limit))
            views = snapshot.hydrate(
                [hit.content_id for hit in near], Filters(tenant_id=source.place.tenant_id)
            )
        places = {hit.content_id: (rank, hit.score) for rank, hit in enumerate(near, 1)}
        found = [(places[view.content_id][1], view) for view in views if view and _is_hit(view, source)]
        return [
            build_hit(
                candidate,
                Match(False, (), candidate.score, None, places[candidate.view.content_id][0]),
                make_snippet(candidate.view.text, "", ("", "")),
            )
            for candidate in spread(collapse(found), per_source)[:limit]
        ]

    def _nearest(
        self,
        snapshot: CatalogSnapshot,
        source: Source,
        own: Sequence[ChunkView],
        asked: Sequence[ChunkView],
        depth: int,
    ) -> list[NearVector]:
        """The nearest chunks in the space in which the chunks asked for have vectors; none of the source."""
        tenant_id = source.place.tenant_id
        ids = {view.content_id for view in own}
        for space in snapshot.spaces(tenant_id):
            vector = _mean_vector(snapshot, space, own[0], {view.content_id for view in asked})
            if vector is not None:
                near = self._vectors.nearest(snapshot, tenant_id, space.name, vector, limit=depth + len(own))
                return [hit for hit in near if hit.content_id not in ids]
        raise UnknownDocument(
            f"{source.path} has no vectors",
            remedy="`penstock documents tree` shows the state of its chunks.",
        )


def _is_hit(view: ChunkView, source: Source) -> bool:
    return view.source_id != source.source_id and view.place.tenant_id == source.place.tenant_id


def _chunks(snapshot: CatalogSnapshot, source: Source) -> list[ChunkView]:
    """Chunks of the version in search, in the order of the document."""
    numbers: list[int] = []
    after = -1
    while source.published_id is not None:
        pages = snapshot.pages(source.published_id, after=after, limit=_PAGES_AT_ONCE)
        if not pages:
            break
        numbers += [chunk.content_id for page in pages for chunk in snapshot.chunks(page.page_id)]
        after = pages[-1].number
    place = source.place
    filters = Filters(tenant_id=place.tenant_id, collection=place.collection, branch=place.branch)
    views = [view for view in snapshot.hydrate(numbers, filters) if view]
    if not views:
        raise UnknownDocument(
            f"{source.path} has no chunks in search", remedy=f"`penstock why {source.path}` tells the reason."
        )
    return views


def _at(views: Sequence[ChunkView], line: int, path: str) -> list[ChunkView]:
    """The chunk at a line: the first containing the line, else the last one before; or all of a page."""
    numbered = [view for view in views if view.first_line is not None]
    if not numbered or views[0].page_count > 1:
        found = [view for view in views if view.page_number == line]
        count = how_many(views[0].page_count, "page")
    else:
        begun = [view for view in numbered if (view.first_line or 0) <= line]
        last = max(view.last_line or 0 for view in numbered)
        having = [view for view in begun if line <= (view.last_line or 0)]
        found = having[:1] or begun[-1:] if line <= last else []
        count = how_many(last, "line")
    if not found:
        raise UnknownDocument(f"{path} has no text at {line:,}: it has {count}")
    return found


def _mean_vector(
    snapshot: CatalogSnapshot, space: Space, view: ChunkView, wanted: set[int]
) -> npt.NDArray[np.float32] | None:
    """The mean direction of some chunks of a source; None if they have no vectors in this space."""
    import numpy as np

    found = []
    for batch in snapshot.load(view.place.tenant_id, space.name, [view.family_key]):
        numbers = np.frombuffer(batch.content_ids, np.int64)
        vectors = np.frombuffer(batch.vectors, "<f4").reshape(len(numbers), -1)
        found.append(vectors[np.isin(numbers, list(wanted))])
    total = np.concatenate(found).sum(axis=0, dtype=np.float32) if found else np.zeros(1, np.float32)
    length = float(np.linalg.norm(total))
    return (total / np.float32(length)).astype(np.float32) if length > 0 else None
