"""Kill and freeze workers and servers at random, let the machine fail, and account for every job.

Run as ``python -m tests.worker.kill_run [--engines sqlite,postgres] [--kills 300] [--minutes 5] [--seed 7]``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import cycle, product
from pathlib import Path
from typing import NamedTuple

from penstock.queue.job import Status
from tests.power_loss.recording import COMPILER
from tests.servers import pgbouncer, postgres, redis, states
from tests.servers.stores import DURABLE, ON_FILES
from tests.worker.faults import Faults
from tests.worker.kill_load import NATIVE, Load, Stuck, persist
from tests.worker.kill_report import FAULTS, KILLS, Account, Begun, Story, account
from tests.worker.process_names import process_name
from tests.worker.test_chaos import endings_counted
from tests.worker.worker_processes import Worker, WorkerHost, children_of, until

DURABLE_REDIS = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
OPTIONS = {"processes": 3, "lease_s": 12.0, "upkeep_s": 1.0, "grace_s": 0.5}
STUCK_EVERY = 5
"""Kills between two calls that get stuck."""
SERVER_EVERY = 25
"""Kills between two crashes of a server."""
STATE_EVERY = 10
"""Kills between two states of a server in which it serves nothing, or only reads."""
SOME_JOBS = 8
"""Jobs that end between two kills."""
PATIENCE_S = 5.0
"""Seconds without so many endings after which the next kill comes all the same."""
FINISH_S = 900.0
FAULT_CHANCE = 0.2
"""Share of strikes that are a fault of the machine instead of a kill."""
WRITE_DELAY_US = 20_000
CLOCK_JUMP_S = 20
"""Longer than a lease; a retry that was put off by a fast clock waits as long."""


class Plan(NamedTuple):
    kills: int
    seed: int
    minutes: float = 60.0
    """Time after which the run comes to its end with fewer kills."""


class Attack:
    """Two workers, killed and started again, as a service manager does it."""

    def __init__(self, host: WorkerHost, load: Load, served: Served, plan: Plan) -> None:
        self._host = host
        self._load = load
        self._crash = crash = served.crash
        self._states = served.states
        self._pooler = served.pooler
        self._asked_to_end: set[int] = set()
        """Process ids of supervisors that this run stopped or killed."""
        self._begun: set[int] = set()
        """Process ids of supervisors that were seen with children."""
        self.ended_alone: list[str] = []
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._stuck = cycle(Stuck(do, way) for do, way in product(NATIVE, ("timeout", "cancel")))
        # Workers on one host share a state directory; a queue in a file has one host only.
        self._names = ("host-1", "host-2") if crash else ("here", "here")
        self._faults = _faults(host)
        self.workers: list[Worker] = [self._start(name) for name in self._names]
        self.struck: Counter[str] = Counter()
        self._deadline = time.monotonic() + 60 * plan.minutes

    @property
    def kills(self) -> int:
        return sum(self.struck[what] for what in KILLS)

    def _start(self, name: str) -> Worker:
        # With a pooler, the second host is behind it.
        if self._pooler is not None and name == self._names[1]:
            return self._host.worker(name, url=self._pooler.url, pooled=1, **OPTIONS)
        return self._host.worker(name, **OPTIONS)

    def run(self) -> None:
        while self.kills < self._plan.kills and time.monotonic() < self._deadline:
            before = self.kills
            self._let_work()
            if self._random.random() < FAULT_CHANCE:
                self._fault()
            else:
                self._strike()
            self.revive()
            if self.kills == before:
                continue
            if self.kills % STUCK_EVERY == 1:
                self._load.add_stuck(next(self._stuck))
            if self._crash and self.kills % SERVER_EVERY == 0:
                self._crash()
                self.struck["server"] += 1
            if self._states and self.kills % STATE_EVERY == 1:
                self._pass_through_states()

    def _pass_through_states(self) -> None:
        """Bring the server into each state for a moment. A worker at work outlasts all of them."""
        for name, state in self._states.items():
            self._let_work()
            self._note_begun()
            with state():
                time.sleep(self._random.uniform(0.3, 2.0))
            self.struck[name] += 1
            self._let_work()
            self.revive()

    def _note_begun(self) -> None:
        self._begun.update(worker.pid for worker in self.workers if worker.children())

    def _let_work(self) -> None:
        enough, deadline = self._load.finished + SOME_JOBS, time.monotonic() + PATIENCE_S
        until(lambda: self._load.finished > enough or time.monotonic() > deadline)
        time.sleep(self._random.uniform(0, 0.2))

    def _strike(self) -> None:
        """Kill a child, mostly; else a supervisor, a whole tree, or nothing: a polite stop."""
        worker, chance = self._random.choice(self.workers), self._random.random()
        if chance < 0.74:
            with suppress(ProcessLookupError, IndexError):
                os.kill(self._random.choice(worker.children()), signal.SIGKILL)
                self.struck["child"] += 1
            return
        if chance < 0.85:
            what, kill = "supervisor", worker.signal
        elif chance < 0.96:
            what, kill = "tree", worker.tree
        else:
            what, kill = "polite stop", worker.signal
        if worker.process.poll() is None:
            self._asked_to_end.add(worker.pid)
            kill(signal.SIGTERM if what == "polite stop" else signal.SIGKILL)
            self.struck[what] += 1

    def _fault(self) -> None:
        """Freeze a process of a worker, fill the disk, slow it down or set the clock, for a while."""
        on_files = self._host.engine in ON_FILES
        known = FAULTS if on_files else ("freeze", "clock jump")
        what = self._random.choice(known if self._faults else FAULTS[:1])
        with self._freeze() if what == "freeze" else self._machine_fault(what):
            time.sleep(self._random.uniform(0.2, 3.0))
        self.struck[what] += 1

    def _freeze(self) -> AbstractContextManager[None]:
        worker = self._random.choice(self.workers)
        below = worker.children()
        return frozen(self._random.choice([worker.pid, *below]))

    def _machine_fault(self, what: str) -> AbstractContextManager[None]:
        assert self._faults is not None
        if what == "full disk":
            return self._faults.on(disk_full=True)
        if what == "read-only disk":
            return self._faults.on(read_only=True)
        if what == "slow disk":
            return self._faults.on(write_delay_us=WRITE_DELAY_US)
        return self._faults.on(clock_offset_s=self._random.choice([-CLOCK_JUMP_S, CLOCK_JUMP_S]))

    def revive(self) -> None:
        for number, worker in enumerate(self.workers):
            code = worker.process.poll()
            if code is not None:
                if worker.pid in self._begun - self._asked_to_end:
                    self.ended_alone.append(f"exit code {code}: {worker.log.rstrip().rpartition(chr(10))[2]}")
                self.workers[number] = self._start(self._names[number])

    def finish(self) -> None:
        """Let the workers do what is left."""

        def over() -> bool:
            self.revive()
            self._load.keep_up()
            time.sleep(0.1)
            return persist(lambda: unfinished(self._host)) == 0

        with suppress(AssertionError):
            # What is left then is in the account.
            until(over, timeout=FINISH_S)
        self._load.keep_up()


def _faults(host: WorkerHost) -> Faults | None:
    """Faults of the machine for the workers of the host, where they can be compiled."""
    if COMPILER is None:
        return None
    folder = host.place / "machine"
    folder.mkdir()
    found = Faults(folder, f"{host.place}/queue")
    host.environment |= found.environment
    return found


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process for the time of the block."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def unfinished(host: WorkerHost) -> int:
    return host.count(Status.PENDING, Status.IN_PROGRESS)


# Servers.


class Served(NamedTuple):
    url: str | None
    crash: Callable[[], object] | None
    states: Mapping[str, states.State] = {}
    """States of the server that pass, by name."""
    pooler: pgbouncer.PgBouncer | None = None


@contextmanager
def served(engine: str, place: Path, chance: random.Random) -> Iterator[Served]:
    """A store of the run's own; where it is on a server, with a way to crash that."""
    if engine == "postgres":
        with postgres.own_server() as server, pooled(server) as pooler:
            ways = dict(states.of_postgres(server))
            if pooler is not None:
                ways["lost pooler"] = pooler.killed
            yield Served(server.url(), lambda: _crash_postgres(server, chance), ways, pooler)
    elif engine == "redis":
        with redis.own_server(place / "redis", *DURABLE_REDIS) as broker:
            yield Served(broker.url, lambda: _crash_redis(broker, chance), states.of_redis(broker))
    else:
        yield Served(None, None)


