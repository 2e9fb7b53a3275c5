"""Hosts with a clock ten minutes off, on servers: the clock of the server counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.queue.job import Status
from tests.servers.stores import ON_SERVERS
from tests.worker.worker_processes import WorkerHost, until

ENGINES = ON_SERVERS
OFF_S = 600
TERMS: dict[str, Any] = {"lease_s": 1.2, "upkeep_s": 0.2}
OUTLAST_S = 2.4
"""Two leases."""

off = pytest.mark.parametrize("off_s", [OFF_S, -OFF_S])


@off
def test_neither_steals_from_the_other_nor_starves(host: WorkerHost, off_s: int):
    long: dict[str, Any] = {"payload": {"seconds": OUTLAST_S}, "max_retries": 0}
    host.worker("wrong", clock_off_s=off_s, processes=2, **TERMS)
    theirs = host.put("sleep", **long)
    host.began(theirs)
    host.worker("right", processes=2, **TERMS)
    until(lambda: len(host.queue.workers()) == 2)
    others = [host.put("sleep", **long) for _ in range(2)]
    quick = host.put_many(20)

    jobs = [host.ended(job_id) for job_id in (theirs, *others, *quick)]

    assert {(Status.DONE, 1, 0)} == {(job.status, job.claim_number, job.lost_count) for job in jobs}
    assert 2 == sum(executed > 0 for executed in host.info("executed"))


@off
def test_jobs_for_later_and_retries_run_in_time(host: WorkerHost, off_s: int):
    host.worker("wrong", clock_off_s=off_s, **TERMS)
    lost = host.put("kill_self", max_retries=1)
    later = host.new(run_at=host.queue.now() + timedelta(seconds=1.5))
    host.queue.add([later])

    job = host.ended(later.queue_id)

    assert job.started_at is not None
    assert later.run_at is not None
    assert job.started_at >= later.run_at
    assert "ERR_WORKER_LOST" == host.ended(lost).error_code


@off
def test_a_parent_does_not_time_out_by_a_clock_that_is_fast(host: WorkerHost, off_s: int):
    host.worker("wrong", clock_off_s=off_s, processes=2, **TERMS)
    child = {"do": "sleep", "seconds": 1.0, "record": str(host.record)}
    parent = host.put("parent", payload={"child": child}, timeout_s=60)

    assert Status.DONE is host.ended(parent).status


@pytest.fixture
def app(host: WorkerHost) -> Iterator[Penstock]:
    with Penstock(settings=config.load({}, url=host.url, state_dir=host.place)) as opened:
        yield opened


@off
def test_a_delay_counts_from_the_servers_time(
    host: WorkerHost, app: Penstock, off_s: int, monkeypatch: pytest.MonkeyPatch
):
    before = host.queue.now()
    right = clock.now
    monkeypatch.setattr(clock, "now", lambda: right() + timedelta(seconds=off_s))
    receipt = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."}, delay=90)
    job = app.job(receipt.job_id)

    assert job.run_at == receipt.run_at
    assert job.run_at is not None
    # Two processes know the server's time to a few milliseconds, plus the duration of the call.
    assert abs(job.run_at - before - timedelta(seconds=90)) < timedelta(seconds=30)
    assert 0 == app.purge(older_than=timedelta(seconds=0))
    assert "held until" in (app.details(receipt.job_id).reason or "")
