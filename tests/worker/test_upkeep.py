"""The duties that keep a queue healthy, each alone."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from penstock import clock, lifecycle
from penstock.job import Claim, ClaimRequest, Scope, Status
from penstock.worker.upkeep import REAP_AT_ONCE, OverdueEnder, Pruner, Reaper, StuckWarner
from tests.worker.worker_processes import WorkerHost

LONG_AGO = timedelta(hours=3)


def claimed(
    field: WorkerHost, number: int = 1, *, ago: timedelta = LONG_AGO, **fields: object
) -> list[Claim]:
    """Jobs of a worker that was last heard of a while ago."""
    moment = clock.now() - ago
    field.queue.add([field.new(**fields) for _ in range(number)], now=moment)  # type: ignore[arg-type]
    return field.queue.claim(ClaimRequest("gone", number), now=moment)


class Clocks:
    def __init__(self) -> None:
        self.wall = self.steady = 1_000_000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def reaper(field: WorkerHost, clocks: Clocks) -> Reaper:
    return Reaper(field.queue, 300.0, wall=lambda: clocks.wall, steady=lambda: clocks.steady)


def test_jobs_whose_lease_is_over_are_lost_and_come_back(field: WorkerHost):
    claimed(field, REAP_AT_ONCE + 1)
    duty = reaper(field, Clocks())

    assert [True, False] == [duty.run(), duty.run()]

    assert REAP_AT_ONCE + 1 == field.count(Status.PENDING)
    assert {1} == {job.lost_count for job in field.jobs()}


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_robs_nobody(field: WorkerHost, jump: float):
    """A laptop that slept, or a clock set by hand: holders get one lease to renew."""
    clocks = Clocks()
    duty = reaper(field, clocks)
    claimed(field)

    clocks.pass_by(60)
    clocks.wall += jump
    duty.run()
    clocks.pass_by(299)
    duty.run()
    assert 1 == field.count(Status.IN_PROGRESS)
    clocks.pass_by(2)
    duty.run()

    assert 0 == field.count(Status.IN_PROGRESS)


def test_a_clock_that_is_slowly_put_right_changes_nothing(field: WorkerHost):
    clocks = Clocks()
    duty = reaper(field, clocks)
    for _ in range(10):
        clocks.pass_by(60)
        clocks.wall += 4
        duty.run()
    claimed(field)

    duty.run()

    assert 0 == field.count(Status.IN_PROGRESS)


def test_each_status_is_kept_for_its_own_time(field: WorkerHost):
    done, failed = claimed(field, 2)
    moment = clock.now() - LONG_AGO
    field.queue.settle([lifecycle.done(done), lifecycle.failed(failed, "ERR_PARSE", "bad")], now=moment)

    duty = Pruner(field.queue, {"done": timedelta(hours=1), "failed": timedelta(days=1)})
    while duty.run():
        pass

    assert [failed.queue_id] == [job.queue_id for job in field.jobs()]
    assert not Pruner(field.queue, {}).run()


def test_a_job_without_progress_is_warned_of_once(field: WorkerHost, caplog: pytest.LogCaptureFixture):
    stuck = claimed(field)[0]
    claimed(field, ago=timedelta(minutes=29))
    duty = StuckWarner(field.queue)

    with caplog.at_level(logging.WARNING):
        assert [False, False] == [duty.run(), duty.run()]

    assert 1 == duty.stuck
    assert 1 == len(caplog.messages)
    assert f"job {stuck.queue_id} (content/ingest, worker gone) shows no progress" in caplog.messages[0]


def test_a_waiting_job_fails_when_nothing_below_it_ends_for_its_timeout(field: WorkerHost):
    parent = claimed(field, timeout_s=7200)[0]
    child = field.new()
    field.queue.settle([lifecycle.waits(parent, children=(child,))], now=clock.now() - LONG_AGO)

    OverdueEnder(field.queue).run()

    job = field.job(parent.queue_id)
    assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code)
    assert "Timeout after 7200s" == job.error_message


@pytest.mark.parametrize("why", ["recent", "below", "paused"])
def test_a_waiting_job_with_a_reason_to_wait_goes_on(field: WorkerHost, why: str):
    parent = claimed(field, timeout_s=7200)[0]
    moment = clock.now() - (timedelta(hours=1) if why == "recent" else LONG_AGO)
    field.queue.settle([lifecycle.waits(parent, children=(field.new(),))], now=moment)
    if why == "below":
        # A grandchild ended just now: that touches the child's row only.
        (child,) = field.queue.claim(ClaimRequest("w"), now=moment)
        grandchildren = (field.new(), field.new())
        field.queue.settle([lifecycle.waits(child, children=grandchildren)], now=moment)
        field.queue.settle([lifecycle.done(field.queue.claim(ClaimRequest("w"))[0])])
    if why == "paused":
        field.queue.pause(Scope(tenant_id="acme"))

    OverdueEnder(field.queue).run()

    assert Status.IN_PROGRESS is field.job(parent.queue_id).status
