"""Real workers, started, watched and killed from outside, and the queue they share with the test.

Clients of servers are imported where they are needed: processes that tests start import this module, too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.queue.job import Job, JobQuery, NewJob, Status
from penstock.queue.protocol import Queue
from tests import signals
from tests.servers.stores import store_url
from tests.worker.worker_main import opened

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")

PATIENCE_S = 240.0
"""Time after which a wait has failed. On a machine with many busy processes a worker starts in a minute."""


def until(condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """Wait for a true result of the condition and return it; fail after the timeout."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.01)
    return answer


def children_of(pid: int) -> list[int]:
    """List all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name)).rpartition(")")[2].split()
            if fields and fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, look = [], [pid]
    while look:
        below = parents.get(look.pop(), [])
        found += below
        look += below
    return found


def within(limit: float, took: float) -> bool:
    """True if the time is within the limit, which grows with the processes that want a core.

    Most of the time goes into starting interpreters, and each gets a share of a core.
    """
    wanting = max(os.getloadavg()[:2]) / (os.cpu_count() or 1)
    return took < limit * max(1.0, 2 * wanting)


def _stat(pid: int) -> str:
    """Read /proc/PID/stat; empty when there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text()
    return ""


def alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if (stat := _stat(pid)) and ") Z " not in stat]


def seconds_on_a_core(pids: list[int]) -> float:
    """CPU time of all threads, from the scheduler, in nanosecond resolution."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def wake_ups(pids: list[int]) -> int:
    """Count voluntary context switches of all threads, which do not depend on other load."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


class Worker:
    """One supervisor and all children."""

    def __init__(self, host: WorkerHost, name: str, given: dict[str, Any]) -> None:
        cwd, piped = given.pop("cwd", ROOT), given.pop("piped", False)
        url = given.pop("url", host.url)
        self._log = host.place / f"{name}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tests.worker.worker_main", url, str(host.place), name]
        dispositions = signals.ignore if given.pop("ignoring", False) else signals.hear
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, msgspec.json.encode(given).decode()],
                cwd=cwd,
                env=os.environ | {"PYTHONPATH": path} | host.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else None,
                stderr=log,
                preexec_fn=dispositions,
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def children(self) -> list[int]:
        return children_of(self.pid)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def tree(self, number: int) -> None:
        """Send a signal to the supervisor first, then to the remaining descendants."""
        below = self.children()
        self.signal(number)
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def ended(self, timeout: float = PATIENCE_S) -> int:
        return self.process.wait(timeout)

    def kill(self) -> None:
        below = [] if self.process.poll() is not None else self.children()
        for pid in [self.pid, *below]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Begun(NamedTuple):
    pid: int
    at: float


