"""An idle worker is nearly free."""

from __future__ import annotations

import time

from tests.worker.worker_processes import WorkerHost, until, wake_ups

WATCHED_S = 2.0
MOST_A_SECOND = 100
"""Each is well under a tenth of a millisecond, together less than a hundredth of a core (see ``bench``)."""


def test_an_idle_worker_sleeps(field: WorkerHost):
    worker = field.worker(processes=1, heartbeat_s=30, poll_s=1.0)
    field.ended(field.put())
    pids = [worker.pid, *worker.children()]
    until(lambda: len(field.queue.workers()) == 1)
    # Let what was begun by the job pass by: reports, the last look.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.2)

    before, started = wake_ups(pids), time.monotonic()
    until(lambda: time.monotonic() - started > WATCHED_S)
    rate = (wake_ups(pids) - before) / (time.monotonic() - started)

    print(f"{field.engine}: {rate:.0f} wake-ups a second")
    assert rate < MOST_A_SECOND
