"""A host with two workers that run jobs with a limit, each time that it is told the time.

Run as ``python -m tests.conformance.limit_process ENGINE PLACE DIE_AT``. Each line on stdin is a time in
milliseconds, and is answered with the number of jobs that were started. From DIE_AT on (0: never) the host is
killed when it has started a job.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest
from penstock.queue.protocol import Queue
from tests.conformance.durable_engines import opened

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
JOB_MS = 1_500
LEASE = timedelta(seconds=5)


class TimedWorker:
    """A worker whose jobs take the same time."""

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self._request = ClaimRequest(name, 1, LEASE)
        self._claim: Claim | None = None
        self._ends_at = 0

    def step(self, milliseconds: int) -> int:
        """End the job that is over, and claim the next one. Returns the number of started jobs."""
        if self._claim is not None and milliseconds < self._ends_at:
            return 0
        now = moment(milliseconds)
        over = [] if self._claim is None else [transitions.done(self._claim)]
        claims = self._queue.exchange(over, self._request, now=now).claims
        self._claim, self._ends_at = claims[0] if claims else None, milliseconds + JOB_MS
        return len(claims)


def moment(milliseconds: int) -> datetime:
    return NOON + timedelta(milliseconds=milliseconds)


def main(engine: str, place: str, die_at: int) -> None:
    queue = opened(engine, Path(place))
    workers = [TimedWorker(queue, f"host-{os.getpid()}-{number}") for number in range(2)]
    print("ready", flush=True)
    for line in sys.stdin:
        milliseconds = int(line)
        if milliseconds % 1_000 == 0:
            late = queue.expired(now=moment(milliseconds))
            queue.settle([transitions.lease_lost(job) for job in late], now=moment(milliseconds))
            queue.admit(now=moment(milliseconds))
        started = sum(worker.step(milliseconds) for worker in workers)
        if die_at and milliseconds >= die_at and started:
            os.kill(os.getpid(), signal.SIGKILL)
        print(started, flush=True)
    queue.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
