"""Imports of other queues, and of other stores of Penstock: each row once, even if one is interrupted.

A row's job has the same id at each import, and the catalog records the rows that were taken. So an import
that was killed goes on where it ended, and one that runs twice adds nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from penstock import clock
from penstock.backup import backups
from penstock.backup.backups import MoveResult, OpenStores
from penstock.catalog.parts import ImportedRow, ImportLedger
from penstock.catalog.values import Place
from penstock.config import Settings
from penstock.database.factory import postgres_driver
from penstock.errors import ImportRefused, InvalidName, InvalidRequest
from penstock.extensions import refuse_missing
from penstock.legacy import mappings
from penstock.legacy.journal_source import JournalSource
from penstock.legacy.mappings import (
    DOCUMENTS,
    EPOCH,
    READ_AGAIN,
    RETIRED,
    LegacyRow,
    LegacySource,
    PartOf,
    Planned,
    PlannedJob,
    RagPlace,
    TableSource,
    Unmappable,
    storable_text,
)
from penstock.legacy.sqlite_source import SqliteSource
from penstock.queue import payloads, transitions
from penstock.queue.job import Job, NewJob, Status, failure_reason
from penstock.queue.protocol import Queue
from penstock.service.adoption import Adopter, ReadDocument, flaw
from penstock.service.requests import Submission, new_jobs
from penstock.store_url import StoreUrl

_TAKEN_OVER = "was read there; its text is taken over, and only its vectors are made here"
_NEVER_READ = "it was not read there"
_BATCH = 500
"""Rows of one transaction."""
_PENSTOCK = "penstock"
"""Kind of an import from another store of Penstock."""
_TABLE = "unified_queue"
_TASK_TABLES = "task-tables"
_REDIS_CONTRACT = "redis-contract"
_VERIFIED = ""
"""Name in the ledger of the record that a source was verified."""
_SHOWN_DIFFERENCES = 20
_ORIGIN = "imported"
"""Key in a job's metadata: kind, source, table and id of the row that it came from."""
_SUBMITTED_BY = "import"
_FAILED_BEFORE = "ERR_FAILED_BEFORE"
"""Error code of a job that failed in the queue it was imported from, unless that queue had one."""
_FILE_GONE = "ERR_FILE_NOT_FOUND"
_SHORTEST_KEPT_ID = 8
"""Shorter ids, such as numbers, are those of rows and not of jobs: another source may have them, too."""
_RowMapping: TypeAlias = Callable[[LegacyRow], Planned]


class RowOutcome(enum.StrEnum):
    """Outcome of a row: a job to be run, a part of another job, an ended job, or nothing."""

    IMPORTED = "imported"
    MERGED = "merged"
    ENDED = "ended"
    REFUSED = "refused"


class RowReport(msgspec.Struct, frozen=True):
    """Outcome of one row, as reported by an import."""

    table: str
    id: str
    outcome: RowOutcome
    job_id: str | None = None
    reason: str | None = None


