"""Several hosts, each with a state directory, on one server; and crashing servers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.errors import DuplicateId, StoreUnavailable
from penstock.queue.job import Job, Status
from tests.servers import postgres, redis
from tests.servers.stores import ON_SERVERS, others_later
from tests.worker.test_chaos import endings_counted
from tests.worker.worker_processes import Worker, WorkerHost, until

ENGINES = FIRST = ON_SERVERS
HOSTS = tuple(f"host-{number}" for number in range(1, 5))
OPTIONS = {"processes": 2, "lease_s": 6.0, "upkeep_s": 1.0}
DURABLE_REDIS = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
ADDED_AT_ONCE = 10
"""Jobs in one call of the adder."""
AHEAD = 100
EACH = 100
"""Jobs done between two outages."""


class Hosts:
    """A worker on each host, restarted after an exit, as by a service manager."""

    def __init__(self, host: WorkerHost, chance: random.Random) -> None:
        self._host = host
        self._chance = chance
        self._workers = {name: self._start(name) for name in HOSTS}
        self.kills = 0
        self.restarts = 0

    def _start(self, name: str) -> Worker:
        return self._host.worker(name, **OPTIONS)

    def strike(self) -> None:
        """Kill a child in most cases; sometimes a supervisor, or all processes of the host."""
        name = self._chance.choice(HOSTS)
        worker, what = self._workers[name], self._chance.random()
        if what < 0.6:
            with suppress(ProcessLookupError, IndexError):
                os.kill(self._chance.choice(worker.children()), signal.SIGKILL)
        elif what < 0.8:
            worker.signal(signal.SIGKILL)
        else:
            worker.tree(signal.SIGKILL)
        self.kills += 1

    def restart(self) -> None:
        for name, worker in self._workers.items():
            if worker.process.poll() is not None:
                self.restarts += 1
                self._workers[name] = self._start(name)

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in self._host.place.glob("host-*.log"))


class Adder:
    """Adds jobs until stopped, a few ahead of the workers. Calls without a response are repeated."""

    def __init__(self, host: WorkerHost, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self.acknowledged: list[str] = []
        self.unanswered = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Adder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self.acknowledged) > len(self._host.recorded("ended")) + AHEAD:
                self._stop.wait(0.02)
                continue
            new = [
                self._host.new("sleep", payload={"seconds": self._seconds}, max_retries=1000)
                for _ in range(ADDED_AT_ONCE)
            ]
            while True:
                try:
                    self.acknowledged += [added.queue_id for added in self._host.queue.add(new)]
                    break
                except DuplicateId:
                    # The call had succeeded, and some of the jobs are done already.
                    self.acknowledged += [job.queue_id for job in new]
                    break
                except StoreUnavailable:
                    if self._stop.is_set():
                        return
                    self.unanswered += 1
                    self._stop.wait(0.05)


def let_work(host: WorkerHost, jobs: int = 10) -> None:
    enough = len(host.recorded("ended")) + jobs
    until(lambda: len(host.recorded("ended")) > enough or not live(host))


def live(host: WorkerHost) -> int:
    return host.count(Status.PENDING, Status.IN_PROGRESS)


def finish(host: WorkerHost, hosts: Hosts) -> list[Job]:
    """Let the living workers finish the rest."""

    def over() -> bool:
        hosts.restart()
        return live(host) == 0

    until(over, timeout=300)
    return host.jobs()


def check(host: WorkerHost, jobs: list[Job], acknowledged: list[str], endings: int) -> None:
    """Check the record: nothing lost, nothing done twice, every ending belongs to a finished call."""
    assert set() == set(acknowledged) - {job.queue_id for job in jobs}
    assert {Status.DONE} == {job.status for job in jobs}
    assert len(jobs) == endings
    ended = {(line[1], line[2]) for line in host.recorded("ended")}
    assert {(job.queue_id, str(job.claim_number)) for job in jobs} <= ended


# Workers that die.


def add_short_calls(host: WorkerHost, number: int) -> list[str]:
    return host.put_many(number, "sleep", payload={"seconds": 0.005}, max_retries=1000)


def wreak(host: WorkerHost, jobs: int, kills: int) -> None:
    chance = random.Random(jobs)
    ids = add_short_calls(host, jobs)
    with endings_counted(host) as endings:
        hosts = Hosts(host, chance)
        while hosts.kills < kills:
            if live(host) < jobs // 4:
                # A busy machine gives workers more time between two kills.
                ids += add_short_calls(host, jobs // 4)
            let_work(host)
            hosts.strike()
            hosts.restart()
        check(host, finish(host, hosts), ids, endings())
    print(f"{host.engine}: {len(ids):,} jobs, {hosts.kills} kills, {hosts.restarts} restarts")


@pytest.mark.long
def test_16_kills_over_4_hosts(host: WorkerHost):
    wreak(host, jobs=2_000, kills=16)


@pytest.mark.chaos
def test_500_kills_over_4_hosts(host: WorkerHost):
    wreak(host, jobs=30_000, kills=500)


# Servers that die.


class Outages:
    """A server with a way to crash and come back."""

    def __init__(self, url: str, crash: Callable[[], object], start: Callable[[], object]) -> None:
        self.url = url
        self.crash = crash
        self.start = start


@contextmanager
def own_server(engine: str, place: Path) -> Iterator[Outages]:
    if engine == "postgres":
        with postgres.own_server() as server:
            yield Outages(server.url(), lambda: server.stop("immediate"), server.start)
    else:
        with redis.own_server(place / "redis", *DURABLE_REDIS) as broker:
            yield Outages(broker.url, broker.kill, broker.start)


@pytest.fixture(params=others_later(ON_SERVERS))
def outages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outages]:
    with own_server(request.param, tmp_path) as server:
        yield server


@pytest.fixture
def served(outages: Outages, tmp_path: Path) -> Iterator[WorkerHost]:
    engine = "postgres" if outages.url.startswith("postgres") else "redis"
    opened = WorkerHost(engine, tmp_path, outages.url)
    yield opened
    opened.close()


def outlive(
    host: WorkerHost, server: Outages, *, times: int, kills: int = 0, seconds: float, away_s: float
) -> None:
    chance = random.Random(kills)
    with endings_counted(host) as endings:
        hosts = Hosts(host, chance)
        with Adder(host, seconds) as adder:
            until(lambda: len(host.queue.workers()) == len(HOSTS))
            for _ in range(times):
                let_work(host, EACH)
                for _ in range(kills):
                    hosts.strike()
                    hosts.restart()
                server.crash()
                time.sleep(chance.uniform(0.5, 1) * away_s)
                server.start()
            hosts.restart()
            let_work(host, EACH)
        check(host, finish(host, hosts), adder.acknowledged, endings())
    assert "the store is unavailable, next attempt in" in hosts.log
    # Without a server no process can be started, but running ones go on.
    assert kills or not hosts.restarts
    again = len(host.recorded("ended")) - len(adder.acknowledged)
    print(f"{host.engine}: {len(adder.acknowledged):,} jobs, {times} outages, {hosts.kills} kills,", end=" ")
    print(f"{adder.unanswered} adds unanswered, {again} calls more than jobs")


@pytest.mark.long
def test_a_server_that_crashes_under_4_hosts(served: WorkerHost, outages: Outages):
    outlive(served, outages, times=3, seconds=0.01, away_s=0.5)


@pytest.mark.chaos
def test_a_server_that_crashes_three_times_while_workers_are_killed(served: WorkerHost, outages: Outages):
    outlive(served, outages, times=3, kills=10, seconds=0.005, away_s=5)
