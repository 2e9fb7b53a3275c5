"""Timing one run of something, and running two contenders in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

SIDES = ("ours", "floor")


class Sample(msgspec.Struct):
    """One run: so many jobs, in so much time, with so many bytes handed to the kernel."""

    jobs: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    written: int = 0

    @property
    def rate(self) -> float:
        return self.jobs / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.jobs * 1e6

    @property
    def written_per_job(self) -> float:
        return self.written / self.jobs


class Pair(msgspec.Struct):
    """The samples of both sides; those of one repetition stand at the same place."""

    ours: list[Sample]
    floor: list[Sample]


@contextmanager
def timed(jobs: int, elsewhere: Callable[[], float] = float) -> Iterator[Sample]:
    """``elsewhere``: CPU seconds that others, such as a server, have used for it so far."""
    sample = Sample(jobs=jobs)
    theirs, written, cpu, wall = elsewhere(), _written(), time.process_time(), time.perf_counter()
    yield sample
    sample.wall_s = time.perf_counter() - wall
    sample.cpu_s = time.process_time() - cpu + elsewhere() - theirs
    sample.written = _written() - written


def in_turns(repetitions: int, run: Callable[[str], Sample]) -> Pair:
    """Ours, floor, ours, floor …: what slows the machine for a while slows both."""
    pair = Pair([], [])
    for _ in range(repetitions):
        pair.ours.append(run("ours"))
        pair.floor.append(run("floor"))
    return pair


def _written() -> int:
    """Bytes this process has passed to write calls; 0 where the system does not say."""
    try:
        text = Path(f"/proc/{os.getpid()}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.split("wchar: ")[1].split()[0])
