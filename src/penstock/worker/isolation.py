"""Isolation between the functions of one child process, and the reasons to replace the process.

The process is restored before another function runs and before more jobs are claimed, not after every job:
many calls of one function in a row cost nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.job import Claim
from penstock.vocabulary import how_many
from penstock.worker.log_text import function_name
from penstock.worker.process_guard import ProcessGuard

REPLACED = "its process was replaced"
_PAYLOAD_START = '{"function_name":'
LOOK_EVERY_S = 1.0
THREADS, DESCRIPTORS = 64, 1_024
"""Threads and descriptors a child may have beyond those at its start. Pools of functions need fewer."""

log = logging.getLogger("penstock.worker")


class RecyclePolicy:
    """Limits after which a process is replaced. ``most_jobs``, ``growth_mb``: None is no limit."""

    def __init__(self, most_jobs: int | None, growth_mb: int | None) -> None:
        self._jobs = most_jobs
        self._growth = growth_mb
        self._memory_at_start = _resident_mb()
        self._peak = _peak_mb()
        self._threads = threading.active_count() + THREADS
        self._descriptors = _descriptor_limit()
        self._look_at = 0.0
        self.threads_beside: Callable[[], int] = lambda: 0
        """Number of threads of the worker itself that come and go."""

    def jobs_left(self, jobs: int) -> int | None:
        return None if self._jobs is None else self._jobs - jobs

    def reason(self, jobs: int) -> str | None:
        """Reason to replace this process after so many jobs; memory is checked once a second."""
        if self._jobs is not None and jobs >= self._jobs:
            return f"it ran {how_many(jobs, 'job')}"
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + LOOK_EVERY_S
        return self._growth_reason()

    def leak_reason(self) -> str | None:
        """Reason to replace this process after a function, found by cheap checks only."""
        if threading.active_count() - self.threads_beside() > self._threads:
            return f"more than {THREADS} threads were left running in it"
        if _lowest_free_descriptor() > self._descriptors:
            return "too many descriptors were left open in it"
        peak = _peak_mb()
        if peak > self._peak:
            self._peak = peak
            return self._growth_reason()
        return None

    def _growth_reason(self) -> str | None:
        if self._growth is None or _resident_mb() - self._memory_at_start <= self._growth:
            return None
        return f"its memory grew by more than {self._growth} MB"


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _descriptor_limit() -> int:
    """Half of the descriptors left at the start: settling and exiting need some."""
    used = _lowest_free_descriptor()
    jobs_left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used
    return used + max(min(jobs_left // 2, DESCRIPTORS), 4)


def _lowest_free_descriptor() -> int:
    """Approximate number of open descriptors: the kernel assigns the lowest free number."""
    try:
        number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:
        return 1 << 30  # no descriptor is free, or standard input was closed, which the guard repairs
    os.close(number)
    return number


class Isolation:
    """Restores the process between two functions, and decides when to replace the process."""

    def __init__(
        self, guard: ProcessGuard, policy: RecyclePolicy, runs_beside: Callable[[Claim], bool]
    ) -> None:
        self._runs_beside = runs_beside
        self.beside = False
        """The last job may run in a thread. Asked once for many calls of one function in a row."""
        self._guard = guard
        self._policy = policy
        self._last_function: str | None = None
        """Function, or kind of job, that ran since the process was last restored."""
        self._kind = ("", "")
        self._payload_start = ""
        self._reason: str | None = None

    def jobs_left(self, jobs: int) -> int | None:
        """Number of jobs this process may still run; None: no limit."""
        return self._policy.jobs_left(jobs)

    def may_claim(self, jobs: int) -> bool:
        """True if this process may claim more after so many jobs."""
        self._reason = self._reason or self._restore() or self._policy.reason(jobs)
        return self._reason is None

    def log_replacement(self) -> None:
        """Log why the process is replaced, after all is settled: a function may hold the lock of the log."""
        if self._reason is not None:
            log.info("this process is replaced: %s", self._reason)

    def may_run(self, claim: Claim) -> bool:
        """True if this job may run here, after the functions run before."""
        # The payload starts with the name. Comparing text is cheap; decoding would cost more than the rest.
        if claim.payload_json.startswith(self._payload_start) and (claim.item_type, claim.op) == self._kind:
            return True
        self.beside = self._runs_beside(claim)
        function = function_name(claim)
        if self._last_function not in (None, function):
            self._reason = self._restore()
        self._last_function, self._kind = function, (claim.item_type, claim.op)
        self._payload_start = (
            _PAYLOAD_START + msgspec.json.encode(function).decode() if claim.item_type == "function" else ""
        )
        return self._reason is None

    def _restore(self) -> str | None:
        last_function, self._last_function, self._kind = self._last_function, None, ("", "")
        if last_function is None:
            return None
        reason = self._guard.restore() or self._policy.leak_reason()
        return f"{reason} (last ran: {last_function[:80]!a})" if reason else None
