"""One server for each module: ``SERVE`` has its arguments, ``SETTINGS`` its settings, ``FILES`` its files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import run as run
from tests.cli.conftest import state as state
from tests.http.live_server import LiveServer


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    arguments = getattr(request.module, "SERVE", ("--no-worker",))
    settings = getattr(request.module, "SETTINGS", {})
    folder = tmp_path_factory.mktemp("server")
    for name, text in getattr(request.module, "FILES", {}).items():
        (folder / name).write_text(text)
    started = LiveServer(folder, *arguments, **settings)
    yield started
    code = started.stop()
    assert 0 == code, started.log.read_text()
    # No request of the tests is one that the server did not expect.
    assert "Traceback" not in started.log.read_text()