@dataclasses.dataclass
class ImportReport:
    """Counts of an import: rows by table and outcome, and the result of the verification."""

    kind: str
    source: str
    dry_run: bool
    total: int
    tables: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    verified: bool | None = None
    differences: list[RowReport] = dataclasses.field(default_factory=list)
    """The first rows that the queue does not hold as they are in the source."""
    retired: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further facts of one kind, such as checksums."""

    def add(self, reports: Sequence[RowReport]) -> None:
        for report in reports:
            self.tables.setdefault(report.table, Counter())[report.outcome.value] += 1

    @property
    def counts(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for counted in self.tables.values():
            total += counted
        return {outcome.value: total[outcome.value] for outcome in RowOutcome}

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


OnRows: TypeAlias = Callable[[Sequence[RowReport], ImportReport], None]


class ImportOptions(msgspec.Struct, frozen=True):
    """Options of an import: dry run, comparison, and removal of the source."""

    dry_run: bool = False
    verify: bool = False
    retire: bool = False
    drop: bool = False
    source_catalog: str | None = None
    """URL of the catalog of another store of Penstock, if it is not in the same database."""


class _Kind(msgspec.Struct, frozen=True):
    """A kind of import. ``tables``: where its rows are, if they are in a database."""

    mapping: _RowMapping
    what: str
    tables: tuple[str, ...] = ()


_KINDS: dict[str, _Kind] = {
    "unified-queue": _Kind(mappings.unified_queue, "unified queue", mappings.UNIFIED_TABLES),
    "legacy-queues": _Kind(mappings.predecessor, "queue of that kind", tuple(mappings.PREDECESSORS)),
    _TASK_TABLES: _Kind(mappings.task_tables, "documents", mappings.TABLES),
    _REDIS_CONTRACT: _Kind(mappings.redis_contract, "messages"),
    "job-journal": _Kind(mappings.job_record, "job records"),
    "function-tasks": _Kind(mappings.task_queue, "task queue", mappings.FUNCTION_TABLES),
}


class Imports:
    """Imports into one queue: a source is opened, imported, verified, and set aside."""

    def __init__(
        self,
        open_queue: Callable[[], Queue],
        ledger: Callable[[], ImportLedger],
        settings: Settings,
        *,
        adopter: Callable[[], Adopter],
        rags: Callable[[], Mapping[str, RagPlace] | None],
    ) -> None:
        """``adopter`` publishes texts that were read elsewhere. ``rags``: the configured RAGs by id; None
        without a configuration."""
        self._open_queue = open_queue
        self._ledger = ledger
        self._settings = settings
        self._adopter = adopter
        self._rags = rags

    @property
    def _has_store(self) -> bool:
        """Check for an existing store; a dry run must not create one."""
        store = self._settings.catalog_store
        return store.engine == "sqlite" and os.path.exists(store.path)  # noqa: PTH110 - no error without rights

    def run(
        self,
        kind: str,
        address: str,
        options: ImportOptions,
        *,
        on_rows: OnRows = lambda _rows, _report: None,
    ) -> ImportReport:
        """Import the source at a path or URL. ``on_rows`` gets the reports of each batch."""
        if kind == _PENSTOCK:
            return _import_store(self._settings, address, options, on_rows)
        with closing(_open_source(kind, address)) as source:
            return self._run(kind, source, options, on_rows)

    def _run(self, kind: str, source: LegacySource, options: ImportOptions, on_rows: OnRows) -> ImportReport:
        mapping = _KINDS[kind].mapping
        if kind == _REDIS_CONTRACT:
            mapping = partial(mappings.redis_contract, rags=self._rags())
        builder = _RowBuilder(kind, source.identity, mapping, self._settings, clock.now())
        report = ImportReport(kind, source.shown, options.dry_run, source.count())
        taker = self._taker(builder, options)
        if options.drop and not options.verify and not options.dry_run:
            self._refuse_unverified(builder)
        for batch in _batches(_rows(kind, source)):
            reports = taker.take(batch)
            report.add(reports)
            on_rows(reports, report)
        if kind == _TASK_TABLES:
            report.more["reading"] = taker.readings.as_dict()
        if options.verify or (options.drop and not options.dry_run):
            self._verify(builder, source, report)
        if not options.dry_run:
            self._set_aside(builder, source, options, report)
        return report

    def _taker(self, builder: _RowBuilder, options: ImportOptions) -> _RowTaker:
        if options.dry_run:
            return _DryRun(builder, self._ledger() if self._has_store else None)
        return _Importer(builder, self._open_queue(), self._ledger(), self._adopter)

    def _refuse_unverified(self, builder: _RowBuilder) -> None:
        if not self._ledger().imported(builder.kind, builder.source, _VERIFIED, [_VERIFIED]):
            raise ImportRefused(
                "the source was not verified yet; nothing was deleted",
                remedy="Run the import with --verify first, or with --verify --drop.",
            )

    def _verify(self, builder: _RowBuilder, source: LegacySource, report: ImportReport) -> None:
        if report.dry_run and not self._has_store:
            raise ImportRefused("nothing was imported yet", remedy="Run the import without --dry-run first.")
        ledger = self._ledger()
        verifier = _SourceComparison(builder, self._open_queue(), ledger)
        count = 0
        for batch in _batches(_rows(builder.kind, source)):
            found = verifier.differences(batch)
            count += len(found)
            report.differences += found[: _SHOWN_DIFFERENCES - len(report.differences)]
        report.verified = not count
        if report.verified and not report.dry_run:
            passed = ImportedRow(_VERIFIED, _VERIFIED, RowOutcome.IMPORTED.value, None)
            ledger.record_imports(builder.kind, builder.source, [passed])

    def _set_aside(
        self, builder: _RowBuilder, source: LegacySource, options: ImportOptions, report: ImportReport
    ) -> None:
        if options.drop:
            if not report.verified:
                raise ImportRefused(
                    "the queue does not hold all rows of the source; nothing was deleted: "
                    + _first_difference(report.differences),
                    remedy="See all differences with --verify. Correct or delete these rows, then try again.",
                )
            retired = source.retire()
            # Another program may have added rows since they were compared. From now on it cannot.
            self._verify(builder, source, report)
            if not report.verified:
                raise ImportRefused(
                    f"rows were added or changed while they were compared; nothing was deleted, the source "
                    f"is set aside as {', '.join(retired)}: " + _first_difference(report.differences),
                    remedy="Stop the programs that use the source, then run the same command again.",
                )
            report.dropped = source.drop()
        elif options.retire:
            report.retired = source.retire()


def _rows(kind: str, source: LegacySource) -> Iterator[LegacyRow]:
    if kind == _TASK_TABLES:
        # Its sources are databases.
        return mappings.with_parts(cast("TableSource", source))
    return source.rows()


def _first_difference(differences: Sequence[RowReport]) -> str:
    first = differences[0]
    return f"{first.table} {first.id}: {first.reason}"


def _open_source(kind: str, address: str) -> LegacySource:
    """Open the source of an import; the address is a URL or a path."""
    url = StoreUrl(address)
    if kind == _REDIS_CONTRACT:
        if not url.is_redis_server:
            raise _wrong_address(kind, url, "redis://HOST:PORT/DATABASE")
        refuse_missing("redis", "an import from Redis")
        from penstock.legacy.redis_source import RedisSource

        return RedisSource(url.text)
    if kind == "job-journal":
        if url.scheme not in ("", "jsonl"):
            raise _wrong_address(kind, url, "the directory with index_queue.jsonl")
        return JournalSource(url.text)
    known = _KINDS[kind]
    if url.engine == "postgres":
        with postgres_driver():
            from penstock.legacy.postgres_source import PostgresSource

        return PostgresSource(address, known.tables, what=known.what)
    if url.engine == "sqlite" or "://" not in address:
        path = url.path if url.engine == "sqlite" else Path(address).expanduser()
        return SqliteSource(path, known.tables, what=known.what)
    raise _wrong_address(kind, url, "the path of an SQLite file, or postgresql://…")


def _wrong_address(kind: str, url: StoreUrl, wanted: str) -> ImportRefused:
    return ImportRefused(f"{kind} cannot be read from {url.masked[:200]}", remedy=f"Give {wanted}.")


class _PreparedRow(msgspec.Struct, frozen=True):
    """A row with the resulting job, and the same as a new request."""

    row: LegacyRow
    planned: PlannedJob
    job: Job
    new: NewJob


class _RowBuilder:
    """Makes jobs of the rows of one source, with the same ids at each import."""

    def __init__(
        self, kind: str, source: str, mapping: _RowMapping, settings: Settings, now: datetime
    ) -> None:
        self.kind = kind
        self.source = source
        self._mapping = mapping
        self._settings = settings
        self._now = now

    def prepared(self, row: LegacyRow) -> _PreparedRow | PartOf | RowReport:
        """Map a row; a report for a refused one."""
        try:
            if row.fault is not None:
                raise Unmappable(row.fault)
            planned = self._mapping(row)
            return planned if isinstance(planned, PartOf) else self.build(row, planned)
        except (Unmappable, InvalidRequest) as error:
            return RowReport(row.table, row.row_id, RowOutcome.REFUSED, None, _refusal_reason(error))

    def build(self, row: LegacyRow, planned: PlannedJob, *, keep_id: bool = True) -> _PreparedRow:
        """Make the job of a row. ``keep_id``: under the id that the row has, where it can be one."""
        kept = planned.job_id if keep_id and _is_job_id(planned.job_id) else None
        queue_id = kept or _derived_id(self.kind, self.source, row, planned.created_at)
        (new,) = new_jobs(
            [self._submission(row, planned, queue_id)],
            self._settings,
            door="library",
            now=lambda: self._now,
        )
        new = msgspec.structs.replace(new, submitted_by=_SUBMITTED_BY)
        return _PreparedRow(row, planned, self._job(new, planned), new)

    def _submission(self, row: LegacyRow, planned: PlannedJob, queue_id: str) -> Submission:
        origin: dict[str, Any] = {
            "kind": self.kind,
            "source": self.source,
            "table": row.table,
            "id": storable_text(row.row_id),
        }
        if planned.created_at is not None:
            origin["created_at"] = clock.format_time(planned.created_at)
        if planned.extra:
            origin["columns"] = dict(planned.extra)
        given = Submission(
            item_type=planned.item_type,
            op=planned.op,
            payload=planned.payload,
            job_id=queue_id,
            metadata={_ORIGIN: origin},
            dedupe=planned.dedupe,
            rebuild=planned.rebuild,
            tenant_id=planned.tenant_id,
            collection=planned.collection,
            priority=planned.priority,
            max_retries=planned.max_retries,
            timeout_s=planned.timeout_s,
            run_at=planned.run_at,
        )
        if planned.branch is not None:
            given["branch"] = planned.branch
        return given

    def _job(self, new: NewJob, planned: PlannedJob) -> Job:
        job = transitions.added(new, self._now, 0)
        message = None if planned.error_message is None else storable_text(planned.error_message)
        changes: dict[str, Any] = {
            "created_at": min(planned.created_at or self._now, self._now),
            "retry_count": min(max(planned.retry_count, 0), job.max_retries),
            "started_at": planned.started_at,
            "error_message": message,
            "error_code": planned.error_code and storable_text(planned.error_code),
            "total_chunks": max(planned.total_chunks, 0),
        }
        status = planned.status
        if status is Status.PENDING and planned.path is not None and not os.path.lexists(planned.path):
            status, changes["error_code"] = Status.FAILED, _FILE_GONE
            changes["error_message"] = f"{planned.path} no longer exists"
        if status is not Status.PENDING:
            # Retention counts from now on: a job that failed long ago is not deleted at once.
            changes |= {"status": status, "finished_at": self._now, "held": None, "run_at": None, "turn": 0}
        if status is Status.FAILED:
            code = changes["error_code"] = changes["error_code"] or _FAILED_BEFORE
            changes["error_reason"] = failure_reason(code, changes["error_message"])
            changes["last_error_at"] = self._now
        elif status is not Status.PENDING:
            changes |= {"error_message": None, "error_code": None}
        return msgspec.structs.replace(job, **changes)


def _is_job_id(found: str | None) -> bool:
    if found is None or len(found) < _SHORTEST_KEPT_ID:
        return False
    try:
        payloads.validate_name("job_id", found)
    except InvalidName:
        return False
    return True


def _refusal_reason(error: InvalidRequest | Unmappable) -> str:
    """The reason of a refused row, in one line."""
    return storable_text(" ".join(str(error).split()))[:500]


def _derived_id(kind: str, source: str, row: LegacyRow, created_at: datetime | None) -> str:
    """The id of a row's job: the same at each import, in the order of creation."""
    micros = 0 if created_at is None else (created_at - EPOCH) // timedelta(microseconds=1)
    named = "\n".join((kind, source, row.table, row.row_id)).encode("utf-8", "surrogatepass")
    return f"job_{max(micros, 0):014x}{hashlib.sha256(named).hexdigest()[:16]}"


