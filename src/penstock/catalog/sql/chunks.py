"""Chunks of a generation: texts and vectors of the source's family are reused, the rest is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import and_
from typing import Any, TypeAlias

import msgspec

from penstock.catalog.rules.identity import ChunkIds, text_key
from penstock.catalog.rules.phases import (
    CHUNK_PHASES,
    LATER_PHASES,
    PHASES,
    RECOGNITIONS_PER_TURN,
    PerChunkPhase,
    WantedPhases,
    turns,
)
from penstock.catalog.rules.publication import COMPLETED, SKIPPED, WAITING
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql.generations import DocumentRow, SourceRow
from penstock.catalog.sql.statements import Row, RowType, Statements, listed, readable
from penstock.catalog.values import Fingerprints, Gate, NewChunk, NewGeneration, NewPage, Phase, Place
from penstock.errors import InvalidRequest, InvalidVector


class FamilyMember(msgspec.Struct, frozen=True):
    """A published source of a family. Other sources of the family can share the texts."""

    family_key: int
    source_id: str
    published_id: int


class NewChunkRow(msgspec.Struct, frozen=True):
    """The first columns of a new chunk; ``ChunkText`` and ``ChunkDocument`` follow."""

    chunk_key: int
    page_id: int
    content_id: int
    text_key: int
    chunk_id: str
    chunk_index: int


class ChunkText(msgspec.Struct, frozen=True):
    """The columns of a new chunk taken from ``NewChunk``."""

    text_hash: str
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str


class ChunkDocument(msgspec.Struct, frozen=True):
    """The columns common to all new chunks of a document."""

    document_id: int
    max_retries: int
    priority: int
    at: str


class ChunkTask(msgspec.Struct, frozen=True):
    status: str
    completed_at: str | None
    held: str | None


class ChunkTasks(msgspec.Struct, frozen=True):
    """The task columns of a new chunk."""

    tasks: PerChunkPhase[ChunkTask]
    entities_extracted: int
    relationships_extracted: int


class PageText(msgspec.Struct, frozen=True):
    """The kept Markdown of a page. ``warnings``: a JSON list."""

    page_id: int
    text: str
    engine: str
    confidence: float | None
    warnings: str


_FAMILY_MEMBER = RowType(FamilyMember)
_NEW_CHUNK_ROW = RowType(NewChunkRow)
_CHUNK_TEXT = RowType(
    ChunkText, renamed={"text_hash": "chunk_content_hash", "start": "start_char", "end": "end_char"}
)
_CHUNK_DOCUMENT = RowType(ChunkDocument)
_CHUNK_TASKS = RowType(ChunkTasks)
_PAGE_TEXT = RowType(PageText)


class Families:
    """The families of the sources of one call of ``store``.

    A family is of sources of several branches that share texts, keyword entries, vectors and entities. A
    source is in a family of its own, or in that of the related source that it was first stored with. A family
    has at most one source in each branch of a collection.
    """

    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._of_new: dict[tuple[Place, str], int] = {}
        self._members: dict[int, list[FamilyMember]] = {}

    def look_up(
        self, generations: Iterable[NewGeneration], found: Mapping[tuple[Place, str], SourceRow]
    ) -> None:
        """Find the families, and lock families with texts of other sources until the end of the transaction:
        a sweep of these texts then sees the generations that share them."""
        new = [each for each in generations if (each.place, each.path) not in found]
        self._join([each for each in new if each.related_id is not None])
        own = {source.family_key: source.source_id for source in found.values()}
        joined = set(self._of_new.values())
        members = self._read(joined | own.keys())
        shared = {each.family_key for each in members if own.get(each.family_key) != each.source_id}
        if not shared:
            return
        self._rows.hold("families", listed(sorted(shared)))
        for member in self._read(shared):
            self._members.setdefault(member.family_key, []).append(member)

    def of_new(self, new: NewGeneration, source_key: int) -> int:
        """The family of a new source: the family of a related source, or a new one."""
        return self._of_new.get((new.place, new.path), source_key)

    def others(self, family_key: int, source_id: str) -> dict[int, str]:
        """Published generations of the other sources of a family, with the ids of these sources."""
        members = self._members.get(family_key, ())
        return {each.published_id: each.source_id for each in members if each.source_id != source_id}

    def _join(self, related: list[NewGeneration]) -> None:
        if not related:
            return
        families: dict[tuple[str, str], int] = {}
        for tenant_id in {new.place.tenant_id for new in related}:
            ids = [new.related_id for new in related if new.place.tenant_id == tenant_id]
            for source_id, family_key in self._rows.all("related_families", tenant_id, listed(ids)):
                families[tenant_id, source_id] = family_key
        places = self._rows.all("family_places", listed(set(families.values())))
        taken = {(family_key, Place(*place)) for family_key, *place in places}
        for new in related:
            family = families.get((new.place.tenant_id, new.related_id or ""))
            if family is not None and (family, new.place) not in taken:
                taken.add((family, new.place))
                self._of_new[new.place, new.path] = family

    def _read(self, families: Iterable[int]) -> list[FamilyMember]:
        keys = listed(families)
        return _FAMILY_MEMBER.decode_all(self._rows.all("family_members", keys)) if keys != "[]" else []


def _translated_ids(
    tenant_id: str, source_id: str, shared: Mapping[int, str], chunks: Iterable[tuple[int, str]]
) -> dict[str, str]:
    """The ids that chunks of other sources, by document and text hash, would have in a source.

    Ids are made of the source, the text, and the number of equal texts before. So a text of the family is
    always the same one of several equal texts, and no generation has it twice.
    """
    times = Counter(
        (document_id, hash_of_text) for document_id, hash_of_text in chunks if document_id in shared
    )
    theirs = {document_id: ChunkIds(tenant_id, other) for document_id, other in shared.items()}
    own = ChunkIds(tenant_id, source_id)
    ids: dict[str, list[str]] = {}
    translated = {}
    for (document_id, hash_of_text), count in times.items():
        ours = ids.setdefault(hash_of_text, [])
        ours += [own.next(hash_of_text) for _ in range(count - len(ours))]
        for number in range(count):
            translated[theirs[document_id].next(hash_of_text)] = ours[number]
    return translated


def turns_of_pages(
    rows: Statements, pages: Sequence[NewPage], priority: int, first: int = 0, given: int = 0
) -> tuple[int, list[int]]:
    """Turns for the pages of a document in lane ocr, and the document's new first turn; see ``turns``.

    Pages to be recognized wait in a line of their own.
    """
    first, numbers = turns(first, given, rows.value("head_ocr", priority, False), len(pages))
    if not any(page.needs_ocr for page in pages):
        return first, numbers
    head = rows.value("head_ocr", priority, True)
    _, slow = turns(0, given, head, len(pages), RECOGNITIONS_PER_TURN)
    return first, [slow[at] if page.needs_ocr else numbers[at] for at, page in enumerate(pages)]


def kept_texts(page_id: int, page: NewPage) -> list[Row]:
    """The row of a page's text, if kept."""
    if page.text is None:
        return []
    warnings = listed([readable(warning) for warning in page.warnings])
    text = PageText(page_id, page.text, readable(page.engine), page.confidence, warnings)
    return [_PAGE_TEXT.encode(text)]


