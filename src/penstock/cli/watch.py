"""``penstock watch``."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import closing
from typing import Any

import click

from penstock.cli.options import seconds_of_grace
from penstock.cli.output import emit_json, printable
from penstock.cli.session import Session
from penstock.process_start import log_to_stderr


@click.command()
@click.argument("paths", metavar="FOLDER...", nargs=-1, required=True, type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection for the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option(
    "--project/--no-project",
    default=None,
    help="Watch projects, by their branches, or any folders. Default: a project in a git work tree.",
)
@click.option("--include", multiple=True, metavar="GLOB", help="Index only matching files; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated.")
@click.option(
    "--include-code/--no-code",
    default=None,
    help="Index source code, or leave it out. Default: in a git repository or beside a project file.",
)
@click.option(
    "--rescan",
    "rescan_s",
    default="1h",
    show_default=True,
    metavar="DURATION",
    callback=seconds_of_grace,
    help="Time between two comparisons of all files, for changes without an event of the system.",
)
@click.option("--no-worker", is_flag=True, help="Queue changes only; jobs wait for another worker.")
@click.pass_obj
def watch(
    session: Session, /, paths: tuple[str, ...], tenant: str | None, no_worker: bool, **options: Any
) -> None:
    """Index folders, and keep the index equal to them until a stop signal.

    Jobs run in a worker of this command unless another one serves the queue. The log goes to standard error.

    \b
    penstock watch ~/notes
    penstock watch . --exclude 'drafts/' --no-worker
    """
    log_to_stderr(logging.ERROR if session.quiet else logging.WARNING, session.settings.log_format)
    from penstock.assembly import Assembly

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with closing(Assembly(session.settings, door="watcher")) as assembly:
        assembly.watch(
            paths,
            with_worker=not no_worker,
            stop=stop,
            started=lambda: _print_start(session, paths, with_worker=not no_worker),
            report=session.hint,
            tenant_id=tenant,
            **options,
        )


def _print_start(session: Session, paths: tuple[str, ...], *, with_worker: bool) -> None:
    if session.as_json:
        emit_json({"watching": list(paths), "worker": with_worker})
    else:
        session.confirm_done(f"Watching {', '.join(map(printable, paths))} (Ctrl-C stops).")
