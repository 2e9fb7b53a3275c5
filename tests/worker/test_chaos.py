"""Kills at random while there is work: every job ends exactly once, nothing stays in progress."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from penstock.queue.job import Status
from tests.servers.stores import ON_FILES, ON_SERVERS
from tests.worker.worker_processes import Worker, WorkerHost, until

FIRST = ON_FILES
"""On servers `make test` kills in test_hosts."""
JOB_S = {"jsonl": 0.02}
"""A process that reads 50,000 jobs first needs a second to start; the others should not finish meanwhile."""
USUAL_JOB_S = 0.003
SOME_JOBS_BYTES = 1_000


ON_POSTGRES = """
    CREATE TABLE endings (queue_id text);
    CREATE FUNCTION note_ending() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO endings VALUES (new.queue_id); RETURN NULL; END';
    CREATE TRIGGER ending AFTER UPDATE OF status ON unified_queue FOR EACH ROW
        WHEN (new.status = 'done' AND old.status <> 'done') EXECUTE FUNCTION note_ending();
"""
ON_SQLITE = """
    CREATE TABLE endings (queue_id TEXT);
    CREATE TRIGGER ending AFTER UPDATE OF status ON unified_queue
        WHEN new.status = 'done' AND old.status <> 'done'
        BEGIN INSERT INTO endings VALUES (new.queue_id); END;
"""


def ask_postgres(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        answer = connection.execute(statement.encode())
        return answer.fetchall() if answer.description else []


@contextmanager
def endings_counted(host: WorkerHost) -> Iterator[Callable[[], int]]:
    """Let the store itself count how often each job became done."""
    if host.engine == "sqlite":
        with closing(sqlite3.connect(host.place / "queue.db", timeout=30)) as file:
            file.executescript(ON_SQLITE)
            yield lambda: int(file.execute("SELECT count(*) FROM endings").fetchone()[0])
    elif host.engine == "postgres":
        ask_postgres(host.url, ON_POSTGRES)
        yield lambda: int(ask_postgres(host.url, "SELECT count(*) FROM endings")[0][0])
        # The next test may get this schema.
        ask_postgres(host.url, "DROP FUNCTION note_ending CASCADE; DROP TABLE endings")
    elif host.engine == "redis":
        # A counter that grows with every ending, kept beside the rows and not counted from them.
        yield lambda: host.count(Status.DONE)
    else:
        # A process killed between the journal and its log omits a line, but no line is there twice.
        logs = host.place / "queue/jobs"
        yield lambda: sum(
            int(number)
            for log in logs.glob("index_queue.log*")
            for number in re.findall(r"(\d+) done", log.read_text())
        )


class Chaos:
    def __init__(self, host: WorkerHost, chance: random.Random) -> None:
        self._host = host
        self._chance = chance
        self._worker = self._start()
        self.kills = 0

    def _start(self) -> Worker:
        return self._host.worker(processes=2, lease_s=30.0)

    def let_work(self) -> None:
        """Wait for some work to be done: kills should hit processes at work."""
        enough = self._host.recorded_bytes() + SOME_JOBS_BYTES
        until(lambda: self._host.recorded_bytes() > enough or not live(self._host))

    def strike(self) -> None:
        """Kill a child in most cases; sometimes the supervisor or all processes; or send SIGTERM."""
        what = self._chance.random()
        if what < 0.75:
            with suppress(ProcessLookupError, IndexError):
                os.kill(self._chance.choice(self._worker.children()), signal.SIGKILL)
                self.kills += 1
            return
        if what < 0.85:
            self._worker.signal(signal.SIGKILL)
        elif what < 0.95:
            self._worker.tree(signal.SIGKILL)
        else:
            self._worker.signal(signal.SIGTERM)
        self.kills += 1
        self._worker.ended()
        self._worker = self._start()


def live(host: WorkerHost) -> int:
    return host.count(Status.PENDING, Status.IN_PROGRESS)


def wreak(host: WorkerHost, jobs: int, kills: int, pause_s: float, job_s: float = USUAL_JOB_S) -> None:
    chance = random.Random(jobs)
    host.put_many(jobs, "sleep", payload={"seconds": job_s}, max_retries=1000)
    with endings_counted(host) as endings:
        chaos = Chaos(host, chance)
        while chaos.kills < kills and live(host):
            chaos.let_work()
            time.sleep(chance.uniform(0, 2 * pause_s))
            chaos.strike()
        # Retries of jobs that were hit more than once come after a delay.
        until(lambda: live(host) == 0, timeout=600)
        assert jobs - (chaos.kills * 100 if host.engine == "jsonl" else 0) <= endings() <= jobs

    everything = host.jobs()
    assert {Status.DONE: jobs} == {status: host.count(status) for status in Status if host.count(status)}
    assert [Status.DONE] * jobs == [job.status for job in everything]
    ended_at = {(line[1], line[2]) for line in host.recorded("ended")}
    finished = {(job.queue_id, str(job.claim_number)) for job in everything}
    assert finished <= ended_at
    lost = sum(job.lost_count for job in everything)
    assert lost <= 2 * chaos.kills
    assert chaos.kills >= kills * 0.9
    twice = sum(job.lost_count > 1 for job in everything)
    print(
        f"{host.engine}: {jobs:,} jobs, {chaos.kills} kills, {lost} lost ({twice} more than once),", end=" "
    )
    print(f"{len(host.recorded('began')) - jobs} handler calls more than jobs")


@pytest.mark.long
def test_some_kills_over_some_jobs(host: WorkerHost):
    share = 2 if host.engine in ON_SERVERS else 1
    wreak(host, jobs=800 // share, kills=8 // share, pause_s=0.06)


@pytest.mark.chaos
def test_1_000_kills_over_50_000_jobs(host: WorkerHost):
    wreak(host, jobs=50_000, kills=1_000, pause_s=0.05, job_s=JOB_S.get(host.engine, USUAL_JOB_S))