_FLOAT32 = 4
_MOST_SPACES = 255


class Spaces:
    """Vector spaces by name, each with a number and a dimension; made when first seen."""

    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._known: dict[str, tuple[int, int | None]] = {}
        self.outside = False
        """True if a store outside the catalog holds a copy of each vector. Known once a space was."""

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
            dimension = max(lengths) // _FLOAT32
            self._rows.send("set_dimension", dimension, number)
        if lengths and lengths != {(dimension or 0) * _FLOAT32}:
            raise InvalidVector(
                f"space {name[:100]} holds vectors of {dimension} float32, got {sorted(lengths)} bytes"
            )
        self._known[name] = (number, dimension)
        return number

    def _look_up(self, name: str) -> tuple[int, int | None]:
        found = self._rows.one("space", name)
        if found is not None:
            number, dimension, outside = found
            self.outside = bool(outside)
            return number, dimension
        number = int(self._rows.value("free_space"))
        if number > _MOST_SPACES:
            raise InvalidRequest(
                f"there are {_MOST_SPACES} vector spaces already",
                remedy="Remove or rebuild what is in spaces no longer used; upkeep then frees them.",
            )
        self._rows.send("add_space", number, name, None)
        return self._look_up(name)


def remember(rows: Statements, tenant_id: str, space: str, vectors: Mapping[str, bytes], at: str) -> None:
    space_id = Spaces(rows).number(space, vectors.values())
    rows.many("remember", [(tenant_id, space_id, text, at, vector) for text, vector in vectors.items()])


