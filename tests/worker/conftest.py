"""Every test runs real workers, as processes, on each engine that outlives a process.

A module that says ``ENGINES = ON_FILES`` is about what goes on inside a worker, whatever its store is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.stores import DURABLE, given_back
from tests.worker.worker_processes import WorkerHost


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function.__annotations__.get("field") == "WorkerHost":
        metafunc.parametrize("field", getattr(metafunc.module, "ENGINES", DURABLE), indirect=True)


@pytest.fixture
def field(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerHost]:
    opened = WorkerHost(request.param, tmp_path)
    yield opened
    opened.close()
    given_back(tmp_path)
