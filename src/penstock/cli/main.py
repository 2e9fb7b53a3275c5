"""The ``penstock`` command. A command is imported when it is called, and heavy packages when it runs."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any, NoReturn

import click

from penstock.cli.command_group import TASKS, TaskGroup
from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.lazy_commands import LazyCommands
from penstock.cli.session import JSON_HELP, QUIET_HELP, Session, add_global_options
from penstock.cli.streams import mend_standard_streams, print_error
from penstock.errors import PenstockError


class Root(TaskGroup):
    """Prints an error raised in any command as one line, and ends with its exit code."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **more)
        except OSError as error:  # while help was written
            code = print_error(error, as_json=False)
            if code is None:
                raise
            raise SystemExit(code) from None
        except KeyboardInterrupt:
            raise SystemExit(_interrupted()) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (PenstockError, OSError, ImportError) as error:
            session = ctx.find_object(Session)
            code = print_error(error, as_json=session is not None and session.as_json)
            if code is None:
                raise
            ctx.exit(code)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(_interrupted())


def _interrupted() -> int:
    click.echo("interrupted", err=True)
    return INTERRUPTED


def _close(session: Session) -> None:
    try:
        session.close()
    except KeyboardInterrupt:
        # Click would print "Aborted!" and end with 1, as if the command had failed.
        raise SystemExit(_interrupted()) from None


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--state", metavar="DIR", help="State directory; overrides PENSTOCK_STATE.")
@click.option("--url", metavar="URL", help="URL of the queue; overrides PENSTOCK_URL.")
@click.option("--server", metavar="URL", help="Work through this server; overrides PENSTOCK_SERVER.")
@click.option("--no-server", is_flag=True, help="Use the stores, although a server is running or named.")
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
@click.option("-q", "--quiet", is_flag=True, help=QUIET_HELP)
@click.version_option(None, "-V", "--version", package_name="penstock", message="penstock %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    /,
    state: str | None,
    url: str | None,
    server: str | None,
    no_server: bool,
    **shown: bool,
) -> None:
    """Index files, folders and notes, search them, and run background jobs.

    Without --url and --state the queue is an SQLite file in the state directory; `penstock config show`
    prints its path. With --server they are those of a server; a running server of the same state answers
    questions also without it. Global options may also follow the command.

    Exit codes: 0 done, 1 refused or failed, 2 usage, 3 configuration, 4 not found, 5 conflict, 6 queue full,
    7 store, 8 unreadable as before, 130 interrupted, 141 output closed; see docs/reference/exit-codes.md.
    """
    session = Session()
    session.overrides.update(url=url, state_dir=state, server=server)
    session.as_json, session.quiet, session.no_server = shown["as_json"], shown["quiet"], no_server
    session.command = context.invoked_subcommand
    context.obj = session
    context.call_on_close(lambda: _close(session))


COMMANDS = {
    name: f"{module}:{name.replace('-', '_')}{'_' * iskeyword(name)}"
    for modules in TASKS.values()
    for name, module in modules.items()
}
"""Module and function of each command. The function of one named like a keyword ends with an underscore."""
FORMER_COMMANDS = {
    "gateway": "redis_commands:gateway",
    "ingest": "redis_commands:ingest",
    "start": "serve_commands:serve",
}
"""Former spellings, which help and completion leave out."""

cli.commands = LazyCommands(COMMANDS, FORMER_COMMANDS, prepare=add_global_options)


def main() -> NoReturn:
    mend_standard_streams()
    cli(prog_name="penstock")
    raise AssertionError("click leaves by SystemExit")


if __name__ == "__main__":
    main()
