"""Every test runs real workers, as processes, on each engine that outlives a process."""

from __future__ import annotations

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
