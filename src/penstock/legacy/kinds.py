"""The kinds of imports, and the steps: open a source, import, verify, set aside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

from penstock import clock
from penstock.catalog.parts import ImportedRow, ImportLedger
from penstock.config import Settings
from penstock.errors import ImportRefused
from penstock.extras import refuse_missing
from penstock.legacy import document_mappings, message_mappings, queue_mappings
from penstock.legacy.import_report import PENSTOCK, ImportOptions, ImportReport, OnRows
from penstock.legacy.importer import DryRun, Importer, RowTaker, SourceComparison, batches
from penstock.legacy.message_mappings import RagPlace
from penstock.legacy.row_builder import RowBuilder, RowMapping
from penstock.legacy.rows import LegacyRow, LegacySource, RowOutcome, RowReport, TableSource
from penstock.named_tuple import NamedTuple
from penstock.queue.factory import postgres_driver
from penstock.queue.protocol import Queue
from penstock.service.adoption import Adopter
from penstock.store_url import StoreUrl

TASK_TABLES = "task-tables"
REDIS_CONTRACT = "redis-contract"
VERIFIED = ""
"""Name in the ledger of the record that a source was verified."""
SHOWN_DIFFERENCES = 20


class Kind(NamedTuple):
    """A kind of import. ``tables``: where its rows are, if they are in a database."""

    mapping: RowMapping
    what: str
    tables: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "unified-queue": Kind(queue_mappings.unified_queue, "unified queue", queue_mappings.UNIFIED_TABLES),
    "legacy-queues": Kind(
        queue_mappings.predecessor, "queue of that kind", tuple(queue_mappings.PREDECESSORS)
    ),
    TASK_TABLES: Kind(document_mappings.task_tables, "documents", document_mappings.TABLES),
    REDIS_CONTRACT: Kind(message_mappings.redis_contract, "messages"),
    "job-journal": Kind(message_mappings.job_record, "job records"),
    "function-tasks": Kind(queue_mappings.task_queue, "task queue", queue_mappings.FUNCTION_TABLES),
}


def open_source(kind: str, address: str) -> LegacySource:
    """Open the source of an import; the address is a URL or a path."""
    url = StoreUrl(address)
    if kind == REDIS_CONTRACT:
        return _redis_source(url)
    if kind == "job-journal":
        return _journal_source(url)
    known = KINDS[kind]
    if url.engine == "postgres":
        with postgres_driver():
            from penstock.legacy.postgres_source import PostgresSource

        return PostgresSource(address, known.tables, what=known.what)
    if url.engine == "sqlite" or "://" not in address:
        from penstock.legacy.sqlite_source import SqliteSource

        path = url.path if url.engine == "sqlite" else Path(address).expanduser()
        return SqliteSource(path, known.tables, what=known.what)
    raise _wrong_address(kind, url, "the path of an SQLite file, or postgresql://…")


def _redis_source(url: StoreUrl) -> LegacySource:
    if not url.is_redis_server:
        raise _wrong_address("redis-contract", url, "redis://HOST:PORT/DATABASE")
    refuse_missing("redis", "an import from Redis")
    from penstock.legacy.redis_source import RedisSource

    return RedisSource(url.text)


def _journal_source(url: StoreUrl) -> LegacySource:
    if url.scheme not in ("", "jsonl"):
        raise _wrong_address("job-journal", url, "the directory with index_queue.jsonl")
    from penstock.legacy.journal_source import JournalSource

    return JournalSource(url.text)


def _wrong_address(kind: str, url: StoreUrl, wanted: str) -> ImportRefused:
    return ImportRefused(f"{kind} cannot be read from {url.masked[:200]}", remedy=f"Give {wanted}.")


class Imports:
    """Imports into one queue."""

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
        if kind == PENSTOCK:
            from penstock.legacy.own_store import import_store

            return import_store(self._settings, address, options, on_rows)
        with closing(open_source(kind, address)) as source:
            return self._run(kind, source, options, on_rows)

    def _run(self, kind: str, source: LegacySource, options: ImportOptions, on_rows: OnRows) -> ImportReport:
        mapping = KINDS[kind].mapping
        if kind == REDIS_CONTRACT:
            mapping = partial(message_mappings.redis_contract, rags=self._rags())
        builder = RowBuilder(kind, source.identity, mapping, self._settings, clock.now())
        report = ImportReport(kind, source.shown, options.dry_run, source.count())
        taker = self._taker(builder, options)
        if options.drop and not options.verify and not options.dry_run:
            self._refuse_unverified(builder)
        for batch in batches(_rows(kind, source)):
            reports = taker.take(batch)
            report.add(reports)
            on_rows(reports, report)
        if kind == TASK_TABLES:
            report.more["reading"] = taker.readings.as_dict()
        if options.verify or (options.drop and not options.dry_run):
            self._verify(builder, source, report)
        if not options.dry_run:
            self._set_aside(builder, source, options, report)
        return report

    def _taker(self, builder: RowBuilder, options: ImportOptions) -> RowTaker:
        if options.dry_run:
            return DryRun(builder, self._ledger() if self._has_store else None)
        return Importer(builder, self._open_queue(), self._ledger(), self._adopter)

    def _refuse_unverified(self, builder: RowBuilder) -> None:
        if not self._ledger().imported(builder.kind, builder.source, VERIFIED, [VERIFIED]):
            raise ImportRefused(
                "the source was not verified yet; nothing was deleted",
                remedy="Run the import with --verify first, or with --verify --drop.",
            )

    def _verify(self, builder: RowBuilder, source: LegacySource, report: ImportReport) -> None:
        if report.dry_run and not self._has_store:
            raise ImportRefused("nothing was imported yet", remedy="Run the import without --dry-run first.")
        ledger = self._ledger()
        verifier = SourceComparison(builder, self._open_queue(), ledger)
        count = 0
        for batch in batches(_rows(builder.kind, source)):
            found = verifier.differences(batch)
            count += len(found)
            report.differences += found[: SHOWN_DIFFERENCES - len(report.differences)]
        report.verified = not count
        if report.verified and not report.dry_run:
            passed = ImportedRow(VERIFIED, VERIFIED, RowOutcome.IMPORTED.value, None)
            ledger.record_imports(builder.kind, builder.source, [passed])

    def _set_aside(
        self, builder: RowBuilder, source: LegacySource, options: ImportOptions, report: ImportReport
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
    if kind == TASK_TABLES:
        # Its sources are databases.
        return document_mappings.with_parts(cast("TableSource", source))
    return source.rows()


def _first_difference(differences: Sequence[RowReport]) -> str:
    first = differences[0]
    return f"{first.table} {first.id}: {first.reason}"
