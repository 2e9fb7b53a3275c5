"""A live server with some documents, and both clients of it behind one face."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import AsyncClient, Client, Penstock, config
from penstock.catalog.rules.phases import LATER_PHASES
from penstock.queue.job import Job
from tests.http.live_server import LiveServer, until

KINDS = ("Client", "AsyncClient")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, awaited: Any) -> Any:
        async def ended() -> Any:
            return await awaited

        return asyncio.run_coroutine_threadsafe(ended(), self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Waited:
    """An ``AsyncClient`` with the face of a ``Client``: each method waits for its result."""

    def __init__(self, client: Any, loop: Loop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return Waited(method, self._loop)

        def call(*given: Any, **named: Any) -> Any:
            made = method(*given, **named)
            return self._loop.run(made) if inspect.isawaitable(made) else self._each(made)

        return call

    def _each(self, events: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(anext(events))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(events.aclose())  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self._client)


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


MakeClient = Callable[..., Any]


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, loop: Loop) -> Iterator[MakeClient]:
    """Makes clients of one kind, and closes them."""
    made: list[Any] = []

    def make(url: str, key: str | None = None, **options: Any) -> Any:
        client: Any = (
            Client(url, key, **options)
            if request.param == "Client"
            else Waited(AsyncClient(url, key, **options), loop)
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


SERVE = ("--processes", "1")
# Without it, the directory is one of each test.
SETTINGS = {"models_dir": str(Path(tempfile.gettempdir()) / "no-models")}
MILL = "# Mill\n\nThe mill takes in water from the river. Ada Lovelace wrote about the mill.\n"
GATE = "# Gate\n\nThe gate of the mill is closed at night, and the water waits.\n"


class Indexed(NamedTuple):
    """A server with an indexed folder, and its stores opened here as well."""

    server: LiveServer
    app: Penstock
    job: Job
    folder: Path

    @property
    def mill(self) -> str:
        return str(self.folder / "mill.md")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for each module.

    Its worker looks for jobs twenty times a second: kept to the end of a run, it costs ten starts.
    """
    started = LiveServer(tmp_path_factory.mktemp("server"), *SERVE, **SETTINGS)
    yield started
    assert 0 == started.stop(), started.log.read_text()
    assert "Traceback" not in started.log.read_text()


@pytest.fixture(scope="module")
def indexed(server: LiveServer) -> Iterator[Indexed]:
    folder = server.folder / "docs"
    folder.mkdir()
    (folder / "mill.md").write_text(MILL)
    (folder / "gate.md").write_text(GATE)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    settings = config.load(server.environment(), state_dir=server.state)
    with Penstock(settings=settings) as app:
        receipt = app.index(folder, graph=True, priority=9)
        job = app.wait(receipt.job_id, timeout=120)
        # Entities are extracted after the documents are in search, and the job has ended.
        until(lambda: _open_extractions(app), lambda number: number == 0)
        yield Indexed(server, app, job, folder)


def _open_extractions(app: Penstock) -> int:
    with app.documents.catalog.snapshot() as snapshot:
        return sum(snapshot.open_tasks(phase) for phase in LATER_PHASES)
