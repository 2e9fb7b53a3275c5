"""The global options of one invocation, and the assembly they describe."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.log_output import log_to_stderr

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.config import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

GRACE_S = 5.0
"""Time for running jobs to finish when a command that does the work itself is interrupted."""


class Session:
    """What every command gets by ``@click.pass_obj``. Settings are read when they are first needed."""

    def __init__(self) -> None:
        self.as_json = False
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

    def run_here(self, job_id: str, *, processes: int = 1) -> None:
        """Run a worker inside this command until the job has ended. The terminal is the command's: only
        errors are logged."""
        log_to_stderr(logging.ERROR)
        self.assembly.worker(processes=processes, until_job=job_id, grace=GRACE_S).run()

    def close(self) -> None:
        if "assembly" in self.__dict__:
            self.assembly.close()


def _turn_on_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    # The group's own option is read before there is a session; it is asked for in the group's function.
    session = context.find_object(Session)
    if value and session is not None:
        session.as_json = True


def json_option(command: Command) -> Command:
    """``--json``, on every command as well as before it."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_turn_on_json,
        help="Answer in JSON, for programs.",
    )(command)
