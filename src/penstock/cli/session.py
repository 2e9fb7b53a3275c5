"""The global options of one invocation, and the assembly made from them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.command_group import CommandContext
from penstock.cli.output import emit
from penstock.process_start import log_to_stderr

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.config import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = ("--state", "--url", "--json", "--quiet")
JSON_HELP = "Print JSON instead of text."
QUIET_HELP = "Print only results and errors."

GRACE_S = 5.0
"""Time for running jobs to finish when a command that does the work itself is interrupted."""


QUEUE_DISABLED = (
    "No job runs while queue_enabled is false (TASK_QUEUE_ENABLED). The job waits for a worker with "
    "queue_enabled = true: penstock worker"
)


class Session:
    """The object that ``@click.pass_obj`` gives to every command. Settings are read at their first use."""

    def __init__(self) -> None:
        self.as_json = False
        self.quiet = False
        self.overrides: dict[str, Any] = {}
        """Settings named on the command line, before the command or after it."""

    @property
    def settings(self) -> Settings:
        return self.assembly.settings

    @functools.cached_property
    def assembly(self) -> Assembly:
        from penstock import config
        from penstock.assembly import Assembly

        return Assembly(config.load(**self.overrides), door="cli")

    def waits_for_enabling(self, *, worker_alive: bool) -> bool:
        """Tell whether a new job waits: no worker is running, and this command may not run jobs itself."""
        return not worker_alive and not self.settings.queue_enabled

    def run_here(self, job_id: str, *, processes: int = 1) -> None:
        """Run a job inside this command until it has ended; only errors are logged.

        A note or a small file runs in this process, any other job in a worker with child processes.
        """
        log_to_stderr(logging.ERROR)
        if self.assembly.run_small_job(job_id) and not self.assembly.has_later_tasks():
            return
        self.assembly.worker(processes=processes, until_job=job_id, grace=GRACE_S).run()

    def hint(self, text: str) -> None:
        """Print advice to standard error, unless the user wants results only."""
        if not self.quiet:
            click.echo(text, err=True)

    def confirm_done(self, text: str) -> None:
        """Print to standard output that a request was carried out, unless the exit code is enough."""
        if not self.quiet:
            emit(text)

    def close(self) -> None:
        if "assembly" in self.__dict__:
            self.assembly.close()


# The global options.


def _set(context: click.Context, option: click.Parameter, value: Any) -> None:
    session = context.find_object(Session)
    if session is None or not value:
        return
    if option.name in ("as_json", "quiet"):
        setattr(session, option.name, True)
    else:
        session.overrides[str(option.name)] = value


def add_global_options(command: click.Command) -> None:
    """Let a command, and every command below it, take the global options after its name as well.

    Its help shows ``--json`` and ``--quiet``: store and state directory are no matter of the single command.
    """
    present = {name for option in command.params for name in option.opts}
    made = {
        "--state": click.Option(["--state", "state_dir"], metavar="DIR", hidden=True),
        "--url": click.Option(["--url"], metavar="URL", hidden=True),
        "--json": click.Option(["--json", "as_json"], is_flag=True, help=JSON_HELP),
        "--quiet": click.Option(["-q", "--quiet"], is_flag=True, help=QUIET_HELP),
    }
    command.context_class = CommandContext
    for name, option in made.items():
        if name not in present:
            option.expose_value, option.callback = False, _set
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)
