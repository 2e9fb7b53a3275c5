"""What one invocation of the command knows: the global options, and the service, opened when first needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.redis_contract.producer_types import Health, PreparedMessage, SubmitRequest
    from penstock.service.documents import Documents
    from penstock.service.jobs import Jobs
    from penstock.service.rebuild import Rebuilder
    from penstock.service.search import Search
    from penstock.service.verification import Verifier

Command = TypeVar("Command", bound=Callable[..., Any])


class Worker(Protocol):
    """A worker that is ready to run."""

    serves: list[str]
    where: str
    processes: int

    def run(self, tell: Callable[[], object] = ...) -> None: ...


class Gateway(Protocol):
    """A gateway that is ready to run."""

    serves: list[str]
    where: str

    def run(self, tell: Callable[[], object] = ...) -> None: ...


class Contract(Protocol):
    """The Redis contract as its producers see it."""

    def prepare(self, rag_id: str, path: str, asked: SubmitRequest) -> PreparedMessage: ...

    def submit(self, prepared: PreparedMessage) -> None: ...

    def status(self, job_id: str) -> dict[str, Any]: ...

    def health(self) -> Health: ...

    def close(self) -> None: ...


class House(Protocol):
    """How things are opened: the composition root's to say."""

    def jobs(self, settings: Settings) -> Jobs: ...

    def documents(self, settings: Settings, jobs: Jobs) -> Documents: ...

    def search(self, settings: Settings, documents: Documents) -> Search: ...

    def verifier(self, documents: Documents, jobs: Jobs) -> Verifier: ...

    def rebuilder(self, settings: Settings, documents: Documents, jobs: Jobs) -> Rebuilder: ...

    def worker(self, settings: Settings, **options: Any) -> Worker: ...

    def worker_once_reachable(self, settings: Settings, **options: Any) -> Worker | None: ...

    def worker_alive(self, settings: Settings, jobs: Jobs) -> bool: ...

    def wait(self, jobs: Jobs, job_id: str) -> None: ...

    def contract(self, settings: Settings) -> Contract: ...

    def gateway(self, settings: Settings, jobs: Jobs, documents: Documents) -> Gateway: ...


class Session:
    """Commands get it by ``@click.pass_obj``. Everything is opened when it is first asked for."""

    def __init__(self, load: Callable[..., Settings], house: House) -> None:
        self._load = load
        self.overrides: dict[str, str | None] = {}
        """Settings that the command line names, before the command or after it."""
        self._house = house
        self._opened: list[Jobs] = []
        self.as_json = False

    @functools.cached_property
    def settings(self) -> Settings:
        return self._load(**self.overrides)

    @functools.cached_property
    def jobs(self) -> Jobs:
        return self.another_jobs()

    def another_jobs(self) -> Jobs:
        """A handle of its own, for another thread."""
        self._opened.append(self._house.jobs(self.settings))
        return self._opened[-1]

    @functools.cached_property
    def documents(self) -> Documents:
        return self._house.documents(self.settings, self.jobs)

    @functools.cached_property
    def search(self) -> Search:
        return self._house.search(self.settings, self.documents)

    @property
    def verifier(self) -> Verifier:
        return self._house.verifier(self.documents, self.jobs)

    @functools.cached_property
    def rebuilder(self) -> Rebuilder:
        return self._house.rebuilder(self.settings, self.documents, self.jobs)

    def refuse_another_model(self) -> None:
        """Before work that makes vectors is done here: it would never end, were the catalog's others."""
        self.documents.refuse_another_model()

    def make_worker(self, settings: Settings, **options: Any) -> Worker:
        return self._house.worker(settings, **options)

    def worker_once_reachable(self, settings: Settings, **options: Any) -> Worker | None:
        """As ``make_worker``, once its stores can be opened. None: a signal asked to stop before that."""
        return self._house.worker_once_reachable(settings, **options)

    def worker_alive(self) -> bool:
        return self._house.worker_alive(self.settings, self.jobs)

    def wait(self, job_id: str) -> None:
        self._house.wait(self.jobs, job_id)

    @contextmanager
    def contract(self, settings: Settings) -> Iterator[Contract]:
        opened = self._house.contract(settings)
        try:
            yield opened
        finally:
            opened.close()

    def make_gateway(self, settings: Settings) -> Gateway:
        return self._house.gateway(settings, self.jobs, self.documents)

    def close(self) -> None:
        for jobs in self._opened:
            jobs.queue.close()
        if "documents" in self.__dict__:
            self.documents.catalog.close()


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
