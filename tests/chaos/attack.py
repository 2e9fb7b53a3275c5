"""The attack: processes killed and frozen, a store that goes away, and faults of the machine, at random."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial

from tests.chaos.clients import Calls
from tests.chaos.deployment import Deployment, Member
from tests.chaos.leftovers import mapped_memory
from tests.servers import states
from tests.worker.kill_report import STATES
from tests.worker.kill_run import CLOCK_JUMP_S, WRITE_DELAY_US, frozen
from tests.worker.worker_processes import until

KILLS = ("child", "supervisor", "tree", "HTTP server", "store")
FAULTS = (
    "polite stop",
    "freeze",
    "outage",
    "full disk",
    "slow disk",
    "read-only disk",
    "clock jump",
    *STATES,
)
CHANCES = {
    "child": 60,
    "supervisor": 8,
    "tree": 6,
    "HTTP server": 6,
    "store": 4,
    "polite stop": 4,
    "freeze": 8,
    "outage": 3,
    "full disk": 3,
    "slow disk": 3,
    "read-only disk": 3,
    "clock jump": 3,
    **dict.fromkeys(STATES, 2),
}
SOME_JOBS = 3
"""Calls that end between two strikes."""
PATIENCE_S = 10.0
"""Seconds without so many endings after which the next strike comes all the same."""
START_S = 120.0
"""Seconds for the first endings: a strike at processes that only start tests little."""
STUCK_EVERY = 4
AT_ONCE = (1, 2, 3)
"""Children killed in one strike."""
FAULT_S = (0.3, 3.0)
FREEZE_S = (0.3, 3.0)
LONG_FREEZE_S = (9.0, 12.0)
"""Longer than a lease: what the process held is given to others, and it wakes up with stale claims."""
OUTAGE_S = (0.5, 4.0)


class Attack:
    """Strikes until a deadline. ``jumps``: times at which clocks were wrong."""

    def __init__(self, deployment: Deployment, calls: Calls, chance: random.Random) -> None:
        self._deployment = deployment
        self._calls = calls
        self._chance = chance
        self.struck: Counter[str] = Counter()
        self._frozen: list[threading.Thread] = []
        self.jumps: list[tuple[float, float]] = []
        self.mapped: set[str] = set()
        """Shared memory that processes of the deployment used."""
        self._ways: dict[str, Callable[[], int]] = {
            "child": self._kill_children,
            "supervisor": lambda: self._signal(self._worker(), signal.SIGKILL),
            "tree": lambda: self._signal(self._worker(), signal.SIGKILL, tree=True),
            "HTTP server": lambda: self._signal(deployment.server, signal.SIGKILL),
            "polite stop": lambda: self._signal(self._chance.choice(deployment.members), signal.SIGTERM),
            "freeze": self._freeze,
            "outage": self._take_store_away,
        }
        if deployment.store.crash is not None:
            self._ways["store"] = self._crash_store
        for name, state in deployment.store.states.items():
            self._ways[name] = partial(self._hold, state)
        if deployment.faults is not None:
            self._ways["clock jump"] = self._jump
            if deployment.store.crash is None:
                self._ways["full disk"] = lambda: self._fault(disk_full=True)
                self._ways["read-only disk"] = lambda: self._fault(read_only=True)
                self._ways["slow disk"] = lambda: self._fault(write_delay_us=WRITE_DELAY_US)

    @property
    def kills(self) -> int:
        return sum(self.struck[what] for what in KILLS)

    def run(self, deadline: float) -> None:
        self._let_work(max(deadline, time.monotonic() + START_S), START_S)
        try:
            self._strike_until(deadline)
        finally:
            for thread in self._frozen:
                thread.join()

    def _strike_until(self, deadline: float) -> None:
        for number, what in enumerate(self._plan()):
            if time.monotonic() > deadline:
                return
            self.mapped |= mapped_memory(self._deployment.processes())
            self.struck[what] += self._ways[what]()
            if number % STUCK_EVERY == 0:
                self._calls.add_stuck()
            self._let_work(deadline, PATIENCE_S)

    def _plan(self) -> Iterator[str]:
        """One strike of each kind first, in random order: a short run has them all."""
        first = sorted(self._ways)
        self._chance.shuffle(first)
        yield from first
        chances = [CHANCES[what] for what in self._ways]
        while True:
            yield from self._chance.choices(list(self._ways), chances)

    def _let_work(self, deadline: float, patience_s: float) -> None:
        enough, patience = self._calls.finished + SOME_JOBS, time.monotonic() + patience_s
        until(lambda: self._calls.finished > enough or time.monotonic() > min(patience, deadline))
        time.sleep(self._chance.uniform(0, 0.2))

    def _worker(self) -> Member:
        return self._chance.choice(self._deployment.workers)

    def _kill_children(self) -> int:
        """Kill some children of the workers and of the server at once, mostly one."""
        below = [pid for member in self._deployment.members for pid in member.children()]
        killed = 0
        for pid in self._chance.sample(below, min(self._chance.choice(AT_ONCE), len(below))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def _signal(self, member: Member, number: int, *, tree: bool = False) -> bool:
        running = member.process.poll() is None
        member.send(number, tree=tree)
        return running

    def _freeze(self) -> bool:
        """Freeze any process for a moment, or a supervisor for longer than a lease, beside the attack."""
        if self._chance.random() < 0.3:
            given = (self._worker().pid, self._chance.uniform(*LONG_FREEZE_S))
            self._frozen.append(threading.Thread(target=_hold_frozen, args=given, daemon=True))
            self._frozen[-1].start()
            return True
        member = self._chance.choice(self._deployment.members)
        _hold_frozen(self._chance.choice([member.pid, *member.children()]), self._chance.uniform(*FREEZE_S))
        return True

    def _crash_store(self) -> bool:
        assert self._deployment.store.crash is not None
        self._deployment.store.crash()
        return True

    def _take_store_away(self) -> bool:
        """Stop the server of the store, or lock its file."""
        seconds = self._chance.uniform(*OUTAGE_S)
        if self._deployment.store.outage is not None:
            self._deployment.store.outage(seconds)
            return True
        with locked(self._deployment):
            time.sleep(seconds)
        return True

    def _hold(self, state: states.State) -> bool:
        """Hold a state of the server in which it serves nothing, or only reads."""
        with state():
            time.sleep(self._chance.uniform(*OUTAGE_S))
        return True

    def _fault(self, **fault: int) -> bool:
        assert self._deployment.faults is not None
        with self._deployment.faults.on(**fault):  # type: ignore[arg-type]
            time.sleep(self._chance.uniform(*FAULT_S))
        return True

    def _jump(self) -> bool:
        start = time.monotonic()
        self._fault(clock_offset_s=self._chance.choice([-CLOCK_JUMP_S, CLOCK_JUMP_S]))
        # What was written with a wrong time is read until that time has come.
        self.jumps.append((start, time.monotonic() + CLOCK_JUMP_S))
        return True


def _hold_frozen(pid: int, seconds: float) -> None:
    with frozen(pid):
        time.sleep(seconds)


@contextmanager
def locked(deployment: Deployment) -> Iterator[None]:
    """Hold the lock of a store in files, as a backup or another program may."""
    with _lock(deployment):
        yield


def _lock(deployment: Deployment) -> AbstractContextManager[object]:
    state = deployment.states[0]
    if deployment.engine == "sqlite":
        return _sqlite_locked(f"{state}/queue.db")
    return _file_locked(f"{state}/queue/jobs/.queue.lock")


@contextmanager
def _sqlite_locked(path: str) -> Iterator[None]:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


@contextmanager
def _file_locked(path: str) -> Iterator[None]:
    import fcntl

    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