class _RowTaker(Protocol):
    """Takes rows in batches: into the queue, or in a dry run only into the report."""

    readings: _Readings

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]: ...


class _Importer:
    """Puts the rows of one source into the queue."""

    def __init__(
        self, builder: _RowBuilder, queue: Queue, ledger: ImportLedger, adopter: Callable[[], Adopter]
    ) -> None:
        self._builder = builder
        self._queue = queue
        self._ledger = ledger
        self._adopter = adopter
        self.readings = _Readings()

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        """Import one batch; returns a report for each row, in order."""
        known = _known_rows(self._ledger, self._builder, rows)
        found = [known.get((row.table, row.row_id)) or self._builder.prepared(row) for row in rows]
        found = self._with_texts(found)
        jobs = [each for each in found if isinstance(each, _PreparedRow)]
        obstacles = iter(self._queue.restore([each.job for each in jobs]) if jobs else [])
        reports: dict[tuple[str, str], RowReport] = {}
        for row, each in zip(rows, found, strict=True):
            report = each if isinstance(each, RowReport) else None
            if isinstance(each, _PreparedRow):
                obstacle = next(obstacles)
                report = _reported(each) if obstacle is None else self._met(each, obstacle)
            reports[row.table, row.row_id] = report or self._part(row, each, reports)
        fresh = [report for place, report in reports.items() if place not in known]
        self._ledger.record_imports(
            self._builder.kind,
            self._builder.source,
            [
                ImportedRow(report.table, report.id, report.outcome.value, report.job_id)
                for report in fresh
                if report.outcome is not RowOutcome.REFUSED
            ],
        )
        return [reports[row.table, row.row_id] for row in rows]

    def _with_texts(
        self, found: list[RowReport | _PreparedRow | PartOf]
    ) -> list[RowReport | _PreparedRow | PartOf]:
        """Publish the texts of documents that were read there, before a worker can take their jobs."""
        ready = [(index, one) for index, one in enumerate(found) if _adoptable(one)]
        reasons = self._adopter().adopt([_read_document(one) for _, one in ready]) if ready else []
        refused = {index: reason for (index, _), reason in zip(ready, reasons, strict=True)}
        return [self.readings.counted(one, refused.get(index)) for index, one in enumerate(found)]

    def _met(self, prepared: _PreparedRow, obstacle: str) -> RowReport:
        """Report a row with the id or key of another job."""
        there = self._queue.get(obstacle)
        if there is None or (obstacle != prepared.job.queue_id and there.ended):
            # It has ended since; nothing is in the way now.
            (again,) = self._queue.restore([prepared.job])
            return _reported(prepared) if again is None else self._met(prepared, again)
        if obstacle != prepared.job.queue_id:
            return self._merge(prepared, there)
        if self._is_of_this_source(there) and self._origin(there).get("id") != storable_text(
            prepared.row.row_id
        ):
            reason = "the same id as an earlier row"
            return RowReport(prepared.row.table, prepared.row.row_id, RowOutcome.MERGED, obstacle, reason)
        if self._is_of_this_source(there) or _is_same_row(there, prepared.job):
            return msgspec.structs.replace(_reported(prepared), reason="imported before")
        # A job of another source has the id that this row had in its own queue.
        other = self._builder.build(prepared.row, prepared.planned, keep_id=False)
        (again,) = self._queue.restore([other.job])
        if again == other.job.queue_id:
            return msgspec.structs.replace(_reported(other), reason="imported before")
        return _reported(other) if again is None else self._met(other, again)

    def _merge(self, prepared: _PreparedRow, live: Job) -> RowReport:
        """Join a live job with the same key. Rows come oldest first, so that the newer one of two wins."""
        reason = f"the same request as the live job {live.queue_id}"
        job_id = live.queue_id
        if self._is_of_this_source(live):
            (added,) = self._queue.add([prepared.new])
            job_id, reason = added.queue_id, "the same request as an earlier row; the newer one wins"
            if not added.dedupe_hit:
                return _reported(prepared)
        return RowReport(prepared.row.table, prepared.row.row_id, RowOutcome.MERGED, job_id, reason)

    def _origin(self, job: Job) -> dict[str, Any]:
        return msgspec.json.decode(job.metadata).get(_ORIGIN) or {}

    def _is_of_this_source(self, job: Job) -> bool:
        origin = self._origin(job)
        return (origin.get("kind"), origin.get("source")) == (self._builder.kind, self._builder.source)

    def _part(self, row: LegacyRow, part: object, reports: dict[tuple[str, str], RowReport]) -> RowReport:
        assert isinstance(part, PartOf)
        owner = reports.get((part.table, part.row_id))
        if owner is None:
            known = self._ledger.imported(self._builder.kind, self._builder.source, part.table, [part.row_id])
            if part.row_id in known:
                owner = _known_report(known[part.row_id])
        return _part_report(row, part, owner)


