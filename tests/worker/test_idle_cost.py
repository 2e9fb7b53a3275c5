"""An idle worker is nearly free."""

from __future__ import annotations

import time

from tests.worker.worker_processes import WorkerHost, until, wake_ups

WATCHED_S = 2.0
MOST_A_SECOND = 100
"""Limit on wake-ups: each is under a tenth of a millisecond, together under a hundredth of a core."""


def test_an_idle_worker_sleeps(host: WorkerHost):
    worker = host.worker(processes=1, heartbeat_s=30, poll_s=1.0)
    host.ended(host.put())
    pids = [worker.pid, *worker.children()]
    until(lambda: len(host.queue.workers()) == 1)
    # Wait for reports and checks that the job itself caused.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.2)

    before, started = wake_ups(pids), time.monotonic()
    until(lambda: time.monotonic() - started > WATCHED_S)
    rate = (wake_ups(pids) - before) / (time.monotonic() - started)

    print(f"{host.engine}: {rate:.0f} wake-ups a second")
    assert rate < MOST_A_SECOND
