"""Stopping a worker: no job lost, no retry spent, no process left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from datetime import timedelta

from penstock import clock
from penstock.queue.job import Scope, Status
from tests.worker.worker_processes import Worker, WorkerHost, alive, until, within

FIRST = ("sqlite",)


def stopped(worker: Worker, number: int = signal.SIGTERM) -> float:
    """Stop the worker; check for processes left; return the seconds."""
    children = worker.children()
    asked = time.monotonic()
    worker.signal(number)
    assert 0 == worker.ended()
    took = time.monotonic() - asked
    # Python's own resource tracker ends a little later.
    until(lambda: not alive(children))
    return took


def test_a_stop_under_load_loses_nothing_and_spends_no_retry(host: WorkerHost, start_method: str):
    host.put_many(5_000, priority=5)
    worker = host.worker(processes=2, start_method=start_method, shutdown_grace_s=5)
    until(lambda: host.count(Status.DONE) > 100)

    assert within(5, stopped(worker))

    assert 0 == host.count(Status.IN_PROGRESS)
    jobs = host.jobs()
    assert {0} == {job.retry_count for job in jobs}
    # Every job that began was also settled: no work was wasted.
    assert len(host.recorded("began")) == host.count(Status.DONE) < len(jobs)
    assert [] == list((host.place / "here").iterdir())


def test_a_short_job_is_finished_and_a_long_one_is_given_back(host: WorkerHost):
    short = host.put("sleep", payload={"seconds": 0.7})
    long = host.put("sleep", payload={"seconds": 600})
    worker = host.worker(processes=2, shutdown_grace_s=1.5)
    host.began(short)
    host.began(long)

    took = stopped(worker)
    assert took >= 1.5
    assert within(5, took)

    assert Status.DONE is host.job(short).status
    job = host.job(long)
    assert (Status.PENDING, 0, 0, None) == (job.status, job.retry_count, job.lost_count, job.lease_until)
    assert ["released"] == [event.what for event in job.history]


def test_a_second_signal_does_not_wait(host: WorkerHost):
    job_id = host.put("sleep", payload={"seconds": 600})
    worker = host.worker(shutdown_grace_s=60)
    host.began(job_id)

    worker.signal(signal.SIGINT)
    until(lambda: "finishing" in worker.log)

    assert within(5, stopped(worker, signal.SIGINT))
    assert (Status.PENDING, 0) == (host.job(job_id).status, host.job(job_id).retry_count)


def test_a_second_signal_may_follow_the_first_at_once(host: WorkerHost):
    job_id = host.put("sleep", payload={"seconds": 600})
    worker = host.worker(shutdown_grace_s=600, eager=True)
    host.began(job_id)

    stopped(worker)

    assert (Status.PENDING, 0) == (host.job(job_id).status, host.job(job_id).retry_count)


def test_a_terminal_that_is_closed_is_a_stop_like_any_other(host: WorkerHost):
    job_id = host.put("sleep", payload={"seconds": 1})
    worker = host.worker(shutdown_grace_s=20)
    pid = host.began(job_id).pid

    for _ in range(2):
        worker.signal(signal.SIGHUP)
        os.kill(pid, signal.SIGHUP)
        until(lambda: "finishing" in worker.log)

    assert 0 == worker.ended()
    assert (Status.DONE, 0) == (host.job(job_id).status, host.job(job_id).retry_count)


def test_signals_that_were_ignored_at_its_start_stay_ignored(host: WorkerHost):
    """As under nohup, or in the background of a script: only SIGTERM stops the worker, gracefully."""
    worker = host.worker(ignoring=True)
    host.ended(host.put())

    worker.signal(signal.SIGHUP)
    worker.signal(signal.SIGINT)

    assert Status.DONE is host.ended(host.put()).status
    assert "finishing" not in worker.log
    stopped(worker)
    assert "finishing" in worker.log


def test_a_signal_to_every_process_at_once_is_a_stop_like_any_other(host: WorkerHost):
    """As by a service manager: children get the signal too, and finish their current jobs."""
    job_id = host.put("sleep", payload={"seconds": 1})
    worker = host.worker(processes=2, shutdown_grace_s=20)
    host.began(job_id)

    for pid in [*worker.children(), worker.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    assert 0 == worker.ended()
    assert (Status.DONE, 0) == (host.job(job_id).status, host.job(job_id).retry_count)


def test_until_idle_takes_up_what_has_become_due(host: WorkerHost):
    now, minute = clock.now(), timedelta(minutes=1)
    due = host.new(run_at=now - minute)
    paused = host.new(run_at=now - minute, tenant_id="asleep")
    later = host.new(run_at=now + 60 * minute)
    host.queue.add([due, paused, later], now=now - 2 * minute)
    host.queue.pause(Scope(tenant_id="asleep"))

    assert 0 == host.worker(until_idle=True).ended()

    assert [Status.DONE, Status.PENDING, Status.PENDING] == [
        host.job(new.queue_id).status for new in (due, paused, later)
    ]


def test_until_idle_is_not_misled_by_what_changes_while_it_looks(host: WorkerHost):
    """A job counts while waiting for a retry, and may be running by the time waiting jobs are listed."""
    first = host.put("parent_at_second_try", payload={"child": {"do": "noop"}})

    assert 0 == host.worker(until_idle=True, find_s=0.6).ended()

    assert Status.DONE is host.job(first).status
    assert {Status.DONE} == {job.status for job in host.jobs()}


def test_until_idle_ends_when_only_paused_and_later_jobs_are_left(host: WorkerHost):
    host.put_many(30)
    unknown = host.put(item_type="file", lock_key="busy")
    behind = host.put(lock_key="busy")

    assert 0 == host.worker(until_idle=True).ended()

    assert 30 == host.count(Status.DONE)
    assert {Status.PENDING} == {host.job(unknown).status, host.job(behind).status}