def _is_same_row(there: Job, job: Job) -> bool:
    """Check whether a job with the id of a row was made from the same row, in a copy of the store."""
    ours = (job.item_type, job.idempotency_key, job.created_at, job.tenant_id)
    return ours == (there.item_type, there.idempotency_key, there.created_at, there.tenant_id)


class _Readings:
    """Counts of documents whose text is taken over, and of those that a worker reads."""

    def __init__(self) -> None:
        self.adopted = self.pages = 0
        self.embedded = self.extracted = 0
        """Documents whose vectors, and whose entities, were made there and are made here again."""
        self.read: Counter[str] = Counter()
        """Documents to be read, by the reason."""

    def counted(
        self, one: RowReport | _PreparedRow | PartOf, refused: str | None
    ) -> RowReport | _PreparedRow | PartOf:
        """Count a row, and note in its report what becomes of its document. ``refused``: not adopted."""
        if not isinstance(one, _PreparedRow) or one.job.ended or one.row.table != DOCUMENTS:
            return one
        reading = one.planned.reading
        if reading is not None:
            self.embedded, self.extracted = (
                self.embedded + reading.embedded,
                self.extracted + reading.extracted,
            )
        reason = refused or (flaw(_read_document(one)[1]) if reading is not None else one.planned.note)
        if reading is not None and reason is None:
            self.adopted, self.pages = self.adopted + 1, self.pages + len(reading.pages)
            note: str | None = _TAKEN_OVER
        else:
            self.read[reason or _NEVER_READ] += 1
            note = f"{READ_AGAIN}: {reason}" if reading is not None else one.planned.note
        return msgspec.structs.replace(one, planned=msgspec.structs.replace(one.planned, note=note))

    def as_dict(self) -> dict[str, Any]:
        """The counts for programs."""
        return {
            "adopted": {"documents": self.adopted, "pages": self.pages},
            "read": {"documents": self.read.total(), "reasons": dict(self.read.most_common())},
            "again": {"vectors": self.embedded, "entities": self.extracted},
        }


