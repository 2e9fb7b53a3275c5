"""Jobs that mostly wait for the network, such as webhooks: each in a thread, beside the other work.

One job after the other, a few receivers that do not answer would hold all processes. A thread that waits for
one costs next to nothing. The number is bounded: beyond it, jobs are released for a while.

Such a job bounds its own time, so the watchdog does not look at it, and a cancel takes effect after the
attempt. When its process dies, it is released: a delivery does not crash a process.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta

from penstock import lifecycle
from penstock.handlers.context import Context
from penstock.job import Claim, Settlement
from penstock.worker.executor import Executor
from penstock.worker.shared_state import ExecutingJob, SharedState

MOST_BESIDE = 16
"""Most of these jobs in one process at a time."""
THREADS_EACH = 3
"""The thread of a job, one for its deadline, and one for the resolver."""
FULL = f"{MOST_BESIDE} jobs of this kind wait for the network here; it is looked at again soon"
AGAIN_S = 5.0
"""Shortest time until a job that found no room is looked at again; at most twice as long."""


class BesideJobs:
    """The jobs in threads of one process. ``add_results`` takes their results, from any thread."""

    def __init__(
        self,
        executor: Executor,
        state: SharedState,
        make_context: Callable[[Claim], Context],
        add_results: Callable[[list[Settlement]], object],
    ) -> None:
        self._executor = executor
        self._state = state
        self._make_context = make_context
        self._add_results = add_results
        self._changed = threading.Condition()
        self._running: dict[tuple[str, int], ExecutingJob] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def threads(self) -> int:
        return THREADS_EACH * len(self._running)

    def names(self) -> set[tuple[str, int]]:
        """Id and claim number of each."""
        with self._changed:
            return set(self._running)

    def start(self, claim: Claim) -> Settlement | None:
        """Run a job in a thread; without room return its release."""
        if len(self._running) >= MOST_BESIDE:
            return _later(claim)
        thread = threading.Thread(target=self._run, args=(claim,), name="penstock-beside", daemon=True)
        name = claim.queue_id, claim.claim_number
        with self._changed:
            self._running[name] = ExecutingJob(*name, claim.timeout_s)
            self._state.record_beside(tuple(self._running.values()))
        try:
            thread.start()
        except RuntimeError:  # no thread or memory is left
            self._remove(name)
            return _later(claim)
        return None

    def wait_for_all(self, timeout: float) -> bool:
        """Wait until no job runs; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def _run(self, claim: Claim) -> None:
        try:
            self._add_results(self._executor.run([claim], lambda _, one: self._make_context(one)))
            self._state.count_beside()
        finally:
            # Only now: until its result is in the outbox, the job counts as running.
            self._remove((claim.queue_id, claim.claim_number))

    def _remove(self, name: tuple[str, int]) -> None:
        with self._changed:
            del self._running[name]
            self._state.record_beside(tuple(self._running.values()))
            self._changed.notify_all()


def _later(claim: Claim) -> Settlement:
    delay = timedelta(seconds=AGAIN_S * random.uniform(1, 2))
    return lifecycle.released(claim, FULL, delay=delay, code="ERR_TOO_EARLY")