_STATUS = {COMPLETED: "completed", WAITING: "pending", SKIPPED: "skipped"}
_TEXT_OF = _CHUNK_TEXT.values_of
_ONLY_VECTOR = {kind: (kind, *[SKIPPED for _ in LATER_PHASES]) for kind in _STATUS}
"""The kinds of a chunk in each chunk phase, where none after vector is wanted."""
_EXTRACTS = [PHASES[phase].extracts for phase in LATER_PHASES]
_NOT_HELD: tuple[str | None, ...] = (None,) * len(CHUNK_PHASES)
OUTBOX_HELD = ("outbox", *_NOT_HELD[1:])
"""Only vectors are written to outside stores, which are cleared first."""


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
    family_key: int
    tenant_id: str
    space_id: int | None
    fingerprints: Fingerprints
    wanted: WantedPhases
    priority: int
    max_retries: int
    relatives: tuple[int, ...] = ()
    """Generations of the source that may have the same chunks; itself when its chunks come in parts."""
    shared: Mapping[int, str] = {}
    """Published generations of the family's other sources, with the ids of these sources."""
    outside: bool = False
    """True if an outside store has vectors too: only tasks, which write there first, end them."""
    held: tuple[str | None, ...] = _NOT_HELD
    """For each chunk phase the reason its tasks cannot be claimed yet."""

    @property
    def wants_later(self) -> bool:
        """Check whether a phase after vector is wanted."""
        return any(self.wanted[1:])


class KnownChunk(msgspec.Struct, frozen=True):
    """A chunk some live generation has."""

    content_id: int
    embedded: bool
    done: tuple[bool, ...] = ()
    """For each later phase whether its result can be kept; empty: none is wanted."""
    extracted: tuple[int, int] = (0, 0)
    """Entities and relationships found in it."""


class ChunkRows:
    """Chunk, text, keyword and vector rows, collected and written together."""

    def __init__(
        self, rows: Statements, numbers: RowNumbers, at: str, keyword_texts: Mapping[str, str] | None = None
    ) -> None:
        """``keyword_texts``: those already made, by text hash."""
        self._rows = rows
        self._numbers = numbers
        self._at = at
        self._keyword_texts = keyword_texts or {}
        self._contents: list[tuple[Any, ...]] = []
        self._keywords: list[tuple[Any, ...]] = []
        self._vectors: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._whole: list[tuple[Any, ...]] = []
        self._alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._owner: ChunkOwner | None = None
        self._wants_later = False
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
    ) -> tuple[int, ...]:
        """Add a chunk; return the chunk's counter in each chunk phase."""
        key = text_key(chunk.text_hash)
        if known is None:
            content_id = self._numbers.next()
            self._contents.append((content_id, owner.family_key, key, chunk.text))
            words = self._keyword_texts.get(chunk.text_hash)
            self._keywords.append((content_id, keyword_text(chunk.text) if words is None else words))
        else:
            content_id = known.content_id
        vector = self._vector(owner, content_id, chunk, known)
        row = NewChunkRow(self._numbers.next(), page_id, content_id, key, chunk_id, index)
        own = _NEW_CHUNK_ROW.encode(row) + _TEXT_OF(chunk) + self._document(owner)
        kinds = _ONLY_VECTOR[vector]
        if self._wants_later:
            kinds = (vector, *_later(owner, known))
        elif vector == COMPLETED and not turn:
            # Nothing is left to do for it: as it will stay, in half the columns.
            self._whole.append(own)
            return kinds
        extracted = known.extracted if known else (0, 0)
        self._chunks.append((*own, *self._tasks(owner, kinds, extracted), turn))
        return kinds

    def _document(self, owner: ChunkOwner) -> tuple[Any, ...]:
        if owner is not self._owner:
            self._owner = owner
            self._wants_later = owner.wants_later
            self._of_document = _CHUNK_DOCUMENT.encode(
                ChunkDocument(
                    document_id=owner.document_id,
                    max_retries=owner.max_retries,
                    priority=owner.priority,
                    at=self._at,
                )
            )
        return self._of_document

    def _tasks(
        self, owner: ChunkOwner, kinds: tuple[int, ...], extracted: tuple[int, int]
    ) -> tuple[Any, ...]:
        """The task columns of a chunk, computed once for all equal ones."""
        key = (kinds, owner.held, extracted)
        known = self._alike.get(key)
        if known is None:
            entities, relationships = extracted
            tasks = ChunkTasks(
                tasks={
                    phase: self._task(kind, held)
                    for phase, kind, held in zip(CHUNK_PHASES, kinds, owner.held, strict=True)
                },
                entities_extracted=entities,
                relationships_extracted=relationships,
            )
            known = self._alike[key] = _CHUNK_TASKS.encode(tasks)
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


