"""Whether it is time for a fresh process: enough jobs, or memory that was not given back."""

from __future__ import annotations

import os
import time
from pathlib import Path

MEMORY_EVERY_S = 1.0


class Wear:
    """``most_jobs`` and ``growth_mb`` None: it does not wear out by that."""

    def __init__(self, most_jobs: int | None, growth_mb: int | None) -> None:
        self._jobs = most_jobs
        self._growth = growth_mb
        self._memory_at_start = _resident_mb()
        self._look_at = 0.0

    def left(self, jobs: int) -> int | None:
        return None if self._jobs is None else self._jobs - jobs

    def out(self, jobs: int) -> bool:
        if self._jobs is not None and jobs >= self._jobs:
            return True
        if self._growth is None or time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + MEMORY_EVERY_S
        return _resident_mb() - self._memory_at_start > self._growth


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
