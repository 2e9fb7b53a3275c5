"""``penstock backup`` and ``penstock restore``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli import text_grid
from penstock.cli.arguments import agreed
from penstock.cli.job_progress import drawn_bar
from penstock.cli.output import emit, emit_json, printable, span
from penstock.cli.session import Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.backup.backups import BackupReport

DRAWN_EVERY_S = 0.2
LEAST_S, LEAST_SHARE = 1.0, 0.02
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
    with BackupProgress(session) as progress:
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
    with BackupProgress(session) as progress:
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
    emit(f"{headline}\n{counted}; {text_size(report.size)}, made {report.created_at} by {report.version}")


def text_size(size: int) -> str:
    """A number of bytes for people."""
    units = ("bytes", "KB", "MB", "GB", "TB")
    number = float(size)
    for unit in units:
        if number < 1000 or unit == units[-1]:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


class BackupProgress:
    """A line with the part that is read or written, and the time left, on a terminal only."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> BackupProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\x1b[2K")
            sys.stderr.flush()

    def draw(self, part: str, rows: int, share: float) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < DRAWN_EVERY_S:
            return
        self._drawn = now
        bar = f"{drawn_bar(share, 24)} " if share else ""
        width = text_grid.Screen.of(sys.stderr).width or text_grid.WITHOUT_TERMINAL
        left = time_left(now - self._began, share)
        line = text_grid.cut(f"{bar}{part}: {how_many(rows, 'row')}{left}", width - 1)
        sys.stderr.write(f"\x1b[2K{line}\r")
        sys.stderr.flush()


def time_left(seconds: float, share: float) -> str:
    """The time left after so many seconds, for people; empty while too little is done to tell."""
    if seconds < LEAST_S or share < LEAST_SHARE:
        return ""
    return f", {span(seconds * (1 - share) / share)} left"
