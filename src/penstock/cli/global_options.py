"""Global options, accepted before the command, after it, and after every group between."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.session import Session

OPTIONS = ("--state", "--url", "--json")


def _set(context: click.Context, option: click.Parameter, value: Any) -> None:
    session = context.find_object(Session)
    if session is None or not value:
        return
    if option.name == "as_json":
        session.as_json = True
    else:
        session.overrides[str(option.name)] = value


def add_global_options(command: click.Command) -> None:
    """Give a command, and every command below it, the global options it does not have yet.

    Where and in which form something is answered is no matter of the one command: its help names ``--json``
    only.
    """
    present = {name for option in command.params for name in option.opts}
    made = {
        "--state": click.Option(["--state", "state_dir"], metavar="DIR", hidden=True),
        "--url": click.Option(["--url"], metavar="URL", hidden=True),
        "--json": click.Option(["--json", "as_json"], is_flag=True, help="Answer in JSON, for programs."),
    }
    for name, option in made.items():
        if name not in present:
            option.expose_value, option.callback = False, _set
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)
