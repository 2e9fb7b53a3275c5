"""Chunks of a generation: texts and vectors the source already has are kept, the rest is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.catalog.rules.identity import ChunkIds, text_key
from penstock.catalog.rules.rollup import COMPLETED, SKIPPED, WAITING
from penstock.catalog.sql.read_records import DocumentRow
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.sql.written_records import (
    CHUNK_TASKS,
    CHUNK_TEXT,
    ChunkDocument,
    ChunkTask,
    ChunkTasks,
    NewChunkRow,
)
from penstock.catalog.values import Gate, NewChunk, Phase
from penstock.errors import InvalidRequest, InvalidVector

_STATUS = {COMPLETED: "completed", WAITING: "pending", SKIPPED: "skipped"}
_TEXT_OF = CHUNK_TEXT.values_of
FLOAT32 = 4
MOST_SPACES = 255


class RowNumbers:
    """Unique row numbers, fetched a block at a time."""

    def __init__(self, rows: Statements, expected: int) -> None:
        self._rows = rows
        self._size = max(expected, 16)
        self._block: Iterator[int] = iter(())

    def next(self) -> int:
        try:
            return next(self._block)
        except StopIteration:
            self._block = iter(self._rows.numbers("row", self._size))
            return next(self._block)


class ChunkOwner(msgspec.Struct, kw_only=True):
    """The generation owning the chunks to be written."""

    document_id: int
    source_key: int
    source_id: str
    tenant_id: str
    space_id: int | None
    graph: bool
    graphrag_fingerprint: str
    priority: int
    max_retries: int
    relatives: tuple[int, ...] = ()
    """Generations of the source that may have the same chunks; itself when its chunks come in parts."""
    vector_held: str | None = None
    graphrag_held: str | None = None


class KnownChunk(NamedTuple):
    """A chunk some live generation has."""

    content_id: int
    embedded: bool
    extracted: tuple[int, int] | None


class ChunkRows:
    """Chunk, text, keyword and vector rows, collected and written together."""

    def __init__(self, rows: Statements, numbers: RowNumbers, at: str) -> None:
        self._rows = rows
        self._numbers = numbers
        self._at = at
        self._contents: list[tuple[Any, ...]] = []
        self._keywords: list[tuple[Any, ...]] = []
        self._vectors: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._whole: list[tuple[Any, ...]] = []
        self._alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._owner: ChunkOwner | None = None
        self._of_document: tuple[Any, ...] = ()

    def flush(self) -> None:
        for name, rows in (
            ("add_content", self._contents),
            ("add_keyword", self._keywords),
            ("put_vector", self._vectors),
            ("add_whole_chunk", self._whole),
            ("add_chunk", self._chunks),
        ):
            self._rows.many(name, rows)
            rows.clear()

    def add(
        self,
        owner: ChunkOwner,
        page_id: int,
        index: int,
        chunk: NewChunk,
        chunk_id: str,
        known: KnownChunk | None,
        turn: int,
    ) -> tuple[int, int]:
        """Counters of the new chunk in vector and in graphrag."""
        key = text_key(chunk.text_hash)
        if known is None:
            content_id = self._numbers.next()
            self._contents.append((content_id, owner.source_key, key, chunk.text))
            self._keywords.append((content_id, chunk.text))
        else:
            content_id = known.content_id
        vector = self._vector(owner, content_id, chunk, known)
        graph = SKIPPED if not owner.graph else COMPLETED if known and known.extracted else WAITING
        row = NewChunkRow(self._numbers.next(), page_id, content_id, key, chunk_id, index)
        own = row + _TEXT_OF(chunk) + self._document(owner)
        if vector == COMPLETED and graph == SKIPPED and not turn:
            # Nothing is left to do for it: as it will stay, in half the columns.
            self._whole.append(own)
            return vector, graph
        extracted = (known and known.extracted) or (0, 0)
        self._chunks.append((*own, *self._tasks(owner, vector, graph, extracted), turn))
        return vector, graph

    def _document(self, owner: ChunkOwner) -> tuple[Any, ...]:
        if owner is not self._owner:
            self._owner = owner
            self._of_document = ChunkDocument(
                document_id=owner.document_id,
                max_retries=owner.max_retries,
                priority=owner.priority,
                at=self._at,
            )
        return self._of_document

    def _tasks(
        self, owner: ChunkOwner, vector: int, graph: int, extracted: tuple[int, int]
    ) -> tuple[Any, ...]:
        """The task columns of a chunk, computed once for all equal ones."""
        key = (vector, graph, owner.vector_held, owner.graphrag_held, extracted)
        known = self._alike.get(key)
        if known is None:
            entities, relationships = extracted if graph == COMPLETED else (0, 0)
            tasks = ChunkTasks(
                tasks={
                    Phase.VECTOR: self._task(vector, owner.vector_held),
                    Phase.GRAPHRAG: self._task(graph, owner.graphrag_held),
                },
                entities_extracted=entities,
                relationships_extracted=relationships,
            )
            known = self._alike[key] = CHUNK_TASKS.encode(tasks)
        return known

    def _task(self, kind: int, held: str | None) -> ChunkTask:
        return ChunkTask(
            status=_STATUS[kind],
            completed_at=self._at if kind == COMPLETED else None,
            held=held if kind == WAITING else None,
        )

    def _vector(self, owner: ChunkOwner, content_id: int, chunk: NewChunk, known: KnownChunk | None) -> int:
        if owner.space_id is None:
            return SKIPPED
        if known is not None and known.embedded:
            return COMPLETED
        if chunk.vector is None:
            return WAITING
        if chunk.vector:
            self._vectors.append((content_id, owner.space_id, chunk.vector))
        return COMPLETED


class PreparedChunks(NamedTuple):
    """Chunks ready to be written: each with an id and the existing chunk to keep, if any."""

    parts: list[tuple[NewChunk, str, KnownChunk | None]]
    kept: int


class ExistingChunks(NamedTuple):
    """Existing rows of some chunks: by their ids, the hashes of those that are the owner's own, and
    vectors of the cache by hash."""

    known: dict[str, KnownChunk]
    own: list[str]
    cached: dict[str, bytes]


def find(rows: Statements, owner: ChunkOwner, chunks: Sequence[NewChunk]) -> ExistingChunks:
    known, own, embedded = _known(rows, owner, chunks) if owner.relatives else ({}, [], {})
    unembedded = [chunk.text_hash for chunk in chunks if chunk.vector is None]
    if owner.space_id is None or not unembedded:
        return ExistingChunks(known, own, {})
    wanted = [text for text, times in Counter(unembedded).items() if times > embedded.get(text, 0)]
    if not wanted:
        return ExistingChunks(known, own, {})
    cached = rows.all("cached_vectors", owner.tenant_id, owner.space_id, listed(wanted))
    return ExistingChunks(known, own, dict(cached))


def prepare(
    owner: ChunkOwner, chunks: Sequence[NewChunk], there: ExistingChunks, unwritten: Iterable[str] = ()
) -> PreparedChunks:
    """Assign chunk ids and find texts and vectors already stored.

    ``unwritten``: hashes of chunks of the same generation that are collected but not written yet.
    """
    ids = ChunkIds(owner.tenant_id, owner.source_id, [*there.own, *unwritten])
    parts = []
    kept = 0
    for given in chunks:
        chunk, chunk_id = given, ids.next(given.text_hash)
        found = there.known.get(chunk_id)
        kept += found is not None
        if there.cached and chunk.vector is None and chunk.text_hash in there.cached:
            chunk = msgspec.structs.replace(chunk, vector=there.cached[chunk.text_hash])
        parts.append((chunk, chunk_id, found))
    return PreparedChunks(parts, kept)


def _known(
    rows: Statements, owner: ChunkOwner, chunks: Iterable[NewChunk]
) -> tuple[dict[str, KnownChunk], list[str], dict[str, int]]:
    """Known chunks by id, the text hashes of the owner's chunks, and the vectors for each hash."""
    about = {
        document_id: (space_id, fingerprint)
        for document_id, space_id, fingerprint in rows.all("known_documents", listed(owner.relatives))
    }
    known: dict[str, KnownChunk] = {}
    own: list[str] = []
    with_vector: dict[str, str] = {}
    keys = listed({text_key(chunk.text_hash) for chunk in chunks})
    for row in rows.all("known_chunks", listed(owner.relatives), keys):
        chunk_id, content_id, document_id, vector, graphrag, entities, relationships, hash_of_text = row
        if document_id == owner.document_id:
            own.append(hash_of_text)
            continue
        space_id, fingerprint = about[document_id]
        embedded = vector == "completed" and space_id == owner.space_id
        extracted = graphrag == "completed" and fingerprint == owner.graphrag_fingerprint
        before = known.get(chunk_id)
        if before is None or embedded > before.embedded:
            known[chunk_id] = KnownChunk(
                content_id, embedded, (entities, relationships) if extracted else None
            )
        if embedded:
            with_vector[chunk_id] = hash_of_text
    return known, own, Counter(with_vector.values())


