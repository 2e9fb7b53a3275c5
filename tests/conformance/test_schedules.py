"""Schedules in the store of each engine, and their runs: once for each time, on any number of hosts."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.queue.job import Job, JobQuery
from penstock.queue.protocol import Queue
from penstock.queue.schedules import SCHEDULED_FOR, Missed, Schedule
from penstock.worker.upkeep import ScheduleRunner
from tests.conformance import durable_engines
from tests.conformance.conftest import T0, at, claim_all, done, new
from tests.conformance.durable_engines import DURABLE, started
from tests.conformance.schedule_process import every_minute, moments

ALL = JobQuery(limit=10_000)


def schedule(name: str = "nightly", **fields: object) -> Schedule:
    defaults: dict[str, object] = {
        "tenant_id": "acme",
        "name": name,
        "schedule_id": name,
        "timing": "* * * * *",
        "zone": "UTC",
        "job": new(item_type="function", op="run", idempotency_key="function:docs:x", dedupe=False),
        "summary": "call report",
        "start_at": T0,
        "created_at": T0,
        "next_at": at(60),
    }
    return Schedule(**(defaults | fields))  # type: ignore[arg-type]


def stored(queue: Queue, name: str = "nightly") -> Schedule:
    return next(one for one in queue.schedules() if one.name == name)


def times_of(queue: Queue) -> list[str]:
    """The times of all jobs that schedules added, sorted."""
    return sorted(msgspec.json.decode(job.metadata)[SCHEDULED_FOR] for job in queue.find(ALL))


# The store.


def test_a_schedule_is_kept_until_it_is_dropped(queue: Queue, reopen: Callable[[], Queue]):
    kept = schedule(missed=Missed.RUN_ALL, last_at=at(1), last_job_id="job_1")
    assert queue.put_schedule(kept)
    assert queue.put_schedule(schedule("a"))
    assert queue.put_schedule(schedule("nightly", tenant_id="other"))

    again = reopen()

    assert [("acme", "a"), ("acme", "nightly"), ("other", "nightly")] == [
        (one.tenant_id, one.name) for one in again.schedules()
    ]
    assert [kept] == again.schedules(tenant_id="acme")[1:]
    assert again.drop_schedule("acme", "nightly")
    assert not again.drop_schedule("acme", "nightly")
    assert ["a"] == [one.name for one in again.schedules(tenant_id="acme")]


def test_a_name_is_taken_once_and_replaced_by_version_only(queue: Queue):
    first = schedule()
    assert queue.put_schedule(first)
    assert not queue.put_schedule(schedule(timing="@daily"))
    second = msgspec.structs.replace(first, version=2, next_at=None, paused=True)
    assert not queue.put_schedule(second, replaces=2)
    assert not queue.put_schedule(msgspec.structs.replace(second, name="none"), replaces=1)
    assert queue.put_schedule(second, replaces=1)
    assert not queue.put_schedule(second, replaces=1)
    assert [second] == queue.schedules()


def test_due_schedules_come_in_the_order_of_their_times(queue: Queue):
    for name, seconds in (("late", 50), ("early", 10), ("future", 70)):
        queue.put_schedule(schedule(name, next_at=at(seconds)))
    queue.put_schedule(schedule("paused", next_at=None, paused=True))

    assert [] == queue.due_schedules(now=at(9.999))
    assert ["early"] == [one.name for one in queue.due_schedules(now=at(10))]
    assert ["early", "late"] == [one.name for one in queue.due_schedules(now=at(60))]
    assert ["early"] == [one.name for one in queue.due_schedules(now=at(60), limit=1)]
    early = stored(queue, "early")
    queue.put_schedule(msgspec.structs.replace(early, version=2, next_at=at(65)), replaces=1)
    assert ["late"] == [one.name for one in queue.due_schedules(now=at(60))]


# Runs.


def test_a_due_schedule_adds_a_job_and_moves_on(queue: Queue):
    queue.put_schedule(schedule())
    runner = ScheduleRunner(queue)

    runner.run(at(59))
    assert [] == queue.find(ALL)
    runner.run(at(61))
    runner.run(at(61))

    (job,) = queue.find(ALL)
    assert {"schedule": "nightly", SCHEDULED_FOR: "2026-01-01T00:01:00Z"} == msgspec.json.decode(job.metadata)
    after = stored(queue)
    assert (at(120), at(60), job.queue_id, 1) == (after.next_at, after.last_at, after.last_job_id, after.runs)
    assert [job.queue_id] == [claim.queue_id for claim in claim_all(queue, at(62))]


class DeletingMeanwhile:
    """A queue on which another host ends a delete as soon as the open deletes are read."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def find(self, query: JobQuery) -> list[Job]:
        assert self._queue.drop_schedule("acme", "nightly")
        for claim in claim_all(self._queue, at(60)):
            done(self._queue, claim, at(60))
        found = self._queue.find(query)
        self.read += [job.queue_id for job in found]
        return found


def test_a_schedule_dropped_by_a_delete_that_ends_meanwhile_does_not_run(queue: Queue):
    """Deletes that are done, which stay for the time of their retention, are not read."""
    queue.put_schedule(schedule())
    payload = '{"tenant_id_to_delete": "acme"}'
    queue.add([new(item_type="delete_tenant", op="delete", payload_json=payload)], now=at(30))
    deleting = DeletingMeanwhile(queue)

    ScheduleRunner(cast("Queue", deleting)).run(at(61))

    assert [] == deleting.read
    assert ["delete_tenant"] == [job.item_type for job in queue.find(ALL)]


