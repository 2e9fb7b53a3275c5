"""Handlers that stop the sender thread of their process amid a transaction on a server."""

from __future__ import annotations

from penstock.queue.job import Status
from tests.worker.worker_processes import WorkerHost

ENGINES = ("postgres",)
FIRST = ()


def test_a_handler_that_keeps_rows_locked_is_stopped_and_runs_alone(host: WorkerHost):
    """The rows of the transaction are locked for the supervisor as well."""
    host.put_many(150)
    stuck = host.put("block_the_sender", max_retries=0)
    host.put_many(60)
    worker = host.worker(until_idle=True, lock_silence_s=1.0)

    assert 0 == worker.ended()

    job = host.job(stuck)
    assert {Status.DONE} == {each.status for each in host.jobs()}
    assert (2, 0) == (job.claim_number, job.retry_count)
    assert "blocks its process, which has the lock of the store" in worker.log
