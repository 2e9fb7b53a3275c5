"""Import of another store of Penstock: jobs and documents, into empty stores of any engine."""

from __future__ import annotations

from pathlib import Path

from penstock.backup import moves
from penstock.backup.moves import MoveResult, OpenStores
from penstock.config import Settings
from penstock.errors import ImportRefused
from penstock.legacy.import_report import PENSTOCK, ImportOptions, ImportReport, OnRows
from penstock.legacy.rows import RETIRED, RowOutcome, RowReport
from penstock.queue.job import Job

TABLE = "unified_queue"


def import_store(settings: Settings, address: str, options: ImportOptions, on_rows: OnRows) -> ImportReport:
    """Move all rows of a store into the stores of the settings."""
    source = moves.source_settings(address, options.source_catalog, settings)
    if options.retire and not (source.store.engine == "sqlite" and source.catalog_url == source.url):
        raise ImportRefused(
            "--retire renames one file, and this store is more than one file",
            remedy="Leave out --retire, and rename the directory, schema or keys yourself.",
        )
    with moves.opened(source) as there:
        total = sum(there.queue.tally().counts.values())
        report = ImportReport(PENSTOCK, source.store.masked, options.dry_run, total)
        if options.dry_run:
            _record(report, moves.count_rows(there, _on_jobs(report, on_rows)))
            return report
        with moves.opened(settings, restoring=True) as here:
            _move(there, here, options, report, on_rows)
    if options.retire:
        report.retired = _retire(source.store.path)
    return report


def _move(
    there: OpenStores, here: OpenStores, options: ImportOptions, report: ImportReport, on_rows: OnRows
) -> None:
    _record(report, moves.move(there, here, _on_jobs(report, on_rows)))
    if report.verified is None and (options.verify or options.drop or options.retire):
        _record(report, moves.compare(there, here))
    if (options.drop or options.retire) and not report.verified:
        raise ImportRefused(
            f"the stores differ in {report.differences[0].table}; nothing was set aside",
            remedy="Import before workers of the target start, or set the source aside by hand.",
        )
    if options.drop:
        moves.empty(there)
        report.dropped = ["all jobs", "all documents"]


def _on_jobs(report: ImportReport, on_rows: OnRows) -> moves.OnJobs:
    def take(jobs: list[Job], reason: str | None) -> None:
        reports = [
            RowReport(
                TABLE,
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