@contextmanager
def pooled(server: postgres.PostgresServer) -> Iterator[pgbouncer.PgBouncer | None]:
    """A pooler in transaction mode in front of the server, where the program is there."""
    if pgbouncer.PROGRAM is None:
        yield None
        return
    with pgbouncer.in_front(server.url()) as pooler:
        yield pooler


def _crash_redis(server: redis.Server, chance: random.Random) -> None:
    server.kill()
    time.sleep(chance.uniform(0, 1))
    server.start()


def _crash_postgres(server: postgres.PostgresServer, chance: random.Random) -> None:
    """Kill one of the server's processes, which makes it recover, or stop all at once and start it again."""
    main = int((server.home / "data/postmaster.pid").read_text().split()[0])
    below = children_of(main)
    if chance.random() < 0.5 and below:
        os.kill(chance.choice(below), signal.SIGKILL)
    else:
        server.stop("immediate")
        time.sleep(chance.uniform(0, 1))
        server.start()


# The run.


def run(engine: str, place: Path, plan: Plan) -> Account:
    with served(engine, place, random.Random(plan.seed)) as store:
        host = WorkerHost(engine, place, store.url)
        try:
            return _attack(host, store, plan)
        finally:
            host.close()


def _attack(host: WorkerHost, store: Served, plan: Plan) -> Account:
    load = Load(host, random.Random(plan.seed))
    with endings_counted(host) as endings:
        attack = Attack(host, load, store, plan)
        with load:
            attack.run()
        attack.finish()
        story = Story(
            engine=host.engine,
            struck=attack.struck,
            acknowledged=load.acknowledged,
            keys=load.keys,
            stuck=load.stuck,
            cancelled_at=load.cancelled_at,
            jobs=host.jobs(),
            record=[Begun.read(line) for line in load.record.lines],
            endings=endings(),
            # A process killed between the journal and its log leaves a line out.
            endings_may_be_missed=host.engine == "jsonl",
            ended_alone=tuple(attack.ended_alone),
            alive=frozenset(process_name(pid) for worker in attack.workers for pid in worker.children()),
        )
    return account(story, time.time() - time.monotonic())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Kill workers and servers at random, and check every job.")
    parser.add_argument("--engines", default=",".join(DURABLE), help="Engines, separated by commas.")
    parser.add_argument("--kills", type=int, default=300, help="Kills on each engine.")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="Longest time for the kills on an engine."
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    given = parser.parse_args(arguments)
    broken = 0
    for engine in given.engines.split(","):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="penstock-kills-") as place:
            found = run(engine, Path(place), Plan(given.kills, given.seed, given.minutes))
        print(f"{found.text()}\n  seed {given.seed}, {time.monotonic() - began:.0f} s", flush=True)
        broken += bool(found.breaches)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
