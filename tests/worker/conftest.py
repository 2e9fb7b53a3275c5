"""Real worker processes on each durable engine.

A module with ``ENGINES = ON_FILES`` tests the inside of a worker, which does not depend on the store. Engines
other than its ``FIRST``, by default SQLite and PostgreSQL, are left to `make test-long`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.stores import DURABLE, FIRST, given_back
from tests.worker.worker_processes import WorkerHost


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function.__annotations__.get("host") != "WorkerHost":
        return
    engines = getattr(metafunc.module, "ENGINES", DURABLE)
    first = getattr(metafunc.module, "FIRST", FIRST)
    later = {engine: [pytest.mark.long] * (engine not in first) for engine in engines}
    if "start_method" not in metafunc.fixturenames:
        each = [pytest.param(engine, marks=marks) for engine, marks in later.items()]
        metafunc.parametrize("host", each, indirect=True)
        return
    # A forked process inherits what its engine has open. A new one opens its own: a file, or a connection.
    ways = [pytest.param(engine, "fork", marks=marks) for engine, marks in later.items()]
    ways += [pytest.param(each, "spawn", marks=later[each]) for each in FIRST if each in engines]
    metafunc.parametrize(("host", "start_method"), ways, indirect=["host"])


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerHost]:
    opened = WorkerHost(request.param, tmp_path)
    yield opened
    opened.close()
    given_back(tmp_path)
