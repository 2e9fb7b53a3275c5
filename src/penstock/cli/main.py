"""The ``penstock`` command, its table of commands, and ``penstock completion``.

A command is imported when it is called, and heavy packages when it runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

import click

from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.output import emit, emit_json, mend_standard_streams, print_error
from penstock.cli.session import JSON_HELP, QUIET_HELP, TASKS, Session, TaskGroup, add_global_options
from penstock.errors import PenstockError


class _LazyCommands(MutableMapping[str, click.Command]):
    """The ``commands`` of a group, each imported at its first use: one does not pay for the options of all.

    ``places`` gives module and function: ``{"index": "index:index"}``.

    ``former`` are former spellings: hidden copies of commands. ``prepare`` is called with each command after
    its import.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        former: Mapping[str, str],
        *,
        prepare: Callable[[click.Command], None],
    ) -> None:
        self._places = {**places, **former}
        self._former = frozenset(former)
        self._prepare = prepare
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, _, function = self._places[name].partition(":")
            command: click.Command = getattr(import_module(f"penstock.cli.{module}"), function)
            if name in self._former:
                command = copy.copy(command)
                command.hidden = True
            self._prepare(command)
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


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


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PENSTOCK_COMPLETE"
"""Set by the script when it asks the command for completions; click derives the name from ``penstock``."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    The guide docs/guides/first-steps.md says where each shell looks for it.

    \b
    penstock completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    session = context.find_object(Session)
    assert made is not None
    assert session is not None
    script = made(context.find_root().command, {}, "penstock", VARIABLE).source().strip("\n")
    if session.as_json:
        emit_json({"shell": shell, "script": script})
    else:
        emit(script)


COMMANDS = {
    name: f"{module}:{name.replace('-', '_')}{'_' * iskeyword(name)}"
    for modules in TASKS.values()
    for name, module in modules.items()
}
"""Module and function of each command. The function of one named like a keyword ends with an underscore."""
_FORMER_COMMANDS = {
    "gateway": "redis:gateway",
    "ingest": "redis:ingest",
    "start": "server:serve",
}
"""Former spellings, which help and completion leave out."""

cli.commands = _LazyCommands(COMMANDS, _FORMER_COMMANDS, prepare=add_global_options)


def main() -> NoReturn:
    mend_standard_streams()
    cli(prog_name="penstock")
    raise AssertionError("click leaves by SystemExit")


if __name__ == "__main__":
    main()
