"""``penstock import``: take over the rows of another queue."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.cli import text_grid
from penstock.cli.exit_codes import REFUSED
from penstock.cli.job_progress import drawn_bar
from penstock.cli.output import emit, printable, table
from penstock.cli.session import Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.legacy.import_report import ImportReport
    from penstock.legacy.rows import RowReport

KINDS = (
    "unified-queue",
    "legacy-queues",
    "task-tables",
    "redis-contract",
    "function-tasks",
    "job-journal",
    "penstock",
)
OUTCOMES = ("imported", "merged", "ended", "refused")
SHOWN_REFUSALS = 20
DRAWN_EVERY_S = 0.2


@click.command("import")
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("source")
@click.option("--dry-run", is_flag=True, help="Report every row, but write nothing.")
@click.option("--verify", is_flag=True, help="Compare the rows of the source with the queue afterwards.")
@click.option("--retire", is_flag=True, help="Rename the tables, keys or files of the source afterwards.")
@click.option(
    "--drop", is_flag=True, help="Delete the tables, keys or files afterwards, if the verification passed."
)
@click.option("--source-catalog", metavar="URL", help="Catalog of a penstock source, if it is another store.")
@click.pass_obj
def import_(session: Session, /, kind: str, source: str, **given: Any) -> None:
    """Take over the rows of another queue, each once.

    KIND is unified-queue, legacy-queues, task-tables, redis-contract, function-tasks, job-journal or
    penstock: another store of Penstock, of any engine, with its documents, into empty stores.
    SOURCE is a file, a directory or a URL. It is only read, unless --retire or --drop is given. A second
    import takes only new rows. Rows that cannot be taken are refused, each with its reason, and the exit code
    is 1.

    \b
    penstock import legacy-queues old/state.db --dry-run
    """
    if given["retire"] and given["drop"]:
        raise click.UsageError("Give --retire or --drop.")
    report = _imported(session, kind, source, given)
    refused = report.counts["refused"]
    if report.verified is False or refused:
        raise SystemExit(REFUSED)


def _imported(session: Session, kind: str, address: str, given: dict[str, Any]) -> ImportReport:
    from penstock.legacy.import_report import ImportOptions

    imports = session.assembly.imports
    with RowFile() as rows:
        progress = ImportProgress(session)

        def on_rows(reports: Sequence[RowReport], report: ImportReport) -> None:
            rows.add(reports)
            progress.draw(report.rows, report.total)

        try:
            report = imports.run(kind, address, ImportOptions(**given), on_rows=on_rows)
        finally:
            progress.clear()
        if session.as_json:
            _print_json(report, rows)
        else:
            _print_text(session, report, rows)
    return report


class RowFile:
    """Reports of rows in a temporary file: there may be more of them than fit into memory."""

    def __enter__(self) -> RowFile:
        self._file: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, reports: Sequence[RowReport]) -> None:
        for each in reports:
            row = {name: getattr(each, name) for name in ("table", "id", "outcome", "job_id", "reason")}
            self._file.write(json.dumps(row) + "\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)


def _print_json(report: ImportReport, rows: RowFile) -> None:
    """Print one JSON object, its rows one by one."""
    head: dict[str, Any] = {"kind": report.kind, "source": report.source, "dry_run": report.dry_run}
    head |= {"counts": report.counts, "verified": report.verified}
    head["differences"] = [
        {"table": each.table, "id": each.id, "job_id": each.job_id, "reason": each.reason}
        for each in report.differences
    ]
    head |= {"retired": report.retired, "dropped": report.dropped, **report.more}
    emit(json.dumps(head, indent=2, ensure_ascii=False)[:-2] + ',\n  "rows": [')
    before = None
    for row in rows:
        if before is not None:
            emit(f"    {before},")
        before = json.dumps(row, ensure_ascii=False)
    if before is not None:
        emit(f"    {before}")
    emit("  ]\n}")


def _print_text(session: Session, report: ImportReport, rows: RowFile) -> None:
    if report.dry_run:
        _print_rows(rows)
    found = [(name, *(counted[outcome] for outcome in OUTCOMES)) for name, counted in report.tables.items()]
    if found:
        emit(table(["rows of", *OUTCOMES], found))
    else:
        emit(f"{printable(report.source)} has no rows.")
    if not report.dry_run:
        _print_refusals(report, rows)
    if reading := report.more.get("reading"):
        _print_reading(reading)
        _print_again(reading["again"])
    if parts := report.more.get("parts"):
        shown = [(name, f"{part['rows']:,}", part["sha256"][:16]) for name, part in parts.items()]
        emit(table(["part", "rows", "SHA-256"], shown))
    if report.verified is not None:
        _print_verification(report)
    for names, what in ((report.retired, "Set aside"), (report.dropped, "Deleted")):
        if names:
            emit(f"{what}: {', '.join(map(printable, names))}.")
    if report.dry_run:
        session.hint("Nothing was written. Without --dry-run the rows are imported.")


def _print_reading(reading: dict[str, Any]) -> None:
    """Print what need not be read again, and what a worker will read, with the reasons."""
    adopted, read = reading["adopted"], reading["read"]
    if adopted["documents"]:
        pages = how_many(adopted["pages"], "page")
        emit(
            f"The text of {how_many(adopted['documents'], 'document')} ({pages}) is taken over; "
            "a worker makes only the vectors."
        )
    if read["documents"]:
        emit(f"A worker reads {how_many(read['documents'], 'document')}:")
        emit(
            table(
                ["documents", "because"], [(f"{n:,}", printable(why)) for why, n in read["reasons"].items()]
            )
        )


def _print_again(again: dict[str, int]) -> None:
    """Print what was made there, and cannot be taken over from tables."""
    if again["vectors"]:
        emit(f"Vectors of {how_many(again['vectors'], 'document')} are made again.")
    if again["entities"]:
        named = how_many(again["entities"], "document")
        emit(f"Entities of {named} are extracted again if the graph is on (PENSTOCK_GRAPH).")


def _print_rows(rows: RowFile) -> None:
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] else ""
        emit(printable(f"{row['outcome']:8}  {row['table']} {row['id']}{reason}"))


def _print_refusals(report: ImportReport, rows: RowFile) -> None:
    refused = report.counts["refused"]
    if not refused:
        return
    shown = 0
    for row in rows:
        if row["outcome"] == "refused" and shown < SHOWN_REFUSALS:
            emit(printable(f"refused  {row['table']} {row['id']}: {row['reason']}"))
            shown += 1
    if refused > shown:
        emit(f"… and {how_many(refused - shown, 'more row')}; --json lists all of them.")


def _print_verification(report: ImportReport) -> None:
    if report.verified:
        emit("Verified: the queue holds every row of the source.")
        return
    emit("Not verified: the queue does not hold every row of the source.")
    for each in report.differences:
        emit(printable(f"differs  {each.table} {each.id}: {each.reason}"))


class ImportProgress:
    """A line with the rows done and the time left, on a terminal only."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()

    def draw(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < DRAWN_EVERY_S:
            return
        self._drawn = now
        share = min(done / total, 1.0) if total else 1.0
        text = f"{drawn_bar(share, 24)} {done:,} of {how_many(total, 'row')}"
        if share and now - self._began > 1:
            left = (now - self._began) * (1 - share) / share
            text += f", {int(left) // 60}:{int(left) % 60:02d} left"
        width = text_grid.Screen.of(sys.stderr).width or text_grid.WITHOUT_TERMINAL
        self._write(text_grid.cut(text, width - 1) + "\r")

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\x1b[2K{line}")
        sys.stderr.flush()