def test_a_host_that_is_late_with_an_old_schedule_adds_nothing(queue: Queue):
    queue.put_schedule(schedule())
    slow = queue.due_schedules(now=at(60))
    ScheduleRunner(queue).run(at(60))
    for claim in claim_all(queue, at(60)):
        done(queue, claim, at(60))

    ScheduleRunner(queue)._run(slow[0], at(61))

    assert 1 == len(queue.find(ALL))
    assert (2, 1) == (stored(queue).version, stored(queue).runs)


def test_a_clock_that_goes_back_runs_nothing_twice(queue: Queue):
    queue.put_schedule(schedule())
    runner = ScheduleRunner(queue)
    for seconds in (60, 120, 180, 30, 60, 90, 120, 180, 200, 240):
        runner.run(at(seconds))
    assert [
        "2026-01-01T00:01:00Z",
        "2026-01-01T00:02:00Z",
        "2026-01-01T00:03:00Z",
        "2026-01-01T00:04:00Z",
    ] == (times_of(queue))


@pytest.mark.parametrize(
    ("missed", "times", "skipped"),
    [
        (Missed.SKIP, [], 5),
        (Missed.RUN_ONCE, ["00:01:00"], 4),
        (Missed.RUN_ALL, ["00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00"], 0),
    ],
)
def test_missed_runs_follow_the_rule(queue: Queue, missed: Missed, times: list[str], skipped: int):
    queue.put_schedule(schedule(missed=missed))

    ScheduleRunner(queue).run(at(330))

    assert [f"2026-01-01T{time}Z" for time in times] == times_of(queue)
    after = stored(queue)
    assert (at(360), len(times), skipped) == (after.next_at, after.runs, after.skipped)


@pytest.mark.parametrize(
    ("missed", "runs", "skipped"), [(Missed.SKIP, 1, 3), (Missed.RUN_ONCE, 1, 3), (Missed.RUN_ALL, 4, 0)]
)
def test_runs_missed_by_a_schedule_of_seconds_are_counted(
    queue: Queue, missed: Missed, runs: int, skipped: int
):
    """A busy worker looks late, though not by a minute."""
    queue.put_schedule(schedule(timing="every 5s", missed=missed))

    ScheduleRunner(queue).run(at(78))

    after = stored(queue)
    assert (at(80), runs, skipped) == (after.next_at, after.runs, after.skipped)
    assert runs == len(times_of(queue))


def test_more_missed_runs_than_are_caught_up_are_counted(queue: Queue):
    queue.put_schedule(schedule(timing="every 1s", missed=Missed.RUN_ALL))

    ScheduleRunner(queue).run(at(60 + 150))

    assert (100, 51) == (stored(queue).runs, stored(queue).skipped)


def test_two_hosts_at_once_run_each_time_once(opened: Callable[[], Queue]):
    hosts = [opened(), opened()]
    hosts[0].put_schedule(every_minute())
    line = threading.Barrier(2)
    ticks = 20

    def work(queue: Queue) -> None:
        for moment in moments(ticks):
            line.wait(60)
            ScheduleRunner(queue).run(moment)

    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [f"2030-01-01T12:{minute:02d}:00Z" for minute in range(1, ticks + 1)] == times_of(hosts[0])
    assert ticks == stored(hosts[0], "beat").runs


def tell(host: subprocess.Popen[str], minute: int) -> None:
    assert host.stdin is not None
    with suppress(BrokenPipeError):  # the killed one
        host.stdin.write(f"{minute}\n")
        host.stdin.flush()


def answer(host: subprocess.Popen[str]) -> str:
    assert host.stdout is not None
    return host.stdout.readline().strip()


TIMES = [("sqlite", 12), *(pytest.param(name, 200, marks=pytest.mark.long) for name in DURABLE)]


@pytest.mark.parametrize(("engine", "ticks"), TIMES)
def test_each_time_runs_once_on_two_hosts_of_which_one_is_killed(engine: str, ticks: int, tmp_path: Path):
    queue = durable_engines.opened(engine, tmp_path)
    queue.put_schedule(every_minute())
    queue.close()

    hosts = [started("schedule_process", engine, tmp_path, die_at) for die_at in (ticks // 3, 0)]
    for host in hosts:
        assert "ready" == answer(host)
    for minute in range(1, ticks + 1):
        for host in hosts:
            tell(host, minute)
        for host in hosts:
            answer(host)
    ends = [host.communicate(timeout=60) and host.returncode for host in hosts]

    assert [-signal.SIGKILL, 0] == ends
    queue = durable_engines.opened(engine, tmp_path)
    expected = [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments(ticks)]
    assert (expected, ticks) == (times_of(queue), stored(queue, "beat").runs)
    queue.close()
    durable_engines.given_back(tmp_path)


def test_a_schedule_of_a_zone_that_this_host_lacks_does_not_stop_the_others(queue: Queue):
    queue.put_schedule(schedule("a", zone="Mars/Olympus"))
    queue.put_schedule(schedule("b"))

    ScheduleRunner(queue).run(at(60))

    assert ["sched-b"] == [job.queue_id.rpartition("-")[0] for job in queue.find(ALL)]
    assert datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=60) == stored(queue, "a").next_at
