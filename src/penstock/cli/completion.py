"""``penstock completion``: the script that completes commands and options in a shell."""

from __future__ import annotations

import click

from penstock.cli.output import emit, emit_json
from penstock.cli.session import Session

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
