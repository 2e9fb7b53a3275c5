"""A process to be killed: stores, builds, renames, removes and sweeps in an endless loop.

Run as ``python -m tests.catalog.crash_process NAME PLACE``. Each line on stdin, a seed, forks one that
works on the catalog there and says its process number first, then what it was told is stored; when it is
gone, the one that forked it says ``gone``.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from random import Random

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import Portions
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.values import (
    Failure,
    Fingerprints,
    NewGeneration,
    NewPage,
    Phase,
    Place,
    Removal,
    Rename,
    Task,
    TaskOutcome,
    TaskRequest,
)
from tests.catalog.conftest import CATALOGS, VECTOR, chunk, completed_graph

LIFETIME_S = 60
"""It ends by itself when nobody kills it."""


class Victim:
    def __init__(self, catalog: Catalog, seed: int) -> None:
        self._catalog = catalog
        self._random = Random(seed)
        self._seed = seed
        self._kept = 0

    def work(self, times: int | None = None) -> None:
        """Without end, unless it is said how often."""
        actions: list[Callable[[], None]] = [
            self._store,
            self._keep,
            self._tasks,
            self._sweep,
            self._rename,
            self._remove,
        ]
        self._keep()
        for _ in repeat(None) if times is None else repeat(None, times):
            self._random.choices(actions, [6, 2, 6, 3, 1, 1])[0]()

    def _path(self) -> str:
        return f"/{self._random.choice('ab')}/{self._random.randint(0, 9)}.md"

    def _store(self) -> None:
        new = [self._generation() for _ in range(self._random.choice([1, 2, 8]))]
        self._catalog.store(new)

    def _keep(self) -> None:
        """A source nothing here removes or moves; its path is said once the call has returned."""
        self._kept += 1
        path = f"/kept/{self._seed}-{self._kept}.md"
        now = clock.now()
        parts = (NewPage(number=1, chunks=(chunk(f"kept {path}"),)),)
        new = NewGeneration(
            place=Place("acme", "kept"),
            path=path,
            content_hash=path,
            asked_at=now,
            read_at=now,
            pages=parts,
            space="static",
        )
        self._catalog.store([new])
        os.write(1, f"kept {path}\n".encode())

    def _generation(self) -> NewGeneration:
        now = clock.now()
        parts = tuple(self._page(number) for number in range(self._random.randint(1, 3)))
        return NewGeneration(
            place=Place("acme", "docs"),
            path=self._path(),
            content_hash=str(self._random.random()),
            asked_at=now,
            read_at=now,
            pages=parts,
            space="static",
            job_id="job_1",
            fingerprints=Fingerprints(graphrag="graph-1" if self._random.random() < 0.3 else ""),
        )

    def _page(self, number: int) -> NewPage:
        if self._random.random() < 0.3:
            return NewPage(number=number)
        return self._read(number)

    def _read(self, number: int) -> NewPage:
        texts = [f"words {self._random.randint(0, 30)} " * 20 for _ in range(self._random.randint(0, 5))]
        vector = self._random.choice([VECTOR, VECTOR, None])
        return NewPage(number=number, chunks=tuple(chunk(text, vector) for text in texts))

    def _tasks(self) -> None:
        lane = self._random.choice(list(Phase))
        tasks = self._catalog.claim(TaskRequest(lane, "victim", self._random.randint(1, 10)))
        self._catalog.settle([self._outcome(task) for task in tasks])

    def _outcome(self, task: Task) -> TaskOutcome:
        if self._random.random() < 0.1:
            return publication.failed(task, Failure("ERR_X", "no"))
        if task.lane is Phase.OCR:
            return publication.completed_page(task, self._read(task.page_number))
        if task.lane is Phase.VECTOR:
            return publication.completed_vector(task, VECTOR)
        return completed_graph(task, 1, 1)

    def _sweep(self) -> None:
        entries = self._catalog.outbox(limit=5)
        self._catalog.clear([entry.entry_id for entry in entries], limit=self._random.choice([1, 3, 1000]))

    def _rename(self) -> None:
        old, new = self._random.sample(["/a", "/b"], 2)
        change = Rename(place=Place("acme", "docs"), old=old, new=new, folder=True, asked_at=clock.now())
        self._catalog.rename(change, limit=self._random.choice([1, 5]))

    def _remove(self) -> None:
        removal = Removal(
            tenant_id="acme",
            collection="docs",
            path=self._random.choice(["/a", self._path()]),
            asked_at=clock.now(),
        )
        self._catalog.remove(removal, limit=self._random.choice([1, 5]))


def _live_and_die(name: str, place: Path, seed: int) -> None:
    signal.alarm(LIFETIME_S)
    try:
        catalog = CATALOGS[name](place)
        if seed % 4 == 1:
            # What is written then takes several transactions.
            assert isinstance(catalog, SqlCatalog)
            catalog.portions = Portions(rows=2, uncut=1)
        victim = Victim(catalog, seed)
        os.write(1, f"{os.getpid()}\n".encode())
        victim.work()
    except BaseException:
        os.write(1, ("error " + repr(traceback.format_exc()[-2_000:]) + "\n").encode())
    finally:
        os._exit(1)


def main(name: str, place: Path) -> None:
    # What is loaded now need not be loaded by everyone who has a moment to live.
    CATALOGS[name](place).close()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live_and_die(name, place, int(line))
        os.waitpid(pid, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
