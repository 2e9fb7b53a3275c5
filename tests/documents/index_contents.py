"""Contents of an index, for comparison: two indexes of the same files must be equal, chunk for chunk.

Only times and ids are ignored: a rename keeps ids, and a fresh index makes new ones.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock import Penstock, config
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import ChunkView, Filters, OutboxEntryKind, TaskStatus
from penstock.queue.job import Status
from tests.servers.stores import given_back, store_url

TENANT = "default"
AT_ONCE = 500
WORDS = 60
_WORD = re.compile(r"[a-z][a-z0-9]{3,}")
_OVER = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class Piece(NamedTuple):
    """A published chunk with the bytes of the vector."""

    path: str
    page: int
    at: int
    span: tuple[int, int]
    lines: tuple[int | None, int | None]
    heading: str
    symbols: str
    title: str
    file_type: str
    tags: tuple[str, ...]
    text: str
    vector: bytes


class IndexContents(NamedTuple):
    """Contents of an index. ``found``: chunks found by keyword search for some words of the texts."""

    pieces: list[Piece]
    found: dict[str, list[tuple[str, int, int]]]

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys(piece.path for piece in self.pieces))


def read_index(
    catalog: Catalog, root: Path, tenant_id: str = TENANT, words: int = WORDS, branch: str | None = None
) -> IndexContents:
    """Read all searchable contents of a tenant, or of one branch of it, with paths relative to the root."""
    filters = Filters(tenant_id=tenant_id, branch=branch)
    with catalog.snapshot() as snapshot:
        vectors = dict(_vectors(snapshot, tenant_id))
        if branch is not None:
            vectors = {number: vectors[number] for number in snapshot.visible(filters, list(vectors))}
        views = [view for view in _views(snapshot, filters) if view is not None]
        assert sorted(vectors) == sorted(view.content_id for view in views)
        pieces = sorted(_piece(view, root, vectors[view.content_id]) for view in views)
        where = {
            view.content_id: (_below(view.path, root), view.page_number, view.chunk_index) for view in views
        }
        found = {}
        for word in _chosen(pieces, words):
            hits = snapshot.keyword(word, filters, limit=len(views) + 1, snippets=0)
            # An unpublished chunk is not in `where` and would fail here.
            found[word] = sorted(where[hit.content_id] for hit in hits)
    return IndexContents(pieces, found)


def settled(app: Penstock) -> None:
    """Assert that no work is pending, nothing is left over, and ``verify`` finds no difference."""
    catalog = app.documents.catalog
    assert [] == app.jobs(status=[Status.PENDING, Status.IN_PROGRESS])
    assert [] == catalog.outbox(OutboxEntryKind.JOB)
    with catalog.snapshot() as snapshot:
        counts = snapshot.statistics()
    assert {} == {key: number for key, number in counts.items() if number and key[1] not in _OVER}
    assert [] == list(app.verifier.differences())


def fresh_index(tmp_path: Path, folder: Path, *, engine: str = "sqlite", **options: object) -> IndexContents:
    """Contents of a new index of these files.

    The engines have different stemming rules: compare real texts only within one engine.
    """
    place = tmp_path / "fresh"
    number = len(list(place.iterdir())) if place.exists() else 0
    state = place / str(number)
    state.mkdir(parents=True)
    settings = config.load(
        {},
        url=store_url(engine, state),
        state_dir=state,
        embedder="hashing",
        sqlite_synchronous="NORMAL",
    )
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            # As any folder, also where it is a work tree: the index is compared with that of a project.
            receipt = app.index(folder, allow_empty=True, project=False, **options)  # type: ignore[arg-type]
            job = app.wait(receipt.job_id, timeout=300)
        assert Status.DONE is job.status, job.error_message
        found = read_index(app.documents.catalog, folder)
    given_back(state)
    return found


def _vectors(snapshot: CatalogSnapshot, tenant_id: str) -> Iterator[tuple[int, bytes]]:
    for space in snapshot.spaces(tenant_id):
        width = 4 * space.dimension
        for batch in snapshot.load(tenant_id, space.name):
            ids = memoryview(batch.content_ids).cast("q")
            for at, content_id in enumerate(ids):
                yield content_id, bytes(batch.vectors[at * width : (at + 1) * width])


def _views(snapshot: CatalogSnapshot, filters: Filters) -> Iterator[ChunkView | None]:
    """Chunks by way of the tree, not of the vectors: a chunk without a vector then shows as a difference."""
    content_ids = []
    after = ""
    while found := snapshot.sources(filters, after=after, limit=AT_ONCE):
        for source in found:
            assert source.published_id is not None
            for page in snapshot.pages(source.published_id, limit=100_000):
                content_ids += [chunk.content_id for chunk in snapshot.chunks(page.page_id)]
        after = found[-1].source_id
    for start in range(0, len(content_ids), AT_ONCE):
        yield from snapshot.hydrate(content_ids[start : start + AT_ONCE], filters)


def _piece(view: ChunkView, root: Path, vector: bytes) -> Piece:
    return Piece(
        path=_below(view.path, root),
        page=view.page_number,
        at=view.chunk_index,
        span=(view.start, view.end),
        lines=(view.first_line, view.last_line),
        heading=view.heading_path,
        symbols=view.symbols,
        title=view.title,
        file_type=view.file_type,
        tags=view.tags,
        text=view.text,
        vector=vector,
    )


def _below(path: str, root: Path) -> str:
    return path.removeprefix(f"{root}/")


def _chosen(pieces: list[Piece], number: int) -> list[str]:
    words = {word for piece in pieces for word in _WORD.findall(piece.text.lower())}
    return sorted(words, key=lambda word: (zlib.crc32(word.encode()), word))[:number]
