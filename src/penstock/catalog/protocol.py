"""The catalog protocol: indexed sources, and the durable tasks behind them.

The contract stands here once; engines carry no docstrings of their own for these methods. ``now=None`` is the
store's own clock; only tests pass a time. Every write is one transaction (those that take a ``limit`` do part
of the work and say whether there is more), durable before the call returns. Engines raise only
``FingerprintMismatch``, ``UnknownDocument``, ``InvalidVector``, ``InvalidText`` and subclasses of
``StoreError``.

Reading goes through ``snapshot``: everything read from one snapshot belongs to the same moment. A generation
becomes visible by one update of its source's row, so no snapshot sees a half of one or two of a source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol, TypeVar

from penstock.catalog.graph import GraphReads
from penstock.catalog.parts import CatalogParts
from penstock.catalog.values import (
    Adoption,
    ChunkOrigins,
    ChunkState,
    ChunkView,
    Document,
    DocumentEvent,
    Filters,
    HeldTask,
    Holding,
    KeywordHit,
    KnownSource,
    LedgerEntry,
    MissingPart,
    Move,
    NewGeneration,
    NewPage,
    OutboxEntry,
    OutboxEntryKind,
    PageState,
    PathReport,
    Phase,
    Place,
    Progress,
    PublishedCount,
    PublishedPath,
    RecognizedPages,
    Removal,
    RemovalResult,
    Rename,
    RenameResult,
    Source,
    SourceMark,
    Space,
    StoreResult,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskStatus,
    TenantCount,
    TokenUse,
    Touch,
    VectorBatch,
    VectorChanges,
    Walk,
)
from penstock.errors import InvalidRequest

BATCH = 1_000
"""Default number of sources removed or renamed in one transaction."""

SWEPT = 256
"""Default number of chunks swept in one transaction: other writers wait meanwhile."""


class CatalogSnapshot(GraphReads, Protocol):
    """One moment of the catalog. Not for several threads at once."""

    def keyword(
        self,
        query: str,
        filters: Filters,
        *,
        limit: int = 10,
        marks: tuple[str, str] = ("", ""),
        snippets: int | None = None,
    ) -> list[KeywordHit]:
        """Best published chunks for words in ``query`` (any of them; "quoted words" as a phrase), best first.
        Nothing in the query is an operator; a query without a word finds nothing. Only the first
        ``snippets`` (None: all) get one: making it costs more than finding the chunk."""

    def snippets(
        self, query: str, content_ids: Sequence[int], marks: tuple[str, str] = ("", "")
    ) -> dict[int, str]:
        """Snippets as in ``keyword``, of those of these chunks that hold a word of ``query``."""

    def words_in(self, query: str, content_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """The words and quoted phrases of ``query`` that each of these chunks holds, compared as ``keyword``
        does; chunks that hold none are left out."""

    def holding(self, words: Sequence[str], filters: Filters, *, most: int) -> dict[str, Holding]:
        """Published chunks with each of these words, of the first ``most`` in the index; see ``Holding``."""

    def known(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[KnownSource]:
        """Sources at or below a folder (None: all of the place) in the order of their paths, from the first
        path greater than ``after``. What a walk compares the disk with."""

    def twins(
        self, place: Place, files: Collection[tuple[int, int]], *, limit: int = 10 * BATCH
    ) -> list[KnownSource]:
        """Published sources of the same size and time as these files (10,000 at most); then, for files
        with content, up to ``limit`` sources of the same size alone. Candidates for move detection."""

    def find(self, place: Place, path: str) -> Source | None: ...

    def find_all(self, place: Place, paths: Collection[str]) -> dict[str, Source]:
        """The sources at these paths, by path; paths without a source are left out."""

    def get(self, source_id: str) -> Source | None: ...

    def identified(self, text: str) -> Source | None:
        """The source with this id, or the source of the document with this id or number: of any version."""

    def sources(
        self,
        filters: Filters,
        *,
        after: str = "",
        limit: int = 50,
        failed: bool = False,
        newest_first: bool = False,
    ) -> list[Source]:
        """Sources with a published generation, ordered by id, beginning after the id ``after``.
        ``failed``: also those that have none because their content failed for good; oldest first only."""

    def document(self, document_id: int) -> Document | None: ...

    def generations(self, source_id: str) -> list[Document]:
        """All generations still there, newest first."""

    def newest(self, *, after: int = 0, limit: int = 100) -> list[Document]:
        """List generations of all tenants with a number above ``after``, newest first."""

    def events(self, tenant_id: str, source_id: str) -> list[DocumentEvent]:
        """The history of a tenant's source after the first indexing, oldest first; also of a removed one."""

    def formerly(self, place: Place, path: str) -> str | None:
        """The id of the last source at a path with no source now."""

    def pages(self, document_id: int, *, after: int = -1, limit: int = 100) -> list[PageState]:
        """Pages by number, from the first number greater than ``after``."""

    def page_statuses(self, document_id: int) -> list[tuple[int, Sequence[str]]]:
        """List number and status in each phase of all pages, by number."""

    def chunks(self, page_id: int) -> list[ChunkState]:
        """The chunks of a page, in order."""

    def content(self, document_id: int, page: int | None = None) -> tuple[NewPage, ...]:
        """The pages of a completely read generation, in the form ``store`` takes, without vectors; or only
        the page of this number."""

    def missing(self, document_id: int, *, limit: int = 100) -> list[MissingPart]:
        """The pages and chunks with a permanent failure in ocr or vector."""

    def progress(self, document_id: int) -> Progress | None: ...

    def made(self, document_id: int) -> ChunkOrigins:
        """Reads every chunk: for the end of a document, not for status pages."""

    def statistics(self) -> dict[tuple[str, TaskStatus], int]:
        """Tasks by type (``ocr_pages``, ``vector_chunks``, …) and status."""

    def ready(self, phase: Phase, *, limit: int = 100) -> list[Progress]:
        """Documents pending in a chunk phase with the phase before completed."""

    def tenants(self, tenant_id: str | None = None) -> list[TenantCount]: ...

    def branches(self, tenant_id: str, collection: str) -> list[str]:
        """The branches with sources, by name. Costs a few reads for each branch, independent of size."""

    def known_count(self, place: Place, folder: str, *, most: int) -> int:
        """Count the known sources below a folder, up to ``most`` of them."""

    def published_since(self, place: Place, folder: str, since: datetime) -> PublishedCount:
        """Count the sources below a folder published at this time or later. Reads all of them."""

    def published_below_dots(self, place: Place, folder: str, since: datetime) -> list[PublishedPath]:
        """Sources below a folder that were published at this time or later, as far as a folder in their
        path, or the last name of ``folder``, has a dot in its name. Such a folder may be a container file."""

    def recognized(self, place: Place, path: str, since: datetime, low: float) -> RecognizedPages:
        """Count recognized pages of the sources at or below a path that were published at this time or
        later. Those with a confidence below ``low`` are counted apart."""

    def page_warnings(self, document_id: int, *, limit: int) -> dict[int, tuple[str, ...]]:
        """Warnings of the first pages with warnings in a generation, by page number."""

    def open_tasks(self, lane: Phase) -> int:
        """Tasks of a lane not settled yet, counted no further than 10,000: bounds work in flight."""

    def expected(self, place: Place, path: str) -> str | None:
        """The place a delivered file was read from, for a path recorded by ``expect``."""

    def walks(self, place: Place, path: str) -> list[Walk]:
        """The walks announced for a path or for a folder above."""

    def why(self, place: Place, path: str) -> PathReport: ...

    def ledger(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[LedgerEntry]:
        """Skipped and failed paths at or below a folder, by path."""

    def failures(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[LedgerEntry]:
        """Failed paths at or below a folder, by path; paths left out by a rule are not read."""

    def fingerprints(self) -> dict[Phase, str]: ...

    def tokens_used(self, tenant_id: str, service: str, month: str) -> int: ...

    def token_uses(self, tenant_id: str | None, month: str) -> list[TokenUse]:
        """Tokens of a month by tenant (None: all), service and job; of a tenant the largest first."""

    def vectors(
        self, tenant_id: str, space: str, hashes: Collection[str], *, source_id: str | None = None
    ) -> dict[str, bytes]:
        """Known vectors by text hash: from the cache, and from live generations of the source's family."""

    def matching(self, filters: Filters) -> list[int] | None:
        """``family_key`` of every published source the filters let through; None: all of the tenant's. Not
        every chunk of a family has to pass, see ``visible``."""

    def visible(self, filters: Filters, content_ids: Sequence[int]) -> set[int]:
        """Ids of published chunks within the filters, out of the given ones."""

    def spaces(self, tenant_id: str | None) -> list[Space]:
        """Spaces with vectors of published chunks (None: of all tenants), largest first."""

    def changes(self, tenant_id: str, since: int | None = None) -> VectorChanges:
        """The changes between sequence ``since`` and this snapshot, for a cache of vectors."""

    def witnesses(self, tenant_id: str, until: int, *, limit: int = 32) -> list[SourceMark]:
        """The last changed sources up to sequence ``until``, newest first. A cache keeps them to notice
        later whether the catalog was replaced by a restored one."""

    def load(
        self, tenant_id: str, space: str, family_keys: Collection[int] | None = None
    ) -> Iterator[VectorBatch]:
        """Vectors of published chunks of some families (None: all of the tenant's), in batches."""

    def hydrate(self, content_ids: Sequence[int], filters: Filters | None = None) -> list[ChunkView | None]:
        """Published chunks by content id; None for a chunk in no published generation that passes the
        filters. Of several sources of a family with the chunk the oldest is shown."""

    def locate(self, source_id: str, chunk_ids: Sequence[str]) -> dict[str, int]:
        """``content_id`` of published chunks by the id outside stores know them by."""


class Catalog(CatalogParts, Protocol):
    def snapshot(self) -> AbstractContextManager[CatalogSnapshot]: ...

    def store(
        self, generations: Sequence[NewGeneration], *, now: datetime | None = None
    ) -> list[StoreResult]:
        """Write generations and return one result for each. Small generations share a transaction. A large
        generation takes several (``portions``) and is published after the last. If the process dies in
        between, the next ``store`` of the path drops the generation, or ``unfinished`` finds it. A generation
        dropped meanwhile by another call is reported as ``building``, unless its note says more.

        One whose pages all have their chunks and whose chunks all have (or find) their vectors is published
        at once. Any other is built by tasks: pages without chunks get ocr tasks, chunks without a vector
        get vector tasks; it is published by the settle that ends its last one. At most one generation per
        source is being built: one of the same hash and fingerprints is adopted (its failed tasks start
        again, the pages given are not used), any other is dropped.

        One with a ``failure`` is kept back: search does not see it, and a former version stays published.

        A chunk whose text (and how often it occurred before) the source had already keeps id and vector.
        """

    def adopt(self, adoption: Adoption, *, now: datetime | None = None) -> bool:
        """Take over a generation being built, or a partial published one, instead of reading the source
        again: failed tasks start again, and the job is notified of the end. False when there is nothing to
        wait for: the generation is complete and nothing had failed, or some of its parts are unwritten."""

    def drop(self, document_id: int, note: str, *, now: datetime | None = None) -> bool:
        """Give up a generation being built; the published one stays. Running tasks lose their claims.
        False when the generation is not being built."""

    def claim(self, request: TaskRequest, *, now: datetime | None = None) -> list[Task]:
        """Up to ``limit`` tasks of a lane become this worker's, across documents: due retries first (each
        spends one retry), then by priority, turn (one turn per 32 tasks of a document) and age. A task whose
        worker was lost is claimed alone. Gates hold: a chunk is there only after its page's ocr, in a
        later phase only after the phase before, with ``Gate.DOCUMENT`` after the whole document's. Raises
        ``FingerprintMismatch`` when the catalog is set to another fingerprint for this lane."""

    def settle(
        self, outcomes: Sequence[TaskOutcome], *, now: datetime | None = None
    ) -> list[TaskStatus | None]:
        """End claims and apply all consequences in one transaction: chunks of pages after ocr, vectors,
        phases skipped after a permanent failure, counters of pages and documents, publication. An outcome
        applies only while its claim number is current; None: the claim was lost."""

    def unfinished(self, *, silent: timedelta, now: datetime | None = None, limit: int = 100) -> list[int]:
        """Large generations without a new part for longer than ``silent``, to be dropped."""

    def renew(self, claims: Sequence[HeldTask | Task], *, now: datetime | None = None) -> list[bool]:
        """A sign of life for claims still held; False where the claim was lost."""

    def expired(self, *, lease: timedelta, now: datetime | None = None, limit: int = 100) -> list[HeldTask]:
        """Claims with no sign of life for longer than the lease, for ``publication.lost`` and ``settle``."""

    def held(self, worker_id: str) -> list[HeldTask]:
        """A worker's claims, for ``publication.released`` (or ``lost``) and ``settle``."""

    def retry(self, document_id: int, *, now: datetime | None = None) -> int:
        """Restart the failed tasks of a document and the tasks skipped after them; return the count. In a
        published document, parts that then succeed appear. 0: nothing had failed, or it is dropped."""

    def touch(self, touches: Sequence[Touch]) -> list[bool]:
        """Update size, time and last request of files with unchanged content.
        False: the source is no longer published."""

    def expect(self, arrivals: Sequence[tuple[Place, str, str]], *, now: datetime | None = None) -> None:
        """Record where delivered files lie before they are moved to their paths: place, path, and the path
        they are read from."""

    def announce(self, walk: Walk) -> None:
        """Record a walk before it starts. An earlier delete that has not run yet must then hear of the walk
        before it removes anything the walk may want."""

    def rename(self, rename: Rename, *, limit: int = BATCH, now: datetime | None = None) -> RenameResult:
        """Give sources their new paths, at most ``limit`` a call. Nothing is read or embedded; ids, chunks
        and vectors stay. What stood at a new path is removed. What was asked for since the rename stays where
        it is; what was asked for before is no longer published at the old path. Raises ``InvalidRequest``
        when a folder would go into itself."""

    def move(
        self, place: Place, moves: Sequence[Move], asked_at: datetime, *, now: datetime | None = None
    ) -> list[bool]:
        """Rename sources after their files were found at other paths, all in one transaction. False: the
        source was left alone, because it changed meanwhile, another source has the new path, or a request
        not older than ``asked_at`` deleted the new path."""

    def remove(self, removal: Removal, *, limit: int = BATCH, now: datetime | None = None) -> RemovalResult:
        """Write a tombstone, then make sources invisible, at most ``limit`` a call, and drop generations
        being built. A generation asked for not later than the tombstone is never published afterwards.
        Rows go through the outbox, sources with the last of theirs. Where walks were announced that were
        asked for later, and not ``heard``, nothing but the tombstone is written, and they are answered."""

    def outbox(
        self, kind: OutboxEntryKind | None = None, *, after: int = 0, limit: int = 100
    ) -> list[OutboxEntry]:
        """Outbox entries: work left over by finished transactions, oldest first."""

    def clear(self, entry_ids: Sequence[int], *, limit: int = SWEPT, now: datetime | None = None) -> bool:
        """Job entries go. Of leftovers, up to ``limit`` chunks are removed with text, keyword entry and
        vector (which goes to the cache); the entry goes with the last. True: nothing of these is left.
        Until then no vector task of a newer generation of that source is claimed."""

    def note(self, entries: Sequence[LedgerEntry], *, now: datetime | None = None) -> None:
        """Record why paths are not indexed. A later ``store`` or ``remove`` of a path deletes the record."""

    def remember(
        self, tenant_id: str, space: str, vectors: Mapping[str, bytes], *, now: datetime | None = None
    ) -> None:
        """Put vectors into the cache by text hash. A crash before the store then costs nothing."""

    def add_tokens(self, uses: Sequence[TokenUse]) -> None:
        """Add tokens to those counted already."""

    def set_fingerprints(self, fingerprints: Mapping[Phase, str], *, replace: bool = False) -> None:
        """Set the fingerprint of phases. Without ``replace``, raises ``FingerprintMismatch`` for a phase with
        another fingerprint."""

    def sweep(self, before: datetime, *, limit: int = BATCH) -> int:
        """Delete tombstones, cached vectors and traces of removals older than ``before``, the history of
        sources removed before then, empty spaces, and tokens counted a year before. Return the number of
        deleted rows."""

    def forget(self, tenant_id: str, *, asked_before: datetime | None = None, limit: int = BATCH) -> bool:
        """Delete the rows of a tenant that outlive the documents, up to ``limit`` of each table: cached
        vectors, counted tokens, the history of removed sources, and ledger, walks, arrivals and tombstones
        not later than ``asked_before`` (None: now), except the tombstone of the whole tenant. True: nothing
        is left."""

    def scrub(self) -> None:
        """Remove traces of deleted rows from the store's files, such as words in the keyword index."""

    def merge_words(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Merge the parts that a growing keyword index consists of, step by step, if it is worth it: the
        lookup of a word reads each part."""

    def repair(self, *, limit: int = BATCH, now: datetime | None = None) -> int:
        """Repair findings of ``audit`` in texts, words and vectors, up to ``limit`` of each; count them.
        Orphans are deleted, missing words written, chunks without a vector queued for embedding."""

    def audit(self) -> list[str]:
        """Every broken invariant in words: orphans, wrong counts, pointers to nothing. Reads everything."""

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have changed, at most ``timeout`` seconds. A hint."""

    def check(self) -> list[str]:
        """Raise when the store cannot be used; answer warnings a person should read."""

    def migrate(self) -> None:
        """Bring the store to this version's schema."""

    def close(self) -> None: ...


def known_below(
    catalog: Catalog, place: Place, folder: str | None = None, after: str = ""
) -> Iterator[KnownSource]:
    """All sources of a place, or at and below a folder, in the order of their paths."""
    return _paged(catalog, lambda snapshot, last: snapshot.known(place, folder, after=last), after)


def ledger_below(catalog: Catalog, place: Place, folder: str) -> Iterator[LedgerEntry]:
    """Iterate over the unindexed paths at and below a folder, by path."""
    return _paged(catalog, lambda snapshot, last: snapshot.ledger(place, folder, after=last))


def failures_below(catalog: Catalog, place: Place, folder: str | None = None) -> Iterator[LedgerEntry]:
    """Iterate over the failed paths at and below a folder, by path."""
    return _paged(catalog, lambda snapshot, last: snapshot.failures(place, folder, after=last))


_Listed = TypeVar("_Listed", KnownSource, LedgerEntry)


def _paged(
    catalog: Catalog, read: Callable[[CatalogSnapshot, str], list[_Listed]], after: str = ""
) -> Iterator[_Listed]:
    while True:
        # A snapshot each time: it takes long, and an old one would keep the log from shrinking.
        with catalog.snapshot() as snapshot:
            page = read(snapshot, after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path


class CatalogCursor:
    """Known sources below a root, for a walk: both are read in the order of paths."""

    def __init__(self, catalog: Catalog, place: Place, root: str) -> None:
        self._sources = known_below(catalog, place, root)
        self._next = next(self._sources, None)
        self.any = self._next is not None

    def before(self, path: str) -> Iterable[KnownSource]:
        if self._next is None or self._next.path >= path:
            # The most frequent case: the next known file is the next one found.
            return ()
        return self._until(path)

    def _until(self, path: str) -> Iterator[KnownSource]:
        while self._next is not None and self._next.path < path:
            yield self._next
            self._next = next(self._sources, None)

    def at(self, path: str) -> KnownSource | None:
        if self._next is None or self._next.path != path:
            return None
        found, self._next = self._next, next(self._sources, None)
        return found

    def rest(self) -> Iterator[KnownSource]:
        while self._next is not None:
            yield self._next
            self._next = next(self._sources, None)


_LONGEST = 4_096
"""Characters; the longest path of a Linux system call."""

_BRACKET = r"\[([!^]?+)(.[^\]]*)\]"
_MEMBER = r"(.)(?:-(.))?"
_NOTHING = "$x"
"""Matches no path."""


def check(glob: str) -> None:
    """Refuse a glob longer than any path."""
    if len(glob) > _LONGEST:
        raise InvalidRequest(
            f"the path filter has {len(glob):,} characters; the limit is {_LONGEST:,}",
            remedy="Use a shorter glob, such as '*/guides/*'.",
        )


def posix_expression(glob: str) -> str:
    """The glob as a PostgreSQL regular expression; the matcher there does not backtrack."""
    return f"^{''.join('.*' if piece == '*' else piece for piece in _pieces(glob))}$"


@lru_cache(maxsize=64)
def compiled(glob: str) -> re.Pattern[str]:
    """A regular expression of Python for ``match``. No part between two stars is tried again once found."""
    parts = [""]
    for piece in _pieces(glob):
        if piece == "*":
            parts.append("")
        else:
            parts[-1] += piece
    first, *others = parts
    # Parts have a fixed length, so the first place of each leaves the most for the rest.
    between = "".join(f"(?>.*?{part})" for part in others[:-1])
    end = f".*{others[-1]}" if others else ""
    return re.compile(rf"{first}{between}{end}\Z", re.DOTALL)


def matches(glob: str | None, path: str | None) -> bool:
    """Check whether a path matches a glob. SQLite calls this function for ``path GLOB glob``.

    ``*`` crosses slashes, ``?`` is a character, ``[a-c]`` and ``[^a-c]`` one of a set. Each store matches in
    time proportional to glob times path at most.
    """
    return glob is not None and path is not None and compiled(glob).match(path) is not None


def _pieces(glob: str) -> list[str]:
    """Regular expressions of one character each, and ``*`` for one star or several in a row."""
    pieces: list[str] = []
    place = 0
    closed = glob.rfind("]")
    while place < len(glob):
        one = glob[place]
        if one == "[" and place + 1 < closed:
            bracket = re.compile(_BRACKET, re.DOTALL).match(glob, place)
            if bracket is None:  # the only bracket after it is one of its characters
                return [_NOTHING]
            pieces.append(_some(bracket[1], bracket[2]))
            place = bracket.end()
            continue
        if one != "*":
            pieces.append("." if one == "?" else _literal(one))
        elif pieces[-1:] != ["*"]:
            pieces.append("*")
        place += 1
    return pieces


def _some(negation: str, inside: str) -> str:
    """One of the characters between brackets, the first of which may be a bracket."""
    allowed = ""
    for low, high in re.findall(_MEMBER, inside, re.DOTALL):
        if not high:
            allowed += _literal(low)
        elif low <= high:
            allowed += f"{_literal(low)}-{_literal(high)}"
    if not allowed:
        return "." if negation else _NOTHING
    return f"[{'^' if negation else ''}{allowed}]"


def _literal(one: str) -> str:
    return one if one.isalnum() or not one.isascii() else "\\" + one
