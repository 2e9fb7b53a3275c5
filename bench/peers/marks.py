"""Which job ran when and where, in a file that all processes map.

A mark costs every contender the same fraction of a microsecond and asks no library for results; and since it
says when, nothing depends on how often the one who measures looks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

MARKS = "marks"
MARKS_VARIABLE = "PENSTOCK_BENCH_MARKS"
"""Names the directory of the marks to the workers that are measured."""
SETTLING = 0.1
"""The part of a drain that is left out: what starts with a full hand would look faster than it is."""

Times = np.ndarray[Any, np.dtype[np.float64]]
Processes = np.ndarray[Any, np.dtype[np.int32]]


class Marks:
    def __init__(self, directory: Path, jobs: int | None = None) -> None:
        """``jobs``: make it, for so many."""
        path = directory / MARKS
        if jobs:
            path.write_bytes(b"")
            os.truncate(path, jobs * 12)
        count = path.stat().st_size // 12
        self.times: Times = np.memmap(path, np.float64, "r+", 0, (count,))
        self.processes: Processes = np.memmap(path, np.int32, "r+", count * 8, (count,))
        # Setting one item of a plain view takes half the time of one of an array.
        self._times: Any = self.times.data
        self._processes: Any = self.processes.data
        self._process = os.getpid()

    def set(self, number: int) -> None:
        self._processes[number] = self._process
        self._times[number] = time.monotonic()

    def done(self, jobs: int | None = None) -> int:
        """Of the first so many."""
        return int(np.count_nonzero(self.times[:jobs]))


def rate(times: Times, processes: Processes, workers: int = 1) -> float | None:
    """Jobs a second while all workers were at it; None where there was no such while."""
    ran = times > 0
    times, processes = times[ran], processes[ran]
    firsts = [times[processes == process].min() for process in np.unique(processes)]
    if len(firsts) < workers:
        return None
    begun, end = max(firsts), times.max()
    start = begun + SETTLING * (end - begun)
    counted = int(np.count_nonzero(times > start))
    return counted / float(end - start) if end > start else None
