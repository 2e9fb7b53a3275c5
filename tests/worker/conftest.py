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
    if metafunc.function.__annotations__.get("host") == "WorkerHost":
        metafunc.parametrize("host", getattr(metafunc.module, "ENGINES", DURABLE), indirect=True)


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerHost]:
    opened = WorkerHost(request.param, tmp_path)
    yield opened
    opened.close()
    given_back(tmp_path)