def _adoptable(one: RowReport | _PreparedRow | PartOf) -> bool:
    if not isinstance(one, _PreparedRow) or one.job.ended or one.planned.reading is None:
        return False
    return flaw(_read_document(one)[1]) is None


def _read_document(one: RowReport | _PreparedRow | PartOf) -> tuple[Place, ReadDocument]:
    assert isinstance(one, _PreparedRow)
    assert one.planned.reading is not None
    reading, job = one.planned.reading, one.job
    document = ReadDocument(
        path=job.payload["file_path"], pages=reading.pages, read_at=reading.read_at, sha256=reading.sha256
    )
    return Place(job.tenant_id, job.collection, job.branch), document


class _DryRun:
    """Reports what an import would do. Nothing is written but a temporary file of keys."""

    def __init__(self, builder: _RowBuilder, ledger: ImportLedger | None) -> None:
        self._builder = builder
        self._ledger = ledger
        self.readings = _Readings()
        # A database without a name is a private temporary file.
        self._seen = sqlite3.connect("", isolation_level=None)
        self._seen.execute("PRAGMA journal_mode = OFF")
        self._seen.execute("CREATE TABLE seen (key TEXT NOT NULL PRIMARY KEY, job_id TEXT) WITHOUT ROWID")

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        known = {} if self._ledger is None else _known_rows(self._ledger, self._builder, rows)
        self._seen.execute("BEGIN")
        reports = [known.get((row.table, row.row_id)) or self._one(row) for row in rows]
        self._seen.execute("COMMIT")
        return reports

    def _one(self, row: LegacyRow) -> RowReport:
        found = self._builder.prepared(row)
        if isinstance(found, PartOf):
            owner = self._known(f"row\n{found.table}\n{found.row_id}")
            there = RowReport(found.table, found.row_id, RowOutcome.IMPORTED, owner) if owner else None
            return _part_report(row, found, there)
        report = found = self.readings.counted(found, None)
        if isinstance(found, _PreparedRow):
            report = self._planned(found)
        assert isinstance(report, RowReport)
        if report.job_id is not None:
            self._keep(f"row\n{row.table}\n{row.row_id}", report.job_id)
        return report

    def _planned(self, prepared: _PreparedRow) -> RowReport:
        job = prepared.job
        names = [f"id\n{job.queue_id}"]
        if job.dedupe and not job.ended:
            names.append("\n".join(("key", job.tenant_id, job.branch, job.idempotency_key)))
        for name in names:
            if (twin := self._known(name)) is not None:
                reason = "the same request as an earlier row; the newer one wins"
                return RowReport(prepared.row.table, prepared.row.row_id, RowOutcome.MERGED, twin, reason)
        for name in names:
            self._keep(name, job.queue_id)
        return _reported(prepared)

    def _known(self, name: str) -> str | None:
        found = self._seen.execute("SELECT job_id FROM seen WHERE key = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def _keep(self, name: str, job_id: str) -> None:
        self._seen.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (name, job_id))