class WorkerHost:
    """A host with a store, jobs and workers."""

    def __init__(self, engine: str, place: Path, url: str | None = None) -> None:
        self.engine = engine
        self.place = place
        self._closing = ExitStack()
        self.url = url or self._store_url()
        self.queue: Queue = opened(self.url)
        self.record = place / "record"
        self._workers: list[Worker] = []
        self._numbers = count(1)
        self.environment: dict[str, str] = {}
        """Variables for the workers alone."""

    def _store_url(self) -> str:
        if self.engine == "redis":
            from tests.servers import redis as redis_servers

            if redis_servers.GIVEN is None:
                # A server of its own, since a test may freeze it.
                return self._closing.enter_context(redis_servers.own_server(self.place / "redis")).url
        return store_url(self.engine, self.place)

    def worker(self, name: str = "here", **given: Any) -> Worker:
        self._workers.append(Worker(self, name, given))
        return self._workers[-1]

    def new(self, do: str = "noop", *, payload: dict[str, Any] | None = None, **fields: Any) -> NewJob:
        number = next(self._numbers)
        body = {"do": do, "record": str(self.record)} | (payload or {})
        plain: dict[str, Any] = {
            "queue_id": f"job_{number:08d}",
            "item_type": "content",
            "op": "ingest",
            "tenant_id": "acme",
            "collection": "docs",
            "idempotency_key": f"key {number}",
            "payload_json": msgspec.json.encode(body).decode(),
        }
        return NewJob(**plain | fields)

    def put(self, do: str = "noop", *, payload: dict[str, Any] | None = None, **fields: Any) -> str:
        new = self.new(do, payload=payload, **fields)
        self.queue.add([new])
        return new.queue_id

    def call(self, do: str, **fields: Any) -> str:
        """Add a call of a function."""
        return self.put(do, payload={"function_name": do}, item_type="function", op="run", **fields)

    def put_many(self, number: int, do: str = "noop", **fields: Any) -> list[str]:
        new = [self.new(do, **fields) for _ in range(number)]
        self.queue.add(new)
        return [job.queue_id for job in new]

    def job(self, queue_id: str) -> Job:
        job = self.queue.get(queue_id)
        assert job is not None
        return job

    def count(self, *statuses: Status) -> int:
        """Count jobs in any of these states, in one read: a job may change from one to another."""
        return sum(self.queue.count(JobQuery(statuses=frozenset(statuses))).values())

    def jobs(self) -> list[Job]:
        return self.queue.find(JobQuery(limit=1_000_000))

    def ended(self, queue_id: str, timeout: float = PATIENCE_S) -> Job:
        until(lambda: self.job(queue_id).ended, timeout)
        return self.job(queue_id)

    def recorded(self, what: str, queue_id: str | None = None) -> list[list[str]]:
        """Read the record of the handlers: event, job, claim number, process, time."""
        if not self.record.exists():
            return []
        lines = [line.split() for line in self.record.read_text().splitlines()]
        return [line for line in lines if line[0] == what and queue_id in (None, line[1])]

    def recorded_bytes(self) -> int:
        return self.record.stat().st_size if self.record.exists() else 0

    def began(self, queue_id: str, times: int = 1) -> Begun:
        """Wait until the job began for the nth time; return time and process."""
        until(lambda: len(self.recorded("began", queue_id)) >= times)
        line = self.recorded("began", queue_id)[times - 1]
        return Begun(int(line[3].partition(".")[0]), float(line[4]))

    def info(self, key: str) -> list[Any]:
        return [msgspec.json.decode(report.info_json).get(key) for report in self.queue.workers()]

    def freeze(self, worker: Worker) -> None:
        """Stop all processes of a worker, but not during a write, which would block all others."""
        while True:
            worker.tree(signal.SIGSTOP)
            self.stopped(worker.pid, *worker.children())
            if self._writable():
                return
            worker.tree(signal.SIGCONT)

    def freeze_supervisor(self, worker: Worker) -> None:
        """Stop the supervisor alone, but not during a write."""
        while True:
            worker.signal(signal.SIGSTOP)
            self.stopped(worker.pid)
            if self._writable():
                return
            worker.signal(signal.SIGCONT)

    @staticmethod
    def stopped(*pids: int) -> None:
        """Wait until the processes are stopped."""
        until(lambda: all(") T " in _stat(pid) for pid in pids))

    def _writable(self) -> bool:
        import psycopg

        try:
            with self.locked():
                return True
        except (sqlite3.OperationalError, BlockingIOError, psycopg.errors.LockNotAvailable):
            return False

    @contextmanager
    def locked(self, timeout: float = 0) -> Iterator[None]:
        """Hold the write lock of the store."""
        with getattr(self, f"_locked_{self.engine}")(timeout):
            yield

    @contextmanager
    def _locked_sqlite(self, timeout: float) -> Iterator[None]:
        connection = sqlite3.connect(self.place / "queue.db", timeout=timeout, isolation_level=None)
        with closing(connection):
            connection.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _locked_jsonl(self, timeout: float) -> Iterator[None]:
        with (self.place / "queue/jobs/.queue.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if timeout else fcntl.LOCK_NB))
            yield

    @contextmanager
    def _locked_postgres(self, timeout: float) -> Iterator[None]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE unified_queue {'' if timeout else 'NOWAIT'}".encode())
            yield

    @contextmanager
    def _locked_redis(self, timeout: float) -> Iterator[None]:
        """Pause the server. Scripts are atomic, so there is no writer to wait for."""
        from tests.servers.redis import connect

        with connect(self.url.partition("?")[0]) as client:
            if timeout:
                client.client_pause(60_000, all=False)
            try:
                yield
            finally:
                client.client_unpause()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.queue.close()
        self._closing.close()
