"""An idle worker is nearly free."""

from __future__ import annotations

import time

from tests.worker.processes import Field, seconds_on_a_core, until

WATCHED_S = 2.0


def test_an_idle_worker_uses_less_than_a_hundredth_of_a_core(field: Field):
    worker = field.worker(processes=1, heartbeat_s=30, poll_s=1.0)
    field.ended(field.put())
    pids = [worker.pid, *worker.children()]
    until(lambda: len(field.queue.workers()) == 1)
    # Let what was begun by the job pass by: reports, the last look.
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.2)

    before, started = seconds_on_a_core(pids), time.monotonic()
    until(lambda: time.monotonic() - started > WATCHED_S)
    share = (seconds_on_a_core(pids) - before) / (time.monotonic() - started)

    print(f"{field.engine}: {share:.2%} of a core")
    assert share < 0.01
