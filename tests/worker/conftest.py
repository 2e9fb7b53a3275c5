"""Real worker processes on each durable engine.

A module with ``ENGINES = ON_FILES`` tests the inside of a worker, which does not depend on the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.stores import DURABLE, given_back
from tests.worker.worker_processes import WorkerHost


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function.__annotations__.get("host") != "WorkerHost":
        return
    engines = getattr(metafunc.module, "ENGINES", DURABLE)
    if "start_method" not in metafunc.fixturenames:
        metafunc.parametrize("host", engines, indirect=True)
        return
    # A forked process inherits what its engine has open. A new one opens its own: a file, or a connection.
    ways = [(engine, "fork") for engine in engines]
    ways += [(engine, "spawn") for engine in ("sqlite", "postgres") if engine in engines]
    metafunc.parametrize(("host", "start_method"), ways, indirect=["host"])


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerHost]:
    opened = WorkerHost(request.param, tmp_path)
    yield opened
    opened.close()
    given_back(tmp_path)
