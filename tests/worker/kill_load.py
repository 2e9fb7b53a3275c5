"""A mixed load for a kill run: plain jobs, calls of entities, and calls that get stuck in native code.

One thread adds all of it, so that the order of the calls of an entity is the order of the requests.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

from penstock.errors import OUTAGES, DuplicateId
from penstock.queue.job import NewJob
from tests.worker.worker_processes import WorkerHost

NATIVE = ("regex", "total", "digest")
"""C that holds the interpreter lock and looks at signals at times, C that does not, and C without the lock.

The last two end by SIGKILL only."""
TIMEOUT_S = 1
ENTITIES = 12
AT_ONCE = 10
"""Jobs in one request."""
AHEAD = 60
"""Plain jobs, and calls of entities, that may be unfinished before more are added."""
LINE = 15
"""Unfinished calls of one entity before more of them are added."""
JOB_S = 0.01

T = TypeVar("T")


class Stuck(NamedTuple):
    """One call that gets stuck, and how it is to end."""

    do: str
    way: str
    """``timeout`` or ``cancel``."""


class Record:
    """The lines that handlers wrote, read as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.lines: list[list[str]] = []

    def read_on(self) -> list[list[str]]:
        """Return the lines that are new since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._read += len(whole) + 1
        new = [line.split() for line in whole.decode().splitlines()]
        self.lines += new
        return new


class Load:
    """Adds jobs until it is left, a few ahead of the workers, and cancels calls that are to be cancelled."""

    def __init__(self, host: WorkerHost, random: Random) -> None:
        self._host = host
        self._random = random
        self._turns = count()
        self._asked: list[Stuck] = []
        self._open: Counter[str] = Counter()
        self._to_cancel: set[str] = set()
        self.record = Record(host.record)
        self.acknowledged: list[str] = []
        self.keys: dict[str, str] = {}
        """Lock keys by job, in the order of the requests."""
        self.stuck: dict[str, Stuck] = {}
        self.cancelled_at: dict[str, float] = {}
        self.finished = 0
        self.unanswered = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def add_stuck(self, call: Stuck) -> None:
        self._asked.append(call)

    def _run(self) -> None:
        while not self._over.is_set():
            self.keep_up()
            new = self._plain() + self._calls() + self._stuck_calls()
            if new:
                self._add(new)
            else:
                self._over.wait(0.02)

    def keep_up(self) -> None:
        """Read what handlers wrote; a call that is to be cancelled is cancelled as soon as it runs."""
        for what, job_id, *_ in self.record.read_on():
            if what == "ended":
                self.finished += 1
                self._open[self.keys.get(job_id, "")] -= 1
            elif job_id in self._to_cancel:
                self._to_cancel.discard(job_id)
                self.cancelled_at[job_id] = time.time()
                persist(partial(self._host.queue.cancel, [job_id]))

    def _plain(self) -> list[NewJob]:
        if self._open[""] > AHEAD:
            return []
        return [self._new("sleep", None) for _ in range(AT_ONCE)]

    def _calls(self) -> list[NewJob]:
        entities = [f"customer:{number}" for number in range(ENTITIES)]
        if sum(self._open[entity] for entity in entities) > AHEAD:
            return []
        found = self._random.choices(entities, k=AT_ONCE)
        return [self._new("sleep", entity) for entity in found if self._open[entity] < LINE]

    def _stuck_calls(self) -> list[NewJob]:
        asked, self._asked = self._asked, []
        return [self._stuck_call(call) for call in asked]

    def _stuck_call(self, call: Stuck) -> NewJob:
        entity = f"customer:{self._random.randrange(ENTITIES)}" if next(self._turns) % 2 else None
        new = self._new(call.do, entity)
        self.stuck[new.queue_id] = call
        if call.way == "cancel":
            self._to_cancel.add(new.queue_id)
            return new
        return msgspec.structs.replace(new, timeout_s=TIMEOUT_S)

    def _new(self, do: str, entity: str | None) -> NewJob:
        payload = {"seconds": JOB_S, "function_name": do}
        new = self._host.new(
            do, payload=payload, item_type="function", op="run", lock_key=entity, max_retries=1_000
        )
        if entity is not None:
            self.keys[new.queue_id] = entity
        if do == "sleep":
            self._open[entity or ""] += 1
        return new

    def _add(self, new: list[NewJob]) -> None:
        """Ask until there is an answer: afterwards they are all in the store, once."""

        def add() -> None:
            try:
                self._host.queue.add(new)
            except DuplicateId:
                # The request before had succeeded, and some of them have ended since.
                self.unanswered += 1

        persist(add)
        self.acknowledged += [job.queue_id for job in new]


def persist(request: Callable[[], T], patience_s: float = 120.0) -> T:
    """Repeat a request while the store is away."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return request()
        except OUTAGES:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
