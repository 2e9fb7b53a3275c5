"""Every test runs real workers, as processes, on each engine that outlives a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Field

ENGINES = ("sqlite", "jsonl")


@pytest.fixture(params=ENGINES)
def field(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Field]:
    opened = Field(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def slowness() -> float:
    """Seconds that a busy machine may add to a time limit: starting two interpreters is most of it."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import msgspec, logging, multiprocessing"], check=True)
    return 4 * max(0.0, time.monotonic() - began - 0.15)
