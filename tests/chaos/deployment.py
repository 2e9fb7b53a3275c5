"""A deployment to be attacked: a store, an HTTP server with a worker in it, and further workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from penstock import config
from penstock.database.factory import open_queue
from penstock.queue.protocol import Queue
from tests import signals
from tests.chaos import history
from tests.power_loss.recording import COMPILER
from tests.servers import postgres, redis, run, states
from tests.worker.faults import Faults
from tests.worker.kill_run import DURABLE_REDIS, pooled
from tests.worker.worker_processes import ROOT, children_of

APP = "tests.chaos.functions:app"
SETTINGS = {
    "EMBEDDER": "hashing",
    # Power cuts have tests of their own, and the sync is most of the cost of a commit.
    "SQLITE_SYNCHRONOUS": "NORMAL",
    "LEASE_S": "8",
    "TASK_LEASE_S": "8",
    "HEARTBEAT_S": "2",
    "POLL_S": "0.25",
    "UPKEEP_S": "1",
    "CANCEL_GRACE_S": "0.5",
    "MAX_QUEUE": "100000",
    "MAX_RETRIES": "1000",
    # No model, browser or shell reaches it, and the run asks for much.
    "RATE_LIMIT": "1000000",
}
STOP_S = 300.0
REVIVE_S = 0.1
USUAL_EXITS = frozenset({0, -signal.SIGKILL, -signal.SIGTERM})
"""Exit codes: a polite stop, and kills. No state of the store ends a process at work."""
STORE_IS_AWAY = 7
"""Exit code of a server that starts while its store is away; a worker waits for it."""


class Store(NamedTuple):
    """A store of the run's own. On a server: ways to crash and to stop it, and another empty store.

    ``states``: ways to make it unusable for a while, by name. ``pooled_url``: the same store behind a pooler.
    """

    url: str
    fresh_url: str | None = None
    crash: Callable[[], object] | None = None
    outage: Callable[[float], object] | None = None
    states: Mapping[str, states.State] = {}
    pooled_url: str | None = None


@contextmanager
def store(engine: str, place: Path, chance: random.Random) -> Iterator[Store]:
    if engine == "postgres":
        with postgres.own_server() as server, pooled(server) as pooler:
            ways = dict(states.of_postgres(server))
            if pooler is not None:
                ways["lost pooler"] = pooler.killed
            yield Store(
                f"{server.url()}?schema=chaos",
                f"{server.url()}?schema=fresh",
                lambda: _crash_postgres(server, chance),
                lambda seconds: _stop_postgres(server, seconds),
                ways,
                f"{pooler.url}?schema=chaos" if pooler is not None else None,
            )
    elif engine == "redis":
        with redis.own_server(place / "redis", *DURABLE_REDIS) as broker:
            yield Store(
                broker.url,
                None,
                lambda: _stop_redis(broker, 0.0),
                lambda seconds: _stop_redis(broker, seconds),
                states.of_redis(broker),
            )
    else:
        files = {"sqlite": f"sqlite:///{place}/state/queue.db", "jsonl": f"jsonl://{place}/state/queue"}
        yield Store(files[engine])


def _stop_redis(server: redis.Server, seconds: float) -> None:
    server.kill()
    time.sleep(seconds)
    server.start()


def _stop_postgres(server: postgres.PostgresServer, seconds: float) -> None:
    server.stop("immediate")
    time.sleep(seconds)
    server.start()


def _crash_postgres(server: postgres.PostgresServer, chance: random.Random) -> None:
    """Kill one of the server's processes, which makes it recover, or stop all at once and start it again."""
    main = int((server.home / "data/postmaster.pid").read_text().split()[0])
    below = children_of(main)
    if below and chance.random() < 0.5:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(below), signal.SIGKILL)
    else:
        _stop_postgres(server, 0.0)