def _later(owner: ChunkOwner, known: KnownChunk | None) -> Iterator[int]:
    """The kinds of a chunk in the phases after vector."""
    done = known.done if known is not None and known.done else [False] * len(LATER_PHASES)
    for is_wanted, is_done in zip(owner.wanted[1:], done, strict=True):
        yield SKIPPED if not is_wanted else COMPLETED if is_done else WAITING


PreparedChunk: TypeAlias = tuple[NewChunk, str, KnownChunk | None]


class PreparedChunks(msgspec.Struct, frozen=True):
    """Chunks ready to be written: each with an id and the existing chunk to keep, if any."""

    parts: list[PreparedChunk]
    kept: int


def to_embed(part: PreparedChunk) -> bool:
    chunk, _, known = part
    return chunk.vector is None and not (known is not None and known.embedded)


def hold_by_gate(owner: ChunkOwner, prepared: PreparedChunks, *, unread: bool) -> None:
    """Hold the tasks of each phase while the phase before is not done for all chunks of the document."""
    undone = [any(map(to_embed, prepared.parts))]
    for at in range(len(LATER_PHASES)):
        undone.append(not all(known and known.done and known.done[at] for _, _, known in prepared.parts))
    unfinished: dict[Phase | None, bool] = {Phase.OCR: unread}
    for phase, is_wanted, is_undone in zip(CHUNK_PHASES, owner.wanted, undone, strict=True):
        unfinished[phase] = is_wanted and (unread or is_undone)
    owner.held = tuple(
        "gate" if unfinished[PHASES[phase].after] else held
        for phase, held in zip(CHUNK_PHASES, owner.held, strict=True)
    )


class ExistingChunks(msgspec.Struct, frozen=True):
    """Existing rows of some chunks: those of other generations by their ids, the number of the owner's own
    for each hash, and vectors of the cache by hash."""

    known: dict[str, KnownChunk]
    own: Mapping[str, int]
    cached: dict[str, bytes]


def find(
    rows: Statements,
    owner: ChunkOwner,
    chunks: Sequence[NewChunk],
    own: Mapping[str, int] | None = None,
) -> ExistingChunks:
    """Look up existing chunks with these texts. ``own``: the number of the owner's own, if known."""
    keys = (
        {chunk.text_hash: text_key(chunk.text_hash) for chunk in chunks}
        if owner.relatives or owner.shared
        else {}
    )
    known, embedded = _known(rows, owner, keys)
    own = _own(rows, owner, keys) if own is None else own
    unembedded = [chunk.text_hash for chunk in chunks if chunk.vector is None]
    if owner.space_id is None or owner.outside or not unembedded:
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
    seen = dict(there.own)
    for hash_of_text in unwritten:
        seen[hash_of_text] = seen.get(hash_of_text, 0) + 1
    ids = ChunkIds(owner.tenant_id, owner.source_id, seen)
    parts = []
    kept = 0
    for given in chunks:
        chunk, chunk_id = given, ids.next(given.text_hash)
        found = there.known.get(chunk_id)
        kept += found is not None
        if owner.outside and chunk.vector:
            chunk = msgspec.structs.replace(chunk, vector=None)
        elif there.cached and chunk.vector is None and chunk.text_hash in there.cached:
            chunk = msgspec.structs.replace(chunk, vector=there.cached[chunk.text_hash])
        parts.append((chunk, chunk_id, found))
    return PreparedChunks(parts, kept)


