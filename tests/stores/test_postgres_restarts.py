"""Restarts and crashes of a PostgreSQL server while jobs are added, ended and waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import errors
from penstock.database.postgres import Connection, PostgresConnections
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.postgres.queue import PostgresListener, PostgresQueue
from tests.servers import postgres
from tests.stores.test_postgres_trouble import PATIENCE_S, jobs, refused


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.own_server() as server:
        yield server


class Load:
    """Add, claim and end jobs without a pause, and remember acknowledged calls."""

    def __init__(self, url: str) -> None:
        self.queue = PostgresQueue(url, pool_size=2)
        self.added: list[str] = []
        self.done: list[str] = []
        self.refusals: list[Exception] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(call,)) for call in (self._add, self._end)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, call: Any) -> None:
        while not self._stop.is_set():
            try:
                call()
            except Exception as error:
                self.refusals.append(error)
                self._stop.wait(0.01)

    def _add(self) -> None:
        self.added += [answer.queue_id for answer in self.queue.add(jobs(5))]

    def _end(self) -> None:
        claims = self.queue.claim(ClaimRequest("w", 10))
        answers = self.queue.settle([transitions.done(claim) for claim in claims])
        ended = zip(claims, answers, strict=True)
        self.done += [claim.queue_id for claim, status in ended if status is Status.DONE]


def _until(reached: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_nothing_acknowledged_is_lost_when_the_server_crashes_under_load(
    server: postgres.PostgresServer,
) -> None:
    load = Load(server.url())
    for _ in range(3):
        added, done = len(load.added), len(load.done)
        _until(lambda added=added, done=done: len(load.added) > added + 20 and len(load.done) > done + 20)
        server.stop("immediate")
        seen = len(load.refusals)
        _until(lambda seen=seen: len(load.refusals) > seen)
        server.start()
    added, done = len(load.added), len(load.done)
    _until(lambda: len(load.added) > added and len(load.done) > done)
    load.stop()

    assert {errors.StoreUnavailable} == {type(error) for error in load.refusals}
    found = {job.queue_id: job.status for job in load.queue.find(JobQuery(limit=1_000_000))}
    assert set() == set(load.added) - found.keys()
    assert {Status.DONE} == {found[queue_id] for queue_id in load.done}
    load.queue.close()


def test_a_waiter_outlives_a_restart(server: postgres.PostgresServer) -> None:
    queue = PostgresQueue(server.url())
    assert queue.wait(0)
    server.stop("fast")
    assert queue.wait(PATIENCE_S)
    with refused(errors.StoreUnavailable):
        queue.wait(0)
    server.start()
    assert queue.wait(0)
    queue.add(jobs(1))
    assert queue.wait(PATIENCE_S)
    queue.close()


class EndedConnections(PostgresConnections):
    """Connections whose sessions the server ends before their first statement."""

    def connect(self) -> Connection:
        ended = super().connect()
        with super().connect() as another:
            another.execute("SELECT pg_terminate_backend(%s, 10000)", [ended.info.backend_pid])
        return ended


def test_a_waiter_whose_session_ends_before_it_listens_is_refused(server: postgres.PostgresServer) -> None:
    connections = EndedConnections(server.url(), size=1, pooled=False, timeout_s=PATIENCE_S)
    listener = PostgresListener(connections, lambda: "anything", lambda: False)

    with refused(errors.StoreUnavailable, message="terminating connection"):
        listener.wait(0)
