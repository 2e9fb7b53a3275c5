"""A worker that was frozen for longer than a lease begins no job that others may have taken meanwhile."""

from __future__ import annotations

import os
import signal

import pytest

from penstock import clock
from penstock.queue.job import Status
from tests.worker.worker_processes import Worker, WorkerHost, until

LEASE_S = 2.0
QUICK = 60
"""Jobs after which a child claims several at once."""


def frozen_with_two_jobs(host: WorkerHost) -> tuple[Worker, str, str]:
    """A frozen worker whose child runs the first job and has the second in hand."""
    while True:
        host.put_many(QUICK)
        first = host.put("freeze_in_first_run")
        second = host.put(lock_key="entity")
        worker = host.worker("frozen", lease_s=LEASE_S)
        host.stopped(host.began(first).pid)
        host.freeze_supervisor(worker)
        if Status.IN_PROGRESS is host.job(second).status:
            return worker, first, second
        # It claimed the first job alone.
        worker.kill()
        host.worker("other", until_idle=True).ended()


@pytest.mark.parametrize("thawed_first", ["supervisor", "child"])
def test_a_job_whose_lease_may_be_over_is_not_begun(host: WorkerHost, thawed_first: str) -> None:
    worker, first, second = frozen_with_two_jobs(host)
    [child] = worker.children()
    later = host.put(lock_key="entity")
    other = host.worker("other", upkeep_s=0.2)
    until(lambda: all(host.job(job_id).ended for job_id in (first, second, later)))
    other.kill()

    thawed_at = clock.now()
    if thawed_first == "supervisor":
        worker.signal(signal.SIGCONT)
        until(lambda: any(each.seen_at and each.seen_at > thawed_at for each in host.queue.workers()))
    os.kill(child, signal.SIGCONT)
    last = host.put(lock_key="entity")
    assert child == host.began(last).pid

    assert 2 == len(host.recorded("began", first))
    assert [1, 1] == [len(host.recorded("began", job_id)) for job_id in (second, later)]