def _reported(prepared: _PreparedRow) -> RowReport:
    """The report of an imported row."""
    row, job = prepared.row, prepared.job
    reason = prepared.planned.note
    if job.ended:
        reason = f"{job.status}: {job.error_message}" if job.error_message else f"{job.status} before"
    return RowReport(
        row.table, row.row_id, RowOutcome.ENDED if job.ended else RowOutcome.IMPORTED, job.queue_id, reason
    )


def _part_report(row: LegacyRow, part: PartOf, owner: RowReport | None) -> RowReport:
    """The report of a row merged into the job of another row."""
    if owner is None or owner.job_id is None:
        reason = f"it is a part of {part.table} {part.row_id}, which was not imported"
        return RowReport(row.table, row.row_id, RowOutcome.REFUSED, None, reason)
    return RowReport(row.table, row.row_id, RowOutcome.MERGED, owner.job_id, part.note)


def _known_rows(
    ledger: ImportLedger, builder: _RowBuilder, rows: Sequence[LegacyRow]
) -> dict[tuple[str, str], RowReport]:
    """The rows of a batch taken by an earlier import."""
    by_table: dict[str, list[str]] = {}
    for row in rows:
        by_table.setdefault(row.table, []).append(row.row_id)
    return {
        (table, row_id): _known_report(found)
        for table, ids in by_table.items()
        for row_id, found in ledger.imported(builder.kind, builder.source, table, ids).items()
    }


