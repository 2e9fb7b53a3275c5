"""Timeouts and cancels: requested at checkpoints, enforced on code without checkpoints."""

from __future__ import annotations

import signal
import time

from penstock.queue.job import JobQuery, Status
from tests.worker.worker_processes import WorkerHost, alive, until, within

FIRST = ("sqlite",)

NEVER_YIELD = ("sleep", "busy", "regex", "digest", "stubborn", "awaits")
"""A system call, Python, C that blocks the interpreter, C that releases it, code that will not stop, and a
coroutine."""


def put_each(host: WorkerHost, **fields: int) -> dict[str, str]:
    return {do: host.put(do, payload={"seconds": 600}, **fields) for do in NEVER_YIELD}


def test_code_that_never_yields_is_stopped_within_5_s_of_its_timeout(host: WorkerHost):
    ids = put_each(host, timeout_s=1)
    host.worker(processes=len(NEVER_YIELD))

    for do, job_id in ids.items():
        begun = host.began(job_id)
        job = host.ended(job_id)
        assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code), do
        assert ("Timeout after 1s", 0) == (job.error_message, job.retry_count), do
        assert within(1 + 5, time.monotonic() - begun.at), do
    assert Status.DONE is host.ended(host.put()).status


def test_code_that_never_yields_is_stopped_on_cancel_within_the_grace_and_2_s(host: WorkerHost):
    ids = put_each(host)
    host.worker(processes=len(NEVER_YIELD), grace_s=0.5)
    for job_id in ids.values():
        host.began(job_id)

    host.queue.cancel(list(ids.values()))
    asked = time.monotonic()

    for do, job_id in ids.items():
        assert Status.CANCELLED is host.ended(job_id).status, do
    assert within(0.5 + 2, time.monotonic() - asked)
    assert Status.DONE is host.ended(host.put()).status


def test_a_timeout_that_was_asked_for_bounds_the_children_too(host: WorkerHost):
    child = {"do": "checkpoints", "record": str(host.record)}
    job_id = host.put("parent", payload={"child": child}, timeout_s=2)
    worker = host.worker()
    begun = host.began(job_id).at

    job = host.ended(job_id, timeout=60)

    assert (Status.FAILED, "Timeout after 2s") == (job.status, job.error_message)
    assert within(2 + 2, time.monotonic() - begun)
    (below,) = host.queue.find(JobQuery(parent_id=job_id))
    assert Status.CANCELLED is host.ended(below.queue_id, timeout=60).status
    assert "Timeout after 2s" in worker.log


def test_a_timeout_is_kept_while_somebody_else_holds_the_store(host: WorkerHost):
    job_id = host.put("sleep", payload={"seconds": 600}, timeout_s=1)
    host.worker()
    pid = host.began(job_id).pid

    with host.locked(timeout=120):
        until(lambda: not alive([pid]))

    assert "ERR_JOB_TIMEOUT" == host.ended(job_id).error_code


def test_time_in_which_the_whole_worker_stood_still_does_not_count(host: WorkerHost):
    there = host.place / "there"
    job_id = host.put("wait_for", payload={"there": str(there)}, timeout_s=4)
    worker = host.worker()
    host.began(job_id)

    host.freeze(worker)
    frozen = time.monotonic()
    # Nothing is left to do then but to see it: a busy machine does not make that late.
    there.touch()
    until(lambda: time.monotonic() - frozen > 4.5)
    worker.tree(signal.SIGCONT)

    assert (Status.DONE, 0) == (host.ended(job_id).status, host.job(job_id).retry_count)
    # The supervisor wakes beside the child, and may do so after the child has finished the job.
    until(lambda: "stood still for" in worker.log)


def test_progress_reaches_the_row_and_a_checkpoint_ends_a_cancelled_job(host: WorkerHost):
    worker = host.worker()
    job_id = host.put("checkpoints")

    progress = until(lambda: host.job(job_id).progress)
    host.queue.cancel([job_id])
    asked = time.monotonic()
    job = host.ended(job_id)

    assert within(2, time.monotonic() - asked)
    expected = {"current": 3, "total": 4, "percent": 75.0, "message": "three of four", "counts": {"files": 3}}
    assert expected == progress
    assert (Status.CANCELLED, "ERR_CANCELLED") == (job.status, job.error_code)
    assert "died" not in worker.log


def test_a_cancel_never_hits_the_job_that_comes_next(host: WorkerHost):
    """Claim numbers repeat from job to job, so the flag names the execution and not the claim number."""
    host.worker()
    first = host.put("checkpoints")
    host.began(first)
    following = host.put("checkpoints", timeout_s=1)

    host.queue.cancel([first])

    assert Status.CANCELLED is host.ended(first).status
    assert "ERR_JOB_TIMEOUT" == host.ended(following).error_code


def test_a_handler_can_clean_up_when_it_is_stopped(host: WorkerHost):
    host.worker()
    job_id = host.put("tidy", timeout_s=1)

    assert Status.FAILED is host.ended(job_id).status

    assert 1 == len(host.recorded("tidied", job_id))


def test_jobs_claimed_behind_a_slow_one_go_to_others(host: WorkerHost):
    quick = host.put_many(150)
    slow = [host.put("regex")]
    quick += host.put_many(60)
    slow += [host.put("sleep", payload={"seconds": 600})]
    quick += host.put_many(60)
    host.worker(processes=3)

    until(lambda: host.count(Status.DONE) == len(quick))

    assert {Status.IN_PROGRESS} == {host.job(job_id).status for job_id in slow}
    assert {0} == {host.job(job_id).retry_count for job_id in quick}
    # Results finished before the interpreter was blocked are not computed again.
    assert len(quick) == len(host.recorded("ended"))
