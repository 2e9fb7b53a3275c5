"""``penstock serve``, ``penstock stop`` and ``penstock mcp``."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import closing
from typing import Any

import click

from penstock.cli.arguments import GRACE, PROCESSES, seconds_of_grace
from penstock.cli.exit_codes import REFUSED
from penstock.cli.output import emit, emit_json, printable
from penstock.cli.session import Session
from penstock.process_start import log_to_stderr


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. One that other machines can reach needs a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    metavar="N",
    help="Port to listen on; 0 is any free one.",
)
@click.option(
    "--app",
    metavar="MODULE:NAME",
    help="Application whose functions requests may call, such as mypkg.tasks:app.",
)
@PROCESSES
@click.option("--no-worker", is_flag=True, help="Serve requests only; jobs wait for another worker.")
@click.option("--serial", is_flag=True, help="Run jobs for paths one at a time in each collection, in order.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    metavar="FOLDER",
    help="Index this folder and follow its changes, as `penstock watch` does; may be repeated.",
)
@click.option(
    "--no-auth",
    is_flag=True,
    help="Nobody needs a key, although there are keys. Only on an address of this machine.",
)
@GRACE
@click.option(
    "--tls-certificate",
    "certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Certificate for HTTPS.",
)
@click.option(
    "--tls-key",
    "private_key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Private key for HTTPS.",
)
@click.pass_obj
def serve(
    session: Session,
    /,
    app: str | None,
    no_worker: bool,
    no_auth: bool,
    serial: bool,
    watched: tuple[str, ...],
    processes: int,
    **given: Any,
) -> None:
    """Serve requests over HTTP, and run their jobs, until a stop signal.

    Requests may index what lies below this folder; PENSTOCK_ROOTS names other folders. The first SIGTERM or
    Ctrl-C lets running jobs finish. The log goes to standard error.

    \b
    penstock serve
    penstock serve --host 0.0.0.0 --tls-certificate mill.pem --tls-key mill.key
    """
    log_to_stderr(logging.WARNING if session.quiet else logging.INFO, session.settings.log_format)
    from penstock.assembly import Assembly

    settings = dataclasses.replace(session.settings, serial=True) if serial else session.settings
    with closing(Assembly.of_app(settings, app)) as assembly:
        watcher = assembly.watcher_thread(watched) if watched else None
        server = assembly.server(processes=0 if no_worker else processes, auth=not no_auth, app=app, **given)

        def announce() -> None:
            if session.as_json:
                emit_json({"url": server.url, "roots": server.roots, "worker": not no_worker})
            else:
                roots = ", ".join(map(printable, server.roots))
                session.confirm_done(f"Serving {server.url}, for paths below {roots}.")
            if watcher is not None:
                watcher.start()

        try:
            server.run(announce)
        finally:
            if watcher is not None:
                watcher.close()


@click.command()
@click.option(
    "--grace",
    default="60s",
    show_default=True,
    metavar="DURATION",
    callback=seconds_of_grace,
    help="Time to wait for the end of the server.",
)
@click.pass_obj
def stop(session: Session, grace: float) -> None:
    """Stop the server of this state directory, and wait for its end."""
    from penstock.service.runtime_file import RuntimeFile

    server, ended = RuntimeFile(session.settings.state_dir).stop(grace)
    if session.as_json:
        emit_json({"url": server.url, "pid": server.pid, "ended": ended})
    elif ended:
        session.confirm_done(f"Stopped the server at {server.url}.")
    else:
        emit(f"The server at {server.url} (process {server.pid}) is still finishing its jobs.")
    if not ended:
        raise SystemExit(REFUSED)


@click.command()
@click.option("--no-worker", is_flag=True, help="Queue work only; jobs wait for another worker.")
@click.pass_obj
def mcp(session: Session, no_worker: bool) -> None:
    """Serve one agent by the Model Context Protocol, on standard input and output.

    An MCP client starts this command itself; docs/guides/mcp.md has the entry for its configuration. Jobs run
    in a worker of this command unless another one serves the queue. The log goes to standard error.

    \b
    {"mcpServers": {"penstock": {"command": "penstock", "args": ["mcp"]}}}
    """
    log_to_stderr(logging.ERROR if session.quiet else logging.WARNING, session.settings.log_format)
    from penstock.assembly import Assembly

    with closing(Assembly(session.settings, door="mcp")) as assembly:
        assembly.serve_mcp(with_worker=not no_worker)
