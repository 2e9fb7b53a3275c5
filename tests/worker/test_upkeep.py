"""Upkeep duties, each alone."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock import clock
from penstock.errors import ServiceUnavailable
from penstock.handlers.context import Context, Registry
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery, Scope, Status, WorkerReport
from penstock.worker import orphans
from penstock.worker.executor import Breakers, Executor, executing_job
from penstock.worker.upkeep import REAP_AT_ONCE, OverdueEnder, Pruner, Reaper, StuckWarner
from tests.servers.stores import DURABLE
from tests.worker.worker_processes import WorkerHost

FIRST = DURABLE

LONG_AGO = timedelta(hours=3)


def claimed(host: WorkerHost, number: int = 1, *, ago: timedelta = LONG_AGO, **fields: Any) -> list[Claim]:
    """Leave jobs claimed by a worker last seen a while ago."""
    moment = clock.now() - ago
    host.queue.add([host.new(**fields) for _ in range(number)], now=moment)
    return host.queue.claim(ClaimRequest("gone", number), now=moment)


def suspected_before(host: WorkerHost, **fields: Any) -> list[Claim]:
    """Leave a job claimed whose lease ended before, so that this loss is its own."""
    moment = clock.now() - LONG_AGO
    host.queue.settle(
        [transitions.suspected(claim, "lost") for claim in claimed(host, 1, **fields)], now=moment
    )
    return host.queue.claim(ClaimRequest("gone", 1), now=moment)


class Clocks:
    def __init__(self) -> None:
        self.wall = self.steady = 1_000_000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def reaper(host: WorkerHost, clocks: Clocks) -> Reaper:
    return Reaper(host.queue, 300.0, wall=lambda: clocks.wall, steady=lambda: clocks.steady)


def test_jobs_whose_lease_is_over_are_lost_and_come_back(host: WorkerHost):
    claimed(host, REAP_AT_ONCE + 1)
    duty = reaper(host, Clocks())

    assert [True, False] == [duty.run(), duty.run()]

    assert REAP_AT_ONCE + 1 == host.count(Status.PENDING)
    assert {1} == {job.lost_count for job in host.jobs()}


def test_a_large_batch_that_is_taken_back_is_logged_in_a_few_lines(
    host: WorkerHost, caplog: pytest.LogCaptureFixture
):
    claimed(host, 30)
    reaper(host, Clocks()).run()
    told = [line for line in caplog.text.splitlines() if "it runs alone now" in line]
    assert 4 == len(told)
    assert (
        "27 more jobs: no worker renewed its lease; it runs alone now; each is tried again at once" in told[3]
    )


def test_each_job_that_is_taken_back_is_logged_with_what_becomes_of_it(
    host: WorkerHost, caplog: pytest.LogCaptureFixture
):
    (suspect,) = claimed(host)
    (again,), (last,) = suspected_before(host), suspected_before(host, max_retries=0)

    reaper(host, Clocks()).run()

    assert (
        f"job {suspect.queue_id} (content/ingest): no worker renewed its lease; it runs alone now; "
        "it is tried again at once" in caplog.text
    )
    assert (
        f"job {again.queue_id} (content/ingest): Worker lost in attempt 1 of 4; it is tried again in"
        in caplog.text
    )
    said = "Max retries (0) exceeded after restart: worker lost in attempt 1 of 1; it ends as failed"
    assert f"job {last.queue_id} (content/ingest): {said}" in caplog.text


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_robs_nobody(host: WorkerHost, jump: float):
    """After a sleep of the machine, or a clock set by hand, holders get one lease to renew."""
    clocks = Clocks()
    duty = reaper(host, clocks)
    claimed(host)

    clocks.pass_by(60)
    clocks.wall += jump
    duty.run()
    clocks.pass_by(299)
    duty.run()
    assert 1 == host.count(Status.IN_PROGRESS)
    clocks.pass_by(2)
    duty.run()

    assert 0 == host.count(Status.IN_PROGRESS)


def test_a_clock_that_is_slowly_put_right_changes_nothing(host: WorkerHost):
    clocks = Clocks()
    duty = reaper(host, clocks)
    for _ in range(10):
        clocks.pass_by(60)
        clocks.wall += 4
        duty.run()
    claimed(host)

    duty.run()

    assert 0 == host.count(Status.IN_PROGRESS)


def test_each_status_is_kept_for_its_own_time(host: WorkerHost):
    done, failed = claimed(host, 2)
    moment = clock.now() - LONG_AGO
    host.queue.settle([transitions.done(done), transitions.failed(failed, "ERR_PARSE", "bad")], now=moment)

    duty = Pruner(host.queue, {"done": timedelta(hours=1), "failed": timedelta(days=1)})
    while duty.run():
        pass

    assert [failed.queue_id] == [job.queue_id for job in host.jobs()]
    assert not Pruner(host.queue, {}).run()


def test_reports_of_workers_silent_for_an_hour_are_forgotten(host: WorkerHost):
    now = host.queue.now()
    for name, minutes in (("dead", 61), ("silent", 59), ("living", 0)):
        report = WorkerReport(worker_id=name, host="mill", pid=1, started_at=now)
        host.queue.report(report, now=now - timedelta(minutes=minutes))

    Pruner(host.queue, {}).run()
    assert ["living", "silent"] == [worker.worker_id for worker in host.queue.workers()]
    Pruner(host.queue, {}, heartbeat_s=3600.0).run()
    assert ["living", "silent"] == [worker.worker_id for worker in host.queue.workers()]


def test_a_job_without_progress_is_warned_of_once(host: WorkerHost, caplog: pytest.LogCaptureFixture):
    stuck = claimed(host)[0]
    claimed(host, ago=timedelta(minutes=29))
    duty = StuckWarner(host.queue)

    with caplog.at_level(logging.WARNING):
        assert [False, False] == [duty.run(), duty.run()]

    assert 1 == duty.stuck
    assert 1 == len(caplog.messages)
    assert f"job {stuck.queue_id} (content/ingest, worker gone) shows no progress" in caplog.messages[0]


def test_a_waiting_job_fails_when_nothing_below_it_ends_for_its_timeout(host: WorkerHost):
    parent = claimed(host, timeout_s=7200)[0]
    child = host.new()
    host.queue.settle([transitions.waits(parent, children=(child,))], now=clock.now() - LONG_AGO)

    OverdueEnder(host.queue).run()

    job = host.job(parent.queue_id)
    assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code)
    assert "Timeout after 7200s" == job.error_message


@pytest.mark.parametrize("why", ["recent", "below", "paused"])
def test_a_waiting_job_with_a_reason_to_wait_goes_on(host: WorkerHost, why: str):
    parent = claimed(host, timeout_s=7200)[0]
    moment = clock.now() - (timedelta(hours=1) if why == "recent" else LONG_AGO)
    host.queue.settle([transitions.waits(parent, children=(host.new(),))], now=moment)
    if why == "below":
        # A grandchild ended just now: that touches the child's row only.
        (child,) = host.queue.claim(ClaimRequest("w"), now=moment)
        grandchildren = (host.new(), host.new())
        host.queue.settle([transitions.waits(child, children=grandchildren)], now=moment)
        host.queue.settle([transitions.done(host.queue.claim(ClaimRequest("w"))[0])])
    if why == "paused":
        host.queue.pause(Scope(tenant_id="acme"))

    OverdueEnder(host.queue).run()

    assert Status.IN_PROGRESS is host.job(parent.queue_id).status


def waiting(host: WorkerHost, *, ago: float, **fields: Any) -> tuple[str, list[str]]:
    """A job that began so many seconds ago and waits for two children; one of them runs."""
    parent = claimed(host, ago=timedelta(seconds=ago), **{"timeout_s": 60} | fields)[0]
    host.queue.settle([transitions.waits(parent, children=(host.new(), host.new()))])
    host.queue.claim(ClaimRequest("w"))
    children = host.queue.find(JobQuery(parent_id=parent.queue_id))
    return parent.queue_id, [child.queue_id for child in children]


def test_a_timeout_that_was_asked_for_ends_a_job_whose_parts_still_end(host: WorkerHost):
    parent, children = waiting(host, ago=61)
    assert not OverdueEnder(host.queue).run()
    assert Status.IN_PROGRESS is host.job(parent).status

    OverdueEnder(host.queue).end_bounded()

    job = host.job(parent)
    assert (Status.FAILED, "ERR_JOB_TIMEOUT", "Timeout after 60s") == (
        job.status,
        job.error_code,
        job.error_message,
    )
    states = {(child.status, child.cancel_requested) for child in map(host.job, children)}
    # A worker has the other one, and stops it when it sees the flag.
    assert {(Status.CANCELLED, False), (Status.IN_PROGRESS, True)} == states


def test_what_a_crash_left_open_below_a_job_that_had_timed_out_is_cancelled(host: WorkerHost):
    parent, children = waiting(host, ago=61)
    host.queue.settle([transitions.timed_out(host.job(parent))])
    ender = OverdueEnder(host.queue)

    assert not ender.stop_leftovers()

    assert {Status.CANCELLED, Status.IN_PROGRESS} == {host.job(child).status for child in children}


@pytest.mark.parametrize("why", ["in time", "default", "function", "paused", "reopened"])
def test_a_job_whose_timeout_is_not_over_goes_on(host: WorkerHost, why: str):
    fields: dict[str, dict[str, Any]] = {
        "default": {"timeout_s": 7200},
        "function": {"item_type": "function", "op": "run"},
    }
    parent, children = waiting(host, ago=59 if why == "in time" else 8000, **fields.get(why, {}))
    if why == "paused":
        host.queue.pause(Scope(tenant_id="acme"))
    if why == "reopened":
        # Its children run again: a retry has all of the time.
        host.queue.settle([transitions.timed_out(host.job(parent))])
        host.queue.requeue([parent])

    OverdueEnder(host.queue).end_bounded()

    assert Status.IN_PROGRESS is host.job(parent).status
    assert [False, False] == [host.job(child).cancel_requested for child in children]


def test_a_timeout_counts_from_the_first_of_several_attempts(host: WorkerHost):
    (first,) = claimed(host, ago=timedelta(seconds=50), timeout_s=60)
    host.queue.settle([orphans.lost(host.job(first.queue_id))])
    (second,) = host.queue.claim(ClaimRequest("w"))
    assert 8 <= executing_job(second).timeout_s <= 10
    host.queue.settle([transitions.waits(second, children=(host.new(),))])
    job = host.job(first.queue_id)

    assert not transitions.is_overdue(job, clock.now())
    assert transitions.is_overdue(job, clock.now() + timedelta(seconds=11))
    # A retry by hand has all of the time.
    host.queue.settle([transitions.timed_out(job)])
    host.queue.requeue([first.queue_id])
    assert not transitions.is_overdue(host.job(first.queue_id), clock.now() + timedelta(seconds=50))


def test_a_job_does_not_wait_for_its_next_attempt_beyond_its_timeout(host: WorkerHost):
    (first,) = claimed(host, ago=timedelta(seconds=50), timeout_s=60)
    host.queue.settle([orphans.lost(host.job(first.queue_id))])
    (second,) = host.queue.claim(ClaimRequest("w"))

    def down(_: Context) -> None:
        raise ServiceUnavailable("neo4j", retry_after=timedelta(minutes=5))

    registry = Registry()
    registry.register("content", "ingest", down)
    executor = Executor(registry, Breakers())

    (waits,) = executor.run([second], lambda _, one: Context(one, report=print, stop_requested=bool))

    assert (Status.PENDING, True) == (waits.status, timedelta(0) < waits.delay <= timedelta(seconds=10))
    host.queue.settle([waits])
    (third,) = host.queue.claim(ClaimRequest("w"), now=clock.now() + timedelta(seconds=11))
    late = msgspec.json.decode(third.progress_json or "")[transitions.FIRST_START]
    assert datetime.fromisoformat(late) < clock.now() - timedelta(seconds=49)
    over = msgspec.structs.replace(third, timeout_s=40)
    (ended,) = executor.run([over], lambda _, one: Context(one, report=print, stop_requested=bool))
    assert (Status.FAILED, transitions.TIMED_OUT) == (ended.status, ended.error_code)