class Member:
    """One command of the deployment, started again after each end, as a service manager does it."""

    def __init__(
        self, name: str, command: list[str], environ: dict[str, str], folder: Path, usual: Collection[int]
    ) -> None:
        """``usual``: exit codes that are no violation."""
        self.name = name
        self.usual = usual
        self._command = [sys.executable, "-m", "penstock", *command]
        self._environ = environ
        self.log = folder / f"{name}.log"
        self.exits: Counter[int] = Counter()
        self.last_words: dict[int, str] = {}
        """The last line of the log at the last end with each exit code."""
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._began_at = log.tell()
            self.process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=signals.hear,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        return children_of(self.pid)

    def send(self, number: int, *, tree: bool = False) -> None:
        below = self.children() if tree else []
        for pid in [self.pid, *below]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def revive(self) -> None:
        if self.process.poll() is not None:
            self._count(self.process.returncode)
            self._start()

    def _count(self, code: int) -> None:
        lines = self.log.read_bytes()[self._began_at :].decode(errors="replace").splitlines()
        if code == STORE_IS_AWAY and len(lines) == 1 and "(ERR_STORE_DENIED)" in lines[0]:
            # A refused login at the start, before any work, ends a worker (decision 0074).
            return
        self.exits[code] += 1
        self.last_words[code] = lines[-1] if lines else ""

    def stop(self) -> str | None:
        """Stop politely; return what was wrong with the end."""
        self.send(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL, tree=True)
            self.process.wait()
            return f"{self.name} did not stop within {STOP_S:.0f} s"
        self._count(code)
        return None if code == 0 else f"{self.name} stopped with exit code {code}"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL, tree=True)
            self.process.wait()


class Deployment:
    """A server, its workers and their files. ``files`` is the tree to be indexed."""

    def __init__(self, engine: str, place: Path, found: Store) -> None:
        self.engine, self.place, self.store = engine, place, found
        self.files = place / "files"
        self.record = place / "record"
        self.history = place / "history"
        self.temporary = place / "temporary"
        self.logs = place / "logs"
        # Hosts of their own only where queue and catalog are on a server.
        names = ("state", "state-2") if engine == "postgres" else ("state", "state")
        self.states = [place / name for name in names]
        for folder in (self.temporary, self.logs, place / "machine", *self.states):
            folder.mkdir(exist_ok=True)
        self.faults = None if COMPILER is None else Faults(place / "machine", f"{place}/state")
        self.port = run.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.members: list[Member] = []
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_running, daemon=True)

    def environment(self, state: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        given = {f"PENSTOCK_{name}": value for name, value in SETTINGS.items()}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
        own = {
            "PENSTOCK_URL": self.store.url,
            "PENSTOCK_STATE": str(state),
            "PENSTOCK_ROOTS": str(self.files),
            "PYTHONPATH": path,
            "TMPDIR": str(self.temporary),
            history.RECORD: str(self.record),
            history.FILE: str(self.history),
            history.ENGINE: self.engine,
        }
        return kept | given | own

    def settings(self) -> config.Settings:
        return config.load(self.environment(self.states[0]))

    def open_queue(self) -> Queue:
        return open_queue(self.settings())

    def start(self) -> None:
        started = ["--app", APP]
        serve = ["serve", "--port", str(self.port), "--no-auth", "--processes", "1", *started]
        worker = ["worker", "--processes", "2", "--start-method", "fork", "--wait-for-store", *started]
        for name, command, state in (("server", serve, 0), ("worker-1", worker, 0), ("worker-2", worker, 1)):
            environ = self.environment(self.states[state])
            if name == "worker-2" and self.store.pooled_url is not None:
                environ |= {"PENSTOCK_URL": self.store.pooled_url, "PENSTOCK_POSTGRES_POOLER": "true"}
            if self.faults is not None:
                environ |= self.faults.environment
            usual = {*USUAL_EXITS, STORE_IS_AWAY} if name == "server" else USUAL_EXITS
            self.members.append(Member(name, command, environ, self.logs, usual))
        self._keeper.start()

    def _keep_running(self) -> None:
        while not self._over.wait(REVIVE_S):
            for member in self.members:
                member.revive()

    @property
    def server(self) -> Member:
        return self.members[0]

    @property
    def workers(self) -> list[Member]:
        return self.members[1:]

    def processes(self) -> list[int]:
        return [pid for member in self.members for pid in [member.pid, *member.children()]]

    def stop(self) -> list[str]:
        """Stop everything; return what was wrong on the way."""
        self._leave()
        found = [wrong for member in self.members if (wrong := member.stop())]
        for member in self.members:
            odd = {code: times for code, times in member.exits.items() if code not in member.usual}
            found += [
                f"{member.name} ended {times} times with exit code {code}: {member.last_words[code]}"
                for code, times in odd.items()
            ]
        return found

    def kill(self) -> None:
        self._leave()
        for member in self.members:
            member.kill()

    def _leave(self) -> None:
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
