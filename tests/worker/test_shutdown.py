"""Stopping a worker: nothing lost, no retry spent, nobody left behind."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from datetime import timedelta

import pytest

from penstock import clock
from penstock.job import Scope, Status
from tests.worker.worker_processes import Worker, WorkerHost, alive, until, within


def stopped(worker: Worker, number: int = signal.SIGTERM) -> float:
    """How long it took. None of its processes may be left."""
    children = worker.children()
    asked = time.monotonic()
    worker.signal(number)
    assert 0 == worker.ended()
    took = time.monotonic() - asked
    # Python's own resource tracker notices a little later that nobody needs it.
    until(lambda: not alive(children), timeout=30)
    return took


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_a_stop_under_load_loses_nothing_and_spends_no_retry(field: WorkerHost, start_method: str):
    field.put_many(5_000, priority=5)
    worker = field.worker(processes=2, start_method=start_method, shutdown_grace_s=5)
    until(lambda: field.count(Status.DONE) > 100)

    assert within(5, stopped(worker))

    assert 0 == field.count(Status.IN_PROGRESS)
    jobs = field.jobs()
    assert {0} == {job.retry_count for job in jobs}
    # Whatever was begun was also settled: nobody did work for nothing.
    assert len(field.recorded("began")) == field.count(Status.DONE) < len(jobs)
    assert [] == list((field.place / "here").iterdir())


def test_a_short_job_is_finished_and_a_long_one_is_given_back(field: WorkerHost):
    short = field.put("sleep", payload={"seconds": 0.7})
    long = field.put("sleep", payload={"seconds": 600})
    worker = field.worker(processes=2, shutdown_grace_s=1.5)
    field.began(short)
    field.began(long)

    took = stopped(worker)
    assert took >= 1.5
    assert within(5, took)

    assert Status.DONE is field.job(short).status
    job = field.job(long)
    assert (Status.PENDING, 0, 0, None) == (job.status, job.retry_count, job.lost_count, job.lease_until)
    assert ["released"] == [event.what for event in job.history]


def test_a_second_signal_does_not_wait(field: WorkerHost):
    job_id = field.put("sleep", payload={"seconds": 600})
    worker = field.worker(shutdown_grace_s=60)
    field.began(job_id)

    worker.signal(signal.SIGINT)
    until(lambda: "finishing" in worker.log)

    assert within(5, stopped(worker, signal.SIGINT))
    assert (Status.PENDING, 0) == (field.job(job_id).status, field.job(job_id).retry_count)


def test_a_terminal_that_is_closed_is_a_stop_like_any_other(field: WorkerHost):
    job_id = field.put("sleep", payload={"seconds": 1})
    worker = field.worker(shutdown_grace_s=20)
    pid = field.began(job_id).pid

    for _ in range(2):
        worker.signal(signal.SIGHUP)
        os.kill(pid, signal.SIGHUP)
        until(lambda: "finishing" in worker.log)

    assert 0 == worker.ended()
    assert (Status.DONE, 0) == (field.job(job_id).status, field.job(job_id).retry_count)


def test_signals_that_were_ignored_at_its_start_stay_ignored(field: WorkerHost):
    """As under nohup, or in the background of a script: only SIGTERM stops it, gracefully."""
    worker = field.worker(ignoring=True)
    field.ended(field.put())

    worker.signal(signal.SIGHUP)
    worker.signal(signal.SIGINT)

    assert Status.DONE is field.ended(field.put()).status
    assert "finishing" not in worker.log
    stopped(worker)
    assert "finishing" in worker.log


def test_a_signal_to_every_process_at_once_is_a_stop_like_any_other(field: WorkerHost):
    """As service managers do it: children get the signal too, and finish what they have in hand."""
    job_id = field.put("sleep", payload={"seconds": 1})
    worker = field.worker(processes=2, shutdown_grace_s=20)
    field.began(job_id)

    for pid in [*worker.children(), worker.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    assert 0 == worker.ended()
    assert (Status.DONE, 0) == (field.job(job_id).status, field.job(job_id).retry_count)


def test_until_idle_takes_up_what_has_become_due(field: WorkerHost):
    now, minute = clock.now(), timedelta(minutes=1)
    due = field.new(run_at=now - minute)
    paused = field.new(run_at=now - minute, tenant_id="asleep")
    later = field.new(run_at=now + 60 * minute)
    field.queue.add([due, paused, later], now=now - 2 * minute)
    field.queue.pause(Scope(tenant_id="asleep"))

    assert 0 == field.worker(until_idle=True).ended()

    assert [Status.DONE, Status.PENDING, Status.PENDING] == [
        field.job(new.queue_id).status for new in (due, paused, later)
    ]


def test_until_idle_is_not_misled_by_what_changes_while_it_looks(field: WorkerHost):
    """Counted while it waits for its retry, and under way when what waits is listed."""
    first = field.put("parent_at_second_try", payload={"child": {"do": "noop"}})

    assert 0 == field.worker(until_idle=True, find_s=0.6).ended()

    assert Status.DONE is field.job(first).status
    assert {Status.DONE} == {job.status for job in field.jobs()}


def test_until_idle_ends_when_only_paused_and_later_jobs_are_left(field: WorkerHost):
    field.put_many(30)
    unknown = field.put(item_type="file", lock_key="busy")
    behind = field.put(lock_key="busy")

    assert 0 == field.worker(until_idle=True).ended()

    assert 30 == field.count(Status.DONE)
    assert {Status.PENDING} == {field.job(unknown).status, field.job(behind).status}
