"""``penstock backup``, ``restore``, ``import`` and ``rebuild``: whole stores at once."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.exit_codes import REFUSED
from penstock.cli.options import agreed
from penstock.cli.output import emit, emit_json, printable, span, table
from penstock.cli.progress import drawn_bar, shown_live
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.backup.backups import BackupReport
    from penstock.legacy.importer import ImportReport, RowReport
    from penstock.service.requests import Receipt
    from penstock.service.upkeep import Plan


_DRAWN_EVERY_S = 0.2
_LEAST_S, _LEAST_SHARE = 1.0, 0.02
"""Time, and share of the whole, after which the time left is estimated."""


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--keep", type=click.IntRange(min=1), help="Keep this many backups in the directory; delete older ones."
)
@click.pass_obj
def backup(session: Session, /, destination: Path, keep: int | None) -> None:
    """Write all jobs, documents, texts, vectors and the graph into one file.

    DESTINATION is a file, or a directory, where the file is named by the time. Workers and servers may go on
    meanwhile. The file restores into any engine. Indexed files, uploads, settings and keys are not in it.

    \b
    penstock backup /var/backups/penstock --keep 7
    """
    with _BackupProgress(session) as progress:
        report = session.assembly.backups.write(destination, keep=keep, on_progress=progress.draw)
    _print(session, report, f"Backup written: {printable(report.path)}")
    if not session.as_json and report.removed:
        session.hint(f"Removed {how_many(len(report.removed), 'older backup')}.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", metavar="URL", help="URL of the queue to restore into; default: the usual queue.")
@click.option("--catalog-to", metavar="URL", help="URL of the catalog to restore into.")
@click.option("--check", is_flag=True, help="Only check the file: read all of it, and write nothing.")
@click.option("--replace", is_flag=True, help="Delete all that the stores hold.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def restore(
    session: Session,
    /,
    file: Path,
    to: str | None,
    catalog_to: str | None,
    check: bool,
    replace: bool,
    yes: bool,
) -> None:
    """Put a backup into empty stores, of any engine.

    The whole file is checked before anything is written. Jobs that were running start again. Stop all workers
    of the stores before. A restore that was interrupted is run again.

    \b
    penstock restore penstock.backup --to postgresql://db/penstock
    """
    from penstock.backup.backups import RestoreOptions

    if to is not None:
        session.overrides["url"] = to
    if catalog_to is not None:
        session.overrides["catalog_url"] = catalog_to
    target = session.assembly.settings.store.masked
    question = f"Delete everything in {target}, and restore {file}?"
    if replace and not check and not yes and not agreed(question):
        raise click.Abort
    with _BackupProgress(session) as progress:
        report = session.assembly.backups.restore(
            file, RestoreOptions(replace=replace, check=check), on_progress=progress.draw
        )
    done = "Backup is complete" if check else f"Restored into {printable(target)}"
    _print(session, report, f"{done}: {printable(report.path)}")


def _print(session: Session, report: BackupReport, headline: str) -> None:
    if session.as_json:
        emit_json(report)
        return
    rows = sum(part.rows for part in report.parts)
    counted = (
        f"{how_many(report.jobs, 'job')}, {how_many(report.documents, 'document')}, {how_many(rows, 'row')}"
    )
    emit(f"{headline}\n{counted}; {_text_size(report.size)}, made {report.created_at} by {report.version}")


def _text_size(size: int) -> str:
    """A number of bytes for people."""
    units = ("bytes", "KB", "MB", "GB", "TB")
    number = float(size)
    for unit in units:
        if number < 1000 or unit == units[-1]:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


class _BackupProgress:
    """A line with the part that is read or written, and the time left, on a terminal only."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> _BackupProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\x1b[2K")
            sys.stderr.flush()

    def draw(self, part: str, rows: int, share: float) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < _DRAWN_EVERY_S:
            return
        self._drawn = now
        bar = f"{drawn_bar(share, 24)} " if share else ""
        width = output.Screen.of(sys.stderr).width or output.WITHOUT_TERMINAL
        left = time_left(now - self._began, share)
        line = output.cut(f"{bar}{part}: {how_many(rows, 'row')}{left}", width - 1)
        sys.stderr.write(f"\x1b[2K{line}\r")
        sys.stderr.flush()


def time_left(seconds: float, share: float) -> str:
    """The time left after so many seconds, for people; empty while too little is done to tell."""
    if seconds < _LEAST_S or share < _LEAST_SHARE:
        return ""
    return f", {span(seconds * (1 - share) / share)} left"


KINDS = (
    "unified-queue",
    "legacy-queues",
    "task-tables",
    "redis-contract",
    "function-tasks",
    "job-journal",
    "penstock",
)
_OUTCOMES = ("imported", "merged", "ended", "refused")
_SHOWN_REFUSALS = 20


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
    from penstock.legacy.importer import ImportOptions

    imports = session.assembly.imports
    with _RowFile() as rows:
        progress = _ImportProgress(session)

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


class _RowFile:
    """Reports of rows in a temporary file: there may be more of them than fit into memory."""

    def __enter__(self) -> _RowFile:
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


