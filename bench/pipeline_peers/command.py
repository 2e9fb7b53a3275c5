"""One command of a side: the CPU time of all its processes, their memory, and its end where it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.pipeline_peers.embedding import COUNTED_IN

WATCHER = Path(__file__).with_name("watcher.py")


class Failed(Exception):
    """A command that ended with an error; the text is the end of what it wrote."""


class Spent(msgspec.Struct, frozen=True):
    cpu_s: float
    wall_s: float
    memory_mb: float
    """The most that all processes together had at once, shared pages counted once."""
    embedded: int
    """Texts given to the embedding function."""
    output: str = ""


def run(
    command: Sequence[str], environment: Mapping[str, str], counter: Path, *, kill_at: int | None = None
) -> Spent:
    """Run a command. ``kill_at``: kill all its processes once so many texts have been embedded."""
    counter.unlink(missing_ok=True)
    answer = subprocess.run(
        [sys.executable, str(WATCHER), str(counter), str(kill_at or 0), *command],
        # Modules are compiled once, as they are where a program is installed.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment, COUNTED_IN: str(counter)},
        stdout=subprocess.PIPE,
        check=True,
    )
    code, spent = msgspec.json.decode(answer.stdout, type=tuple[int, Spent])
    if code != 0 and not (kill_at and code < 0):
        # The last line: that of the error. A traceback above it has the paths of this machine.
        raise Failed(spent.output.strip().rpartition("\n")[2][:500])
    return spent