def _known_report(found: ImportedRow) -> RowReport:
    return RowReport(found.name, found.row_id, RowOutcome(found.outcome), found.job_id, "imported before")


def _batches(rows: Iterable[LegacyRow], size: int = _BATCH) -> Iterator[list[LegacyRow]]:
    """The rows in lists of at most ``size``."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch


class _SourceComparison:
    """Compares the rows of a source with the imported jobs."""

    def __init__(self, builder: _RowBuilder, queue: Queue, ledger: ImportLedger) -> None:
        self._builder = builder
        self._queue = queue
        self._ledger = ledger
        self.checked: Counter[str] = Counter()

    def differences(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        """The rows of a batch missing from the queue, each with the reason."""
        known = _known_rows(self._ledger, self._builder, rows)
        found = []
        for row in rows:
            self.checked[row.table] += 1
            there = known.get((row.table, row.row_id))
            reason = self._missing(row) if there is None else self._difference(row, there)
            if reason is not None:
                found.append(
                    RowReport(
                        row.table, row.row_id, RowOutcome.REFUSED, there.job_id if there else None, reason
                    )
                )
        return found

    def _missing(self, row: LegacyRow) -> str:
        found = self._builder.prepared(row)
        return f"refused: {found.reason}" if isinstance(found, RowReport) else "it was not imported"

    def _difference(self, row: LegacyRow, there: RowReport) -> str | None:
        job = self._queue.get(there.job_id or "")
        if job is None:
            return f"job {there.job_id} is no longer in the queue: it was purged, or deleted by retention"
        prepared = self._builder.prepared(row)
        if there.outcome is RowOutcome.MERGED or not isinstance(prepared, _PreparedRow):
            return None
        wanted = prepared.job
        for name in ("item_type", "tenant_id", "collection", "branch"):
            if getattr(job, name) != getattr(wanted, name):
                return (
                    f"job {job.queue_id} has {name} {getattr(job, name)!r}, the row {getattr(wanted, name)!r}"
                )
        unchanged = job.run == 1 and wanted.ended and there.outcome is RowOutcome.ENDED
        if unchanged and wanted.error_message != job.error_message:
            return f"job {job.queue_id} has another error message than the row"
        return None


def _import_store(settings: Settings, address: str, options: ImportOptions, on_rows: OnRows) -> ImportReport:
    """Move all jobs and documents of another store of Penstock into the stores of the settings."""
    source = backups.source_settings(address, options.source_catalog, settings)
    if options.retire and not (source.store.engine == "sqlite" and source.catalog_url == source.url):
        raise ImportRefused(
            "--retire renames one file, and this store is more than one file",
            remedy="Leave out --retire, and rename the directory, schema or keys yourself.",
        )
    with backups.opened(source) as there:
        total = sum(there.queue.tally().counts.values())
        report = ImportReport(_PENSTOCK, source.store.masked, options.dry_run, total)
        if options.dry_run:
            _record(report, backups.count_rows(there, _on_jobs(report, on_rows)))
            return report
        with backups.opened(settings, restoring=True) as here:
            _move(there, here, options, report, on_rows)
    if options.retire:
        report.retired = _retire(source.store.path)
    return report


def _move(
    there: OpenStores, here: OpenStores, options: ImportOptions, report: ImportReport, on_rows: OnRows
) -> None:
    _record(report, backups.move(there, here, _on_jobs(report, on_rows)))
    if report.verified is None and (options.verify or options.drop or options.retire):
        _record(report, backups.compare(there, here))
    if (options.drop or options.retire) and not report.verified:
        raise ImportRefused(
            f"the stores differ in {report.differences[0].table}; nothing was set aside",
            remedy="Import before workers of the target start, or set the source aside by hand.",
        )
    if options.drop:
        backups.empty(there)
        report.dropped = ["all jobs", "all documents"]


def _on_jobs(report: ImportReport, on_rows: OnRows) -> backups.OnJobs:
    def take(jobs: list[Job], reason: str | None) -> None:
        reports = [
            RowReport(
                _TABLE,
                job.queue_id,
                RowOutcome.ENDED if job.ended else RowOutcome.IMPORTED,
                job.queue_id,
                reason,
            )
            for job in jobs
        ]
        report.add(reports)
        on_rows(reports, report)

    return take


def _record(report: ImportReport, result: MoveResult) -> None:
    report.more["parts"] = {
        part.part: {"rows": part.rows, "sha256": part.sha256} for part in result.parts if part.rows
    }
    if result.differing is not None:
        report.verified = not result.differing
        report.differences = [
            RowReport(part, "", RowOutcome.REFUSED, None, "other rows, or another number of rows")
            for part in result.differing
        ]


def _retire(path: Path) -> list[str]:
    """Rename the file of a store; SQLite has emptied its log when the last connection was closed."""
    target = path.with_name(path.name + RETIRED)
    if target.exists():
        raise ImportRefused(f"{target} exists already", remedy="Move it elsewhere first.")
    path.rename(target)
    return [str(path)]
