"""The directory shared by all processes of one test run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PLACE = "PENSTOCK_TEST_RUN"
LEADER = "PENSTOCK_TEST_RUN_PID"


def begin(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[PLACE] = tempfile.mkdtemp(prefix="penstock-tests-")
        os.environ[LEADER] = str(os.getpid())


def end(config: pytest.Config, stops: Sequence[Callable[[], None]]) -> None:
    if not hasattr(config, "workerinput") and PLACE in os.environ:
        for stop in stops:
            stop()
        shutil.rmtree(os.environ.pop(PLACE), ignore_errors=True)


def place() -> Path:
    return Path(os.environ[PLACE])


def leader() -> int:
    """Process of the run that starts the others and ends after them."""
    return int(os.environ[LEADER])


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Lock: one process of this run at a time."""
    with (place() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