def _own(rows: Statements, owner: ChunkOwner, keys: Mapping[str, int]) -> dict[str, int]:
    """The number of chunks the owner already has, for each hash of a text.

    They are counted in the index: a text may repeat in each part of a large document.
    """
    if owner.document_id not in owner.relatives:
        return {}
    found: dict[int, int] = dict(rows.all("own_texts", owner.document_id, listed(set(keys.values()))))
    return {hash_of_text: found[key] for hash_of_text, key in keys.items() if key in found}


def _known(
    rows: Statements, owner: ChunkOwner, keys: Mapping[str, int]
) -> tuple[dict[str, KnownChunk], dict[str, int]]:
    """Chunks of other generations by id, and the number of their vectors for each hash of a text."""
    others = [number for number in owner.relatives if number != owner.document_id] + list(owner.shared)
    if not others:
        return {}, {}
    about = {
        document_id: (space_id, fingerprints)
        for document_id, space_id, *fingerprints in rows.all("known_documents", listed(others))
    }
    wanted = [getattr(owner.fingerprints, phase) for phase in LATER_PHASES] if owner.wants_later else None
    known: dict[str, KnownChunk] = {}
    with_vector: dict[str, str] = {}
    found = rows.all("known_chunks", listed(others), listed(set(keys.values())))
    texts = [(document_id, text) for _, _, document_id, _, _, text, *_ in found] if owner.shared else ()
    translated = _translated_ids(owner.tenant_id, owner.source_id, owner.shared, texts)
    for row in found:
        found_id, content_id, document_id, entities, relationships, hash_of_text, vector, *later = row
        chunk_id = translated.get(found_id) or found_id
        space_id, fingerprints = about[document_id]
        embedded = vector == "completed" and space_id == owner.space_id
        before = known.get(chunk_id)
        if before is None or embedded > before.embedded:
            known[chunk_id] = KnownChunk(content_id, embedded)
            if wanted is not None:
                done = [
                    status == "completed" and made == want
                    for status, made, want in zip(later, fingerprints, wanted, strict=True)
                ]
                kept = any(map(and_, done, _EXTRACTS))
                extracted = (entities, relationships) if kept else (0, 0)
                known[chunk_id] = KnownChunk(content_id, embedded, tuple(done), extracted)
        if embedded:
            with_vector[chunk_id] = hash_of_text
    return known, Counter(with_vector.values())


def owner_of(
    rows: Statements,
    spaces: Spaces,
    document: DocumentRow,
    chunks: Iterable[NewChunk],
    older: Iterable[int] = (),
) -> ChunkOwner:
    """The owner of chunks that are added to a generation being built. ``older``: earlier generations that may
    have the same chunks, besides the published one."""
    held = _NOT_HELD
    if document.gate == Gate.DOCUMENT:
        held = ("gate",) * len(held)
    elif rows.value("any_leftover", document.source_key):
        held = OUTBOX_HELD
    if document.space_id is not None:
        spaces.number(rows.value("space_name", document.space_id), (chunk.vector for chunk in chunks))
    relatives = {document.id, document.published_id, *older}
    return ChunkOwner(
        document_id=document.id,
        source_key=document.source_key,
        source_id=document.source_id,
        family_key=document.family_key,
        tenant_id=document.place.tenant_id,
        space_id=document.space_id,
        fingerprints=document.fingerprints,
        wanted=document.wanted,
        priority=document.priority,
        max_retries=document.max_retries,
        relatives=tuple(number for number in relatives if number is not None),
        outside=spaces.outside,
        held=held,
    )


def forget_words(rows: Statements, content_ids: Iterable[int]) -> None:
    """Remove texts from the keyword index. SQLite needs their words for it, so the texts go later."""
    texts = rows.all("text_of", listed(content_ids))
    rows.many("delete_keyword", [(number, text and keyword_text(text)) for number, text in texts])
