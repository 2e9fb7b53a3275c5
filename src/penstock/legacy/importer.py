"""The import of one source: each row once, even if the import is interrupted.

A row's job has the same id at each import, and the catalog records the rows that were taken. So an import
that was killed goes on where it ended, and one that runs twice adds nothing.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from penstock.catalog.parts import ImportedRow, ImportLedger
from penstock.catalog.values import Place
from penstock.legacy.document_mappings import DOCUMENTS, READ_AGAIN
from penstock.legacy.row_builder import ORIGIN, PreparedRow, RowBuilder
from penstock.legacy.rows import LegacyRow, PartOf, RowOutcome, RowReport, storable_text
from penstock.queue.job import Job
from penstock.queue.protocol import Queue
from penstock.service.adoption import AdoptedPage, Adopter, ReadDocument, flaw

TAKEN_OVER = "was read there; its text is taken over, and only its vectors are made here"
NEVER_READ = "it was not read there"
BATCH = 500
"""Rows of one transaction."""


class RowTaker(Protocol):
    """Takes rows in batches: into the queue, or in a dry run only into the report."""

    readings: Readings

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]: ...


class Importer:
    """Puts the rows of one source into the queue."""

    def __init__(
        self, builder: RowBuilder, queue: Queue, ledger: ImportLedger, adopter: Callable[[], Adopter]
    ) -> None:
        self._builder = builder
        self._queue = queue
        self._ledger = ledger
        self._adopter = adopter
        self.readings = Readings()

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        """Import one batch; returns a report for each row, in order."""
        known = known_rows(self._ledger, self._builder, rows)
        found = [known.get((row.table, row.row_id)) or self._builder.prepared(row) for row in rows]
        found = self._with_texts(found)
        jobs = [each for each in found if isinstance(each, PreparedRow)]
        obstacles = iter(self._queue.restore([each.job for each in jobs]) if jobs else [])
        reports: dict[tuple[str, str], RowReport] = {}
        for row, each in zip(rows, found, strict=True):
            report = each if isinstance(each, RowReport) else None
            if isinstance(each, PreparedRow):
                obstacle = next(obstacles)
                report = reported(each) if obstacle is None else self._met(each, obstacle)
            reports[row.table, row.row_id] = report or self._part(row, each, reports)
        fresh = [report for place, report in reports.items() if place not in known]
        self._ledger.record_imports(
            self._builder.kind,
            self._builder.source,
            [_recorded(report) for report in fresh if report.outcome is not RowOutcome.REFUSED],
        )
        return [reports[row.table, row.row_id] for row in rows]

    def _with_texts(
        self, found: list[RowReport | PreparedRow | PartOf]
    ) -> list[RowReport | PreparedRow | PartOf]:
        """Publish the texts of documents that were read there, before a worker can take their jobs."""
        ready = [(index, one) for index, one in enumerate(found) if _adoptable(one)]
        reasons = self._adopter().adopt([_read_document(one) for _, one in ready]) if ready else []
        refused = {index: reason for (index, _), reason in zip(ready, reasons, strict=True)}
        return [self.readings.counted(one, refused.get(index)) for index, one in enumerate(found)]

    def _met(self, prepared: PreparedRow, obstacle: str) -> RowReport:
        """Report a row with the id or key of another job."""
        there = self._queue.get(obstacle)
        if there is None or (obstacle != prepared.job.queue_id and there.ended):
            # It has ended since; nothing is in the way now.
            (again,) = self._queue.restore([prepared.job])
            return reported(prepared) if again is None else self._met(prepared, again)
        if obstacle != prepared.job.queue_id:
            return self._merge(prepared, there)
        if self._is_of_this_source(there) and self._origin(there).get("id") != storable_text(
            prepared.row.row_id
        ):
            reason = "the same id as an earlier row"
            return RowReport(prepared.row.table, prepared.row.row_id, RowOutcome.MERGED, obstacle, reason)
        if self._is_of_this_source(there) or _is_same_row(there, prepared.job):
            return msgspec.structs.replace(reported(prepared), reason="imported before")
        # A job of another source has the id that this row had in its own queue.
        other = self._builder.build(prepared.row, prepared.planned, keep_id=False)
        (again,) = self._queue.restore([other.job])
        if again == other.job.queue_id:
            return msgspec.structs.replace(reported(other), reason="imported before")
        return reported(other) if again is None else self._met(other, again)

    def _merge(self, prepared: PreparedRow, live: Job) -> RowReport:
        """Join a live job with the same key. Rows come oldest first, so that the newer one of two wins."""
        reason = f"the same request as the live job {live.queue_id}"
        job_id = live.queue_id
        if self._is_of_this_source(live):
            (added,) = self._queue.add([prepared.new])
            job_id, reason = added.queue_id, "the same request as an earlier row; the newer one wins"
            if not added.dedupe_hit:
                return reported(prepared)
        return RowReport(prepared.row.table, prepared.row.row_id, RowOutcome.MERGED, job_id, reason)

    def _origin(self, job: Job) -> dict[str, Any]:
        return msgspec.json.decode(job.metadata).get(ORIGIN) or {}

    def _is_of_this_source(self, job: Job) -> bool:
        origin = self._origin(job)
        return (origin.get("kind"), origin.get("source")) == (self._builder.kind, self._builder.source)

    def _part(self, row: LegacyRow, part: object, reports: dict[tuple[str, str], RowReport]) -> RowReport:
        assert isinstance(part, PartOf)
        owner = reports.get((part.table, part.row_id))
        if owner is None:
            known = self._ledger.imported(self._builder.kind, self._builder.source, part.table, [part.row_id])
            if part.row_id in known:
                owner = known_report(known[part.row_id])
        return part_report(row, part, owner)


def _is_same_row(there: Job, job: Job) -> bool:
    """Check whether a job with the id of a row was made from the same row, in a copy of the store."""
    ours = (job.item_type, job.idempotency_key, job.created_at, job.tenant_id)
    return ours == (there.item_type, there.idempotency_key, there.created_at, there.tenant_id)


class Readings:
    """Counts of documents whose text is taken over, and of those that a worker reads."""

    def __init__(self) -> None:
        self.adopted = self.pages = 0
        self.embedded = self.extracted = 0
        """Documents whose vectors, and whose entities, were made there and are made here again."""
        self.read: Counter[str] = Counter()
        """Documents to be read, by the reason."""

    def counted(
        self, one: RowReport | PreparedRow | PartOf, refused: str | None
    ) -> RowReport | PreparedRow | PartOf:
        """Count a row, and note in its report what becomes of its document. ``refused``: not adopted."""
        if not isinstance(one, PreparedRow) or one.job.ended or one.row.table != DOCUMENTS:
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
            note: str | None = TAKEN_OVER
        else:
            self.read[reason or NEVER_READ] += 1
            note = f"{READ_AGAIN}: {reason}" if reading is not None else one.planned.note
        return one._replace(planned=msgspec.structs.replace(one.planned, note=note))

    def as_dict(self) -> dict[str, Any]:
        """The counts for programs."""
        return {
            "adopted": {"documents": self.adopted, "pages": self.pages},
            "read": {"documents": self.read.total(), "reasons": dict(self.read.most_common())},
            "again": {"vectors": self.embedded, "entities": self.extracted},
        }


def _adoptable(one: RowReport | PreparedRow | PartOf) -> bool:
    if not isinstance(one, PreparedRow) or one.job.ended or one.planned.reading is None:
        return False
    return flaw(_read_document(one)[1]) is None


def _read_document(one: RowReport | PreparedRow | PartOf) -> tuple[Place, ReadDocument]:
    assert isinstance(one, PreparedRow)
    assert one.planned.reading is not None
    reading, job = one.planned.reading, one.job
    pages = tuple(AdoptedPage(*page) for page in reading.pages)
    document = ReadDocument(
        path=job.payload["file_path"], pages=pages, read_at=reading.read_at, sha256=reading.sha256
    )
    return Place(job.tenant_id, job.collection, job.branch), document


class DryRun:
    """Reports what an import would do. Nothing is written but a temporary file of keys."""

    def __init__(self, builder: RowBuilder, ledger: ImportLedger | None) -> None:
        self._builder = builder
        self._ledger = ledger
        self.readings = Readings()
        # A database without a name is a private temporary file.
        self._seen = sqlite3.connect("", isolation_level=None)
        self._seen.execute("PRAGMA journal_mode = OFF")
        self._seen.execute("CREATE TABLE seen (key TEXT NOT NULL PRIMARY KEY, job_id TEXT) WITHOUT ROWID")

    def take(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        known = {} if self._ledger is None else known_rows(self._ledger, self._builder, rows)
        self._seen.execute("BEGIN")
        reports = [known.get((row.table, row.row_id)) or self._one(row) for row in rows]
        self._seen.execute("COMMIT")
        return reports

    def _one(self, row: LegacyRow) -> RowReport:
        found = self._builder.prepared(row)
        if isinstance(found, PartOf):
            owner = self._known(f"row\n{found.table}\n{found.row_id}")
            there = RowReport(found.table, found.row_id, RowOutcome.IMPORTED, owner) if owner else None
            return part_report(row, found, there)
        report = found = self.readings.counted(found, None)
        if isinstance(found, PreparedRow):
            report = self._planned(found)
        assert isinstance(report, RowReport)
        if report.job_id is not None:
            self._keep(f"row\n{row.table}\n{row.row_id}", report.job_id)
        return report

    def _planned(self, prepared: PreparedRow) -> RowReport:
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
        return reported(prepared)

    def _known(self, name: str) -> str | None:
        found = self._seen.execute("SELECT job_id FROM seen WHERE key = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def _keep(self, name: str, job_id: str) -> None:
        self._seen.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (name, job_id))


def reported(prepared: PreparedRow) -> RowReport:
    """The report of an imported row."""
    row, job = prepared.row, prepared.job
    reason = prepared.planned.note
    if job.ended:
        reason = f"{job.status}: {job.error_message}" if job.error_message else f"{job.status} before"
    return RowReport(
        row.table, row.row_id, RowOutcome.ENDED if job.ended else RowOutcome.IMPORTED, job.queue_id, reason
    )


def part_report(row: LegacyRow, part: PartOf, owner: RowReport | None) -> RowReport:
    """The report of a row merged into the job of another row."""
    if owner is None or owner.job_id is None:
        reason = f"it is a part of {part.table} {part.row_id}, which was not imported"
        return RowReport(row.table, row.row_id, RowOutcome.REFUSED, None, reason)
    return RowReport(row.table, row.row_id, RowOutcome.MERGED, owner.job_id, part.note)


def known_rows(
    ledger: ImportLedger, builder: RowBuilder, rows: Sequence[LegacyRow]
) -> dict[tuple[str, str], RowReport]:
    """The rows of a batch taken by an earlier import."""
    by_table: dict[str, list[str]] = {}
    for row in rows:
        by_table.setdefault(row.table, []).append(row.row_id)
    return {
        (table, row_id): known_report(found)
        for table, ids in by_table.items()
        for row_id, found in ledger.imported(builder.kind, builder.source, table, ids).items()
    }


def known_report(found: ImportedRow) -> RowReport:
    return RowReport(found.name, found.row_id, RowOutcome(found.outcome), found.job_id, "imported before")


def _recorded(report: RowReport) -> ImportedRow:
    return ImportedRow(report.table, report.id, report.outcome.value, report.job_id)


def batches(rows: Iterable[LegacyRow], size: int = BATCH) -> Iterator[list[LegacyRow]]:
    """The rows in lists of at most ``size``."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch


class SourceComparison:
    """Compares the rows of a source with the imported jobs."""

    def __init__(self, builder: RowBuilder, queue: Queue, ledger: ImportLedger) -> None:
        self._builder = builder
        self._queue = queue
        self._ledger = ledger
        self.checked: Counter[str] = Counter()

    def differences(self, rows: Sequence[LegacyRow]) -> list[RowReport]:
        """The rows of a batch missing from the queue, each with the reason."""
        known = known_rows(self._ledger, self._builder, rows)
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
        if there.outcome is RowOutcome.MERGED or not isinstance(prepared, PreparedRow):
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
