"""Timeouts and cancels: asked for at checkpoints, and enforced on code that never comes to one."""

from __future__ import annotations

import signal
import time

from penstock.job import Status
from tests.worker.worker_processes import WorkerHost, alive, until, within

NEVER_YIELD = ("sleep", "busy", "regex", "digest", "stubborn")
"""A system call, Python, C that keeps the interpreter, C that gives it away, and one that will not stop."""


def put_each(field: WorkerHost, **fields: int) -> dict[str, str]:
    return {do: field.put(do, payload={"seconds": 600}, **fields) for do in NEVER_YIELD}


def test_code_that_never_yields_is_stopped_within_5_s_of_its_timeout(field: WorkerHost):
    ids = put_each(field, timeout_s=1)
    field.worker(processes=len(NEVER_YIELD))

    for do, job_id in ids.items():
        begun = field.began(job_id)
        job = field.ended(job_id)
        assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code), do
        assert ("Timeout after 1s", 0) == (job.error_message, job.retry_count), do
        assert within(1 + 5, time.monotonic() - begun.at), do
    assert Status.DONE is field.ended(field.put()).status


def test_code_that_never_yields_is_stopped_on_cancel_within_the_grace_and_2_s(field: WorkerHost):
    ids = put_each(field)
    field.worker(processes=len(NEVER_YIELD), grace_s=0.5)
    for job_id in ids.values():
        field.began(job_id)

    field.queue.cancel(list(ids.values()))
    asked = time.monotonic()

    for do, job_id in ids.items():
        assert Status.CANCELLED is field.ended(job_id).status, do
    assert within(0.5 + 2, time.monotonic() - asked)
    assert Status.DONE is field.ended(field.put()).status


def test_a_timeout_is_kept_while_somebody_else_holds_the_store(field: WorkerHost):
    job_id = field.put("sleep", payload={"seconds": 600}, timeout_s=1)
    field.worker()
    pid = field.began(job_id).pid

    with field.locked(timeout=10):
        until(lambda: not alive([pid]))

    assert "ERR_JOB_TIMEOUT" == field.ended(job_id).error_code


def test_time_in_which_the_whole_worker_stood_still_does_not_count(field: WorkerHost):
    there = field.place / "there"
    job_id = field.put("wait_for", payload={"there": str(there)}, timeout_s=4)
    worker = field.worker()
    field.began(job_id)

    field.freeze(worker)
    frozen = time.monotonic()
    # Nothing is left to do then but to see it: a busy machine does not make that late.
    there.touch()
    until(lambda: time.monotonic() - frozen > 4.5)
    worker.tree(signal.SIGCONT)

    assert (Status.DONE, 0) == (field.ended(job_id).status, field.job(job_id).retry_count)
    assert "stood still for" in worker.log


def test_progress_reaches_the_row_and_a_checkpoint_ends_a_cancelled_job(field: WorkerHost):
    worker = field.worker()
    job_id = field.put("checkpoints")

    progress = until(lambda: field.job(job_id).progress)
    field.queue.cancel([job_id])
    asked = time.monotonic()
    job = field.ended(job_id)

    assert within(2, time.monotonic() - asked)
    expected = {"current": 3, "total": 4, "percent": 75.0, "message": "three of four", "counts": {"files": 3}}
    assert expected == progress
    assert (Status.CANCELLED, "ERR_CANCELLED") == (job.status, job.error_code)
    assert "died" not in worker.log


def test_a_cancel_never_hits_the_job_that_comes_next(field: WorkerHost):
    """Claim numbers repeat from job to job, so the flag must be for the execution, not for the number."""
    field.worker()
    first = field.put("checkpoints")
    field.began(first)
    following = field.put("checkpoints", timeout_s=1)

    field.queue.cancel([first])

    assert Status.CANCELLED is field.ended(first).status
    assert "ERR_JOB_TIMEOUT" == field.ended(following).error_code


def test_a_handler_can_clean_up_when_it_is_stopped(field: WorkerHost):
    field.worker()
    job_id = field.put("tidy", timeout_s=1)

    assert Status.FAILED is field.ended(job_id).status

    assert 1 == len(field.recorded("tidied", job_id))


def test_jobs_claimed_behind_a_slow_one_go_to_others(field: WorkerHost):
    quick = field.put_many(150)
    slow = [field.put("regex")]
    quick += field.put_many(60)
    slow += [field.put("sleep", payload={"seconds": 600})]
    quick += field.put_many(60)
    field.worker(processes=3)

    until(lambda: field.count(Status.DONE) == len(quick))

    assert {Status.IN_PROGRESS} == {field.job(job_id).status for job_id in slow}
    assert {0} == {field.job(job_id).retry_count for job_id in quick}
    # What was finished before the interpreter was lost is not done again.
    assert len(quick) == len(field.recorded("ended"))
