"""Functions of one child process kept apart: what one leaves behind never reaches a job of another.

The record is compared before another function runs and before more jobs are claimed, not after every job:
many calls of one function in a row cost nothing.
"""

from __future__ import annotations

import logging

import msgspec

from penstock.job import Claim
from penstock.worker.log_text import function_of
from penstock.worker.process_guard import ProcessGuard
from penstock.worker.recycle_policy import RecyclePolicy

REPLACED = "its process was replaced"
_BEGINS = '{"function_name":'

log = logging.getLogger("penstock.worker")


class Isolation:
    def __init__(self, guard: ProcessGuard, wear: RecyclePolicy) -> None:
        self._guard = guard
        self._wear = wear
        self._ran: str | None = None
        """The function that ran since the process was last put back, or the kind of job."""
        self._kind = ("", "")
        self._begins = ""
        self._worn: str | None = None

    def jobs_left(self, jobs: int) -> int | None:
        """How many more this process may run; None: no limit."""
        return self._wear.left(jobs)

    def lasts(self, jobs: int) -> bool:
        """Whether this process, after so many jobs, may claim more."""
        self._worn = self._worn or self._put_back() or self._wear.out(jobs)
        return self._worn is None

    def log_end(self) -> None:
        """Only once all is settled: a function may have left the lock of the log behind."""
        if self._worn is not None:
            log.info("this process is replaced: %s", self._worn)

    def admits(self, claim: Claim) -> bool:
        """Whether this job may run here, after the functions that ran before it."""
        # By the text of its payload, which begins with the name: to decode it costs more than all the rest.
        if claim.payload_json.startswith(self._begins) and (claim.item_type, claim.op) == self._kind:
            return True
        runs = function_of(claim)
        if self._ran not in (None, runs):
            self._worn = self._put_back()
        self._ran, self._kind = runs, (claim.item_type, claim.op)
        self._begins = _BEGINS + msgspec.json.encode(runs).decode() if claim.item_type == "function" else ""
        return self._worn is None

    def _put_back(self) -> str | None:
        ran, self._ran, self._kind = self._ran, None, ("", "")
        if ran is None:
            return None
        reason = self._guard.restore() or self._wear.leaked()
        return f"{reason} (last ran: {ran[:80]!a})" if reason else None
