"""A read-only snapshot of the catalog for walks, commands and status pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.catalog.protocol import BATCH
from penstock.catalog.rules.identity import text_key
from penstock.catalog.rules.paths import PARKED, at_and_above, span
from penstock.catalog.rules.phases import CHUNK_PHASES, PHASES
from penstock.catalog.sql.search import SearchReads
from penstock.catalog.sql.statements import INDEX_STATUS, RowType, Statements, column, listed
from penstock.catalog.values import (
    ChunkOrigins,
    ChunkState,
    Document,
    DocumentEvent,
    Filters,
    HeldTask,
    KnownSource,
    LedgerEntry,
    MissingPart,
    NewChunk,
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
    Source,
    TaskStatus,
    TenantCount,
    TokenUse,
    Walk,
)
from penstock.clock import format_time


class ContentRow(msgspec.Struct, frozen=True):
    """A page joined with one chunk; ``text_hash`` None: the page has no chunks."""

    page_id: int
    number: int
    file_path: str | None
    page_text: str | None
    engine: str
    confidence: float | None
    warnings: tuple[str, ...]
    text: str
    text_hash: str | None
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str


_CONTENT_ROW = RowType(ContentRow)
_KNOWN_SOURCE = RowType(KnownSource)
_SOURCE = RowType(Source)
_DOCUMENT = RowType(Document, renamed=INDEX_STATUS)
_PAGE_STATE = RowType(PageState)
_CHUNK_STATE = RowType(ChunkState)
_PROGRESS = RowType(Progress, renamed=INDEX_STATUS)
_EVENT = RowType(DocumentEvent)
_MISSING_PART = RowType(MissingPart)
_TENANT_COUNT = RowType(TenantCount)
_OUTBOX_ENTRY = RowType(OutboxEntry)
WALK = RowType(Walk)
_LEDGER_ENTRY = RowType(LedgerEntry)

_NUMBER = r"[1-9][0-9]{0,17}"
_UUID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_ALL = (chr(ord(PARKED) + 1), "\U0010ffff")


class SqlSnapshot(SearchReads):
    @property
    def rows(self) -> Statements:
        """The statements of this snapshot, for other reads of the same moment."""
        return self._rows

    def claims(self, name: str, *values: object) -> list[HeldTask]:
        """Claimed tasks of all lanes."""
        return [HeldTask(lane, *row) for lane in Phase for row in self._rows.all(f"{name}_{lane}", *values)]

    def outbox(self, kind: OutboxEntryKind | None, after: int, limit: int) -> list[OutboxEntry]:
        return _OUTBOX_ENTRY.decode_all(self._rows.all("outbox", after, kind or "", limit))

    def unfinished(self, before: str, limit: int) -> list[int]:
        return [number for (number,) in self._rows.all("unfinished", before, limit)]

    def expected(self, place: Place, path: str) -> str | None:
        found = self._rows.value("expected", place.tenant_id, place.collection, place.branch, path)
        return None if found is None else str(found)

    def walks(self, place: Place, path: str) -> list[Walk]:
        where = (place.tenant_id, place.collection, place.branch)
        return WALK.decode_all(self._rows.all("walks_at", *where, listed(at_and_above(path))))

    def known(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[KnownSource]:
        found = self._in_folder("known", place, folder, after, limit)
        return _KNOWN_SOURCE.decode_all(found)

    def ledger(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[LedgerEntry]:
        return _LEDGER_ENTRY.decode_all(self._in_folder("ledger", place, folder, after, limit))

    def failures(
        self, place: Place, folder: str | None = None, *, after: str = "", limit: int = BATCH
    ) -> list[LedgerEntry]:
        return _LEDGER_ENTRY.decode_all(self._in_folder("failures", place, folder, after, limit))

    def _in_folder(
        self, name: str, place: Place, folder: str | None, after: str, limit: int
    ) -> list[tuple[Any, ...]]:
        where = (place.tenant_id, place.collection, place.branch)
        first, last = _ALL if folder is None else span(folder)
        found = []
        if folder is not None and after < folder:
            # The folder's own path does not lie between its contents.
            found = self._rows.all(name, *where, after, folder, folder + PARKED, 1)
        return found + self._rows.all(name, *where, after, first, last, limit - len(found))

    def twins(
        self, place: Place, files: Collection[tuple[int, int]], *, limit: int = 10 * BATCH
    ) -> list[KnownSource]:
        where = (place.tenant_id, place.collection, place.branch)
        sizes = {size for size, _ in files if size}
        found = self._rows.all("twins", *where, listed(files), 10 * BATCH)
        if limit:
            found += self._rows.all("twins_of_size", *where, listed(sizes), limit)
        known = {source.source_id: source for source in _KNOWN_SOURCE.decode_all(found)}
        return list(known.values())

    def find(self, place: Place, path: str) -> Source | None:
        found = self._sources("find_where", place.tenant_id, place.collection, place.branch, path)
        return found[0] if found else None

    def find_all(self, place: Place, paths: Collection[str]) -> dict[str, Source]:
        where = (place.tenant_id, place.collection, place.branch)
        return {source.path: source for source in self._sources("find_all_where", *where, listed(paths))}

    def get(self, source_id: str) -> Source | None:
        found = self._sources("get_where", source_id)
        return found[0] if found else None

    def identified(self, text: str) -> Source | None:
        found = self.get(text)
        if found is None and re.fullmatch(_NUMBER, text):
            found = next(iter(self._sources("of_document_where", int(text))), None)
        elif found is None and re.fullmatch(_UUID, text):
            found = next(iter(self._sources("of_document_id_where", text.lower())), None)
        return found

    def sources(
        self,
        filters: Filters,
        *,
        after: str = "",
        limit: int = 50,
        failed: bool = False,
        newest_first: bool = False,
    ) -> list[Source]:
        where = "newest_sources_where" if newest_first else "sources_where"
        where = "sources_or_failures_where" if failed else where
        return self._sources(where, *self._filters(filters), after, limit)

    def _sources(self, where: str, *values: object) -> list[Source]:
        return _SOURCE.decode_all(self._rows.joined("source_columns", where, *values))

    def document(self, document_id: int) -> Document | None:
        found = self._documents("document_where", document_id)
        return found[0] if found else None

    def generations(self, source_id: str) -> list[Document]:
        return self._documents("generations_where", source_id)

    def newest(self, *, after: int = 0, limit: int = 100) -> list[Document]:
        return self._documents("newest_where", after, limit)

    def _documents(self, where: str, *values: object) -> list[Document]:
        return _DOCUMENT.decode_all(self._rows.joined("document_columns", where, *values))

    def events(self, tenant_id: str, source_id: str) -> list[DocumentEvent]:
        return _EVENT.decode_all(self._rows.all("events", source_id, tenant_id))

    def formerly(self, place: Place, path: str) -> str | None:
        found: str | None = self._rows.value(
            "formerly", place.tenant_id, place.collection, place.branch, path
        )
        return found

    def pages(self, document_id: int, *, after: int = -1, limit: int = 100) -> list[PageState]:
        return _PAGE_STATE.decode_all(self._rows.all("pages", document_id, after, limit))

    def page_statuses(self, document_id: int) -> list[tuple[int, Sequence[str]]]:
        return [(number, states) for number, *states in self._rows.all("page_statuses", document_id)]

    def chunks(self, page_id: int) -> list[ChunkState]:
        return _CHUNK_STATE.decode_all(self._rows.all("chunks", page_id))

    def content(self, document_id: int, page: int | None = None) -> tuple[NewPage, ...]:
        return _content(_CONTENT_ROW.decode_all(self._rows.all("parts_of", document_id, page)))

    def missing(self, document_id: int, *, limit: int = 100) -> list[MissingPart]:
        return _MISSING_PART.decode_all(self._rows.all("missing", document_id, limit))

    def progress(self, document_id: int) -> Progress | None:
        found = self._rows.joined("progress_columns", "progress_where", document_id)
        return _PROGRESS.decode(found[0]) if found else None

    def made(self, document_id: int) -> ChunkOrigins:
        return ChunkOrigins(*(self._rows.one("made", document_id) or (0, 0)))

    def ready(self, phase: Phase, *, limit: int = 100) -> list[Progress]:
        return _PROGRESS.decode_all(self._rows.joined("progress_columns", f"ready_{phase}", limit))

    def statistics(self) -> dict[tuple[str, TaskStatus], int]:
        totals = self._rows.one("statistics") or ()
        pages, read, chunks, *done = (int(number) for number in totals)
        parts = {Phase.OCR: (pages, read)}
        parts |= {phase: (chunks, number) for phase, number in zip(CHUNK_PHASES, done, strict=True)}
        counts: dict[tuple[str, TaskStatus], int] = {}
        for phase, (total, completed) in parts.items():
            name = PHASES[phase].statistics
            processing, failed = self._rows.one(f"count_open_{phase}") or (0, 0)
            pending = self._rows.value(f"count_pending_{phase}")
            counts[name, TaskStatus.PENDING] = pending
            counts[name, TaskStatus.PROCESSING] = processing
            counts[name, TaskStatus.COMPLETED] = completed
            counts[name, TaskStatus.FAILED] = failed
            counts[name, TaskStatus.SKIPPED] = total - pending - processing - completed - failed
        return {key: number for key, number in counts.items() if number}

    def tokens_used(self, tenant_id: str, service: str, month: str) -> int:
        return int(self._rows.value("tokens_used", tenant_id, service, month))

    def token_uses(self, tenant_id: str | None, month: str) -> list[TokenUse]:
        return [TokenUse(*row) for row in self._rows.all("token_uses", tenant_id, month)]

    def branches(self, tenant_id: str, collection: str) -> list[str]:
        return column(self._rows.all("branches", tenant_id, collection))

    def tenants(self, tenant_id: str | None = None) -> list[TenantCount]:
        return _TENANT_COUNT.decode_all(self._rows.all("tenants", tenant_id))

    def known_count(self, place: Place, folder: str, *, most: int) -> int:
        where = (place.tenant_id, place.collection, place.branch, *span(folder))
        count: int = self._rows.value("known_count", *where, most)
        return count

    def published_since(self, place: Place, folder: str, since: datetime) -> PublishedCount:
        where = (place.tenant_id, place.collection, place.branch, *span(folder), format_time(since))
        return PublishedCount(*self._rows.all("published_since", *where)[0])

    def published_below_dots(self, place: Place, folder: str, since: datetime) -> list[PublishedPath]:
        above = len(folder.rstrip("/").rpartition("/")[0]) + 2
        where = (place.tenant_id, place.collection, place.branch, *span(folder), format_time(since), above)
        return [PublishedPath(*row) for row in self._rows.all("published_below_dots", *where)]

    def recognized(self, place: Place, path: str, since: datetime, low: float) -> RecognizedPages:
        where = (place.tenant_id, place.collection, place.branch, path, *span(path), format_time(since), low)
        return RecognizedPages(*self._rows.all("recognized", *where)[0])

    def page_warnings(self, document_id: int, *, limit: int) -> dict[int, tuple[str, ...]]:
        found = self._rows.all("page_warnings", document_id, limit)
        return {number: msgspec.json.decode(listed, type=tuple[str, ...]) for number, listed in found}

    def open_tasks(self, lane: Phase) -> int:
        count: int = self._rows.value(f"open_tasks_{lane}")
        return count

    def why(self, place: Place, path: str) -> PathReport:
        source = self.find(place, path)
        note = self._rows.one("ledger_at", place.tenant_id, place.collection, place.branch, path)
        published = self._one_document(source.published_id if source else None)
        building = self._one_document(source.building_id if source else None)
        shown = building or published
        return PathReport(
            source=source,
            published=published,
            building=building,
            missing=tuple(self.missing(shown.document_id)) if shown else (),
            ledger=_LEDGER_ENTRY.decode(note) if note else None,
            postponed=self._rows.value("postponed", building.document_id) if building else None,
        )

    def _one_document(self, document_id: int | None) -> Document | None:
        return None if document_id is None else self.document(document_id)

    def fingerprints(self) -> dict[Phase, str]:
        return {Phase(phase): text for phase, text in self._rows.all("fingerprints")}

    def vectors(
        self, tenant_id: str, space: str, hashes: Collection[str], *, source_id: str | None = None
    ) -> dict[str, bytes]:
        space_id = self._space(space)
        if space_id is None or not hashes:
            return {}
        found: dict[str, bytes] = dict(self._rows.all("cached_vectors", tenant_id, space_id, listed(hashes)))
        if source_id is not None:
            keys = listed({text_key(text) for text in hashes})
            wanted = set(hashes)
            own = self._rows.all("own_vectors", source_id, space_id, keys)
            found |= {text: vector for text, vector in own if text in wanted}
        return found


def _content(rows: list[ContentRow]) -> tuple[NewPage, ...]:
    pages: dict[int, NewPage] = {}
    chunks: dict[int, list[NewChunk]] = {}
    for row in rows:
        if row.page_id not in pages:
            pages[row.page_id] = NewPage(
                number=row.number,
                text=row.page_text,
                file_path=row.file_path,
                engine=row.engine,
                confidence=row.confidence,
                warnings=row.warnings,
            )
        parts = chunks.setdefault(row.page_id, [])
        if row.text_hash is not None:
            parts.append(
                NewChunk(
                    text=row.text,
                    text_hash=row.text_hash,
                    start=row.start,
                    end=row.end,
                    first_line=row.first_line,
                    last_line=row.last_line,
                    heading_path=row.heading_path,
                    symbols=row.symbols,
                )
            )
    return tuple(
        msgspec.structs.replace(page, chunks=tuple(chunks[page_id])) for page_id, page in pages.items()
    )
