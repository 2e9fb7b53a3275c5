"""What one invocation of the command knows: the global options, and the service, opened when first needed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.service.jobs import Jobs

Command = TypeVar("Command", bound=Callable[..., Any])


class Worker(Protocol):
    """A worker that is ready to run."""

    serves: list[str]
    where: str
    processes: int

    def run(self) -> None: ...


class Session:
    """Commands get it by ``@click.pass_obj``. How a store is opened is the composition root's to say."""

    def __init__(
        self,
        load: Callable[[], Settings],
        open_jobs: Callable[[Settings], Jobs],
        make_worker: Callable[..., Worker],
    ) -> None:
        self._load = load
        self._open = open_jobs
        self.make_worker = make_worker
        self.as_json = False

    @functools.cached_property
    def settings(self) -> Settings:
        return self._load()

    @functools.cached_property
    def jobs(self) -> Jobs:
        return self._open(self.settings)

    def close(self) -> None:
        if "jobs" in self.__dict__:
            self.jobs.queue.close()


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