class Spaces:
    """Vector spaces by name; made when first seen."""

    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._known: dict[str, tuple[int, int | None]] = {}

    def number(self, name: str | None, vectors: Iterable[bytes | None] = ()) -> int | None:
        """The number of a space, after checking the lengths of all vectors."""
        if name is None:
            return None
        lengths = {len(vector) for vector in vectors if vector}
        number, dimension = self._known.get(name) or self._look_up(name)
        if dimension is None and lengths:
            self._rows.hold("space", name)
            number, dimension = self._look_up(name)
        if dimension is None and lengths:
            dimension = max(lengths) // FLOAT32
            self._rows.send("set_dimension", dimension, number)
        if lengths and lengths != {(dimension or 0) * FLOAT32}:
            raise InvalidVector(
                f"space {name[:100]} holds vectors of {dimension} float32, got {sorted(lengths)} bytes"
            )
        self._known[name] = (number, dimension)
        return number

    def _look_up(self, name: str) -> tuple[int, int | None]:
        found = self._rows.one("space", name)
        if found is not None:
            number, dimension = found
            return number, dimension
        number = int(self._rows.value("free_space"))
        if number > MOST_SPACES:
            raise InvalidRequest(
                f"there are {MOST_SPACES} vector spaces already",
                remedy="Remove or rebuild what is in spaces no longer used; upkeep then frees them.",
            )
        self._rows.send("add_space", number, name, None)
        return number, None


def owner_of(
    rows: Statements,
    spaces: Spaces,
    document: DocumentRow,
    chunks: Iterable[NewChunk],
    older: Iterable[int] = (),
) -> ChunkOwner:
    """The owner of chunks that are added to a generation being built. ``older``: earlier generations that may
    have the same chunks, besides the published one."""
    held = None
    if document.gate == Gate.DOCUMENT:
        held = "gate"
    elif rows.value("any_leftover", document.source_key):
        held = "outbox"
    if document.space_id is not None:
        spaces.number(rows.value("space_name", document.space_id), (chunk.vector for chunk in chunks))
    relatives = {document.id, document.published_id, *older}
    return ChunkOwner(
        document_id=document.id,
        source_key=document.source_key,
        source_id=document.source_id,
        tenant_id=document.place.tenant_id,
        space_id=document.space_id,
        graph=document.graph,
        graphrag_fingerprint=document.fingerprints.graphrag,
        priority=document.priority,
        max_retries=document.max_retries,
        relatives=tuple(number for number in relatives if number is not None),
        vector_held=held,
        graphrag_held="gate" if document.gate == Gate.DOCUMENT else None,
    )
