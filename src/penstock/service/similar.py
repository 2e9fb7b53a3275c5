"""Search for chunks similar to a chunk or to a whole document."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import ChunkView, Filters, Source, Space
from penstock.errors import InvalidRequest, UnknownDocument
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector
from penstock.service.documents import Documents
from penstock.service.hits import Hit, Match, build_hit, collapse, make_snippet, spread
from penstock.service.options import SimilarOptions, path_place, refuse_unknown
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_LIMIT = 1_000
LEAST_DEPTH = 100
PAGES_AT_ONCE = 100


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
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequest(f"limit: expected 1 to {MAX_LIMIT:,}, got {limit}")
        if per_source is not None and per_source < 1:
            raise InvalidRequest(f"per_source: expected 1 or more, got {per_source}")
        source = self._documents.source(os.fspath(path_or_id), **path_place(options))
        with self._catalog.snapshot() as snapshot:
            own = _chunks(snapshot, source)
            asked = own if line is None else _at(own, line, source.path)
            near = self._nearest(snapshot, source, own, asked, max(LEAST_DEPTH, 4 * limit))
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
        pages = snapshot.pages(source.published_id, after=after, limit=PAGES_AT_ONCE)
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