def _print_json(report: ImportReport, rows: _RowFile) -> None:
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


def _print_text(session: Session, report: ImportReport, rows: _RowFile) -> None:
    if report.dry_run:
        _print_rows(rows)
    found = [(name, *(counted[outcome] for outcome in _OUTCOMES)) for name, counted in report.tables.items()]
    if found:
        emit(table(["rows of", *_OUTCOMES], found))
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


def _print_rows(rows: _RowFile) -> None:
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] else ""
        emit(printable(f"{row['outcome']:8}  {row['table']} {row['id']}{reason}"))


def _print_refusals(report: ImportReport, rows: _RowFile) -> None:
    refused = report.counts["refused"]
    if not refused:
        return
    shown = 0
    for row in rows:
        if row["outcome"] == "refused" and shown < _SHOWN_REFUSALS:
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


class _ImportProgress:
    """A line with the rows done and the time left, on a terminal only."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()

    def draw(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < _DRAWN_EVERY_S:
            return
        self._drawn = now
        share = min(done / total, 1.0) if total else 1.0
        text = f"{drawn_bar(share, 24)} {done:,} of {how_many(total, 'row')}"
        if share and now - self._began > 1:
            left = (now - self._began) * (1 - share) / share
            text += f", {int(left) // 60}:{int(left) % 60:02d} left"
        width = output.Screen.of(sys.stderr).width or output.WITHOUT_TERMINAL
        self._write(output.cut(text, width - 1) + "\r")

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\x1b[2K{line}")
        sys.stderr.flush()


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--tenant", metavar="NAME", help="Re-index only this tenant's documents.")
@click.option("--collection", metavar="NAME", help="Re-index only this collection.")
@click.option("--dry-run", is_flag=True, help="Print the documents to re-index, but do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Run the jobs in this command when no worker is running, or only queue them.",
)
@click.pass_obj
def rebuild(session: Session, /, paths: tuple[str, ...], **given: Any) -> None:
    """Re-index documents whose settings or model changed.

    PATHs limit the documents to those at or below them. After a change of model the stored texts are embedded
    again, without reading files. After a new version of a parser or chunker its files are read again. Search
    finds the old version until the new one is ready.

    \b
    PENSTOCK_EMBEDDER=hashing penstock rebuild --dry-run
    """
    from penstock.service.paths import real

    roots = [real(path) for path in paths]
    narrowed = bool(roots or given["tenant"] or given["collection"])
    plan = session.assembly.rebuilder.plan(roots, tenant_id=given["tenant"], collection=given["collection"])
    if not session.as_json:
        _show(plan, narrowed)
    if given["dry_run"] or (narrowed and not plan.looked_at):
        # Without a match the model stays as it is: the name was probably misspelt.
        if session.as_json:
            emit_json({"plan": plan, "queued": []})
        return
    asks = plan.total.documents and sys.stdin.isatty() and not given["yes"]
    if asks and not click.confirm("Re-index these documents now?", err=True):
        emit("Nothing was re-indexed.")
        raise SystemExit(REFUSED)
    receipts = session.assembly.rebuilder.start(plan)
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    here = given["wait"] and not alive and not disabled
    if here:
        _work_here(session, receipts)
    _print_result(session, plan, receipts, done=here)
    if disabled and receipts and not session.as_json:
        session.hint(QUEUE_DISABLED)


def _show(plan: Plan, narrowed: bool) -> None:
    from penstock.service.upkeep import REASONS

    if narrowed and not plan.looked_at:
        emit("No document matches these paths, this collection and this tenant.")
        return
    if not plan.total.documents:
        emit(f"All documents are up to date with {plan.space} and this version.")
        return
    rows = [(REASONS[reason], cost.documents, cost.chunks) for reason, cost in plan.by_reason.items()]
    emit(table(["reason", "documents", "chunks to embed, at most"], rows))
    emit(f"Model for the new vectors: {plan.space}.")


def _work_here(session: Session, receipts: list[Receipt]) -> None:
    for receipt in receipts:
        with shown_live(session, receipt.job_id, "Rebuilding", here=True):
            session.run_here(receipt.job_id, processes=2)


def _print_result(session: Session, plan: Plan, receipts: list[Receipt], *, done: bool) -> None:
    ids = [receipt.job_id for receipt in receipts]
    jobs = [session.assembly.jobs.job(job_id) for job_id in ids]
    failed = [job for job in jobs if job.status == "failed"]
    if session.as_json:
        emit_json({"plan": plan, "queued": ids, "failed": [job.queue_id for job in failed]})
    elif ids and not done:
        emit(f"Queued with the lowest priority: {', '.join(ids)}. Follow it with: penstock jobs --watch")
        emit(f"Only workers with embedder = {plan.space.partition('-')[0]} run them; restart the others.")
    elif ids:
        emit(
            "Done."
            if not failed
            else f"{len(failed)} of {how_many(len(jobs), 'job')} failed: penstock jobs ID"
        )
    if failed:
        raise SystemExit(REFUSED)
