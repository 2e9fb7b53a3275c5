"""The JSONL floor: a plain shared journal. One line a job and change, one write and one fdatasync a batch.

No dedupe, turns, locks, pause, fence, numbering, checksums, audit or snapshot; it grows for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from bench.inotify_floor import Bell
from penstock import clock
from penstock.queue import transitions
from penstock.queue.job import Job, NewJob

_LEASE = timedelta(seconds=300)


class Added(msgspec.Struct, frozen=True, tag="added", omit_defaults=True):
    job: Job


class Claimed(msgspec.Struct, frozen=True, tag="claimed"):
    queue_id: str
    worker_id: str
    lease_until: datetime


class Done(msgspec.Struct, frozen=True, tag="done"):
    queue_id: str
    finished_at: datetime


Line = Added | Claimed | Done


class JournalFloor:
    def __init__(self, directory: Path) -> None:
        path = directory / "floor.jsonl"
        self._directory = directory
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        self._read_to = 0
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Line).decode
        self._jobs: dict[str, Job] = {}
        self._pending: list[tuple[int, int, str]] = []
        self._taken: set[str] = set()
        self._number = 0
        self._bell: Bell | None = None

    def prepare(self, new: Sequence[NewJob]) -> list[Job]:
        return [transitions.added(item, clock.now(), 0) for item in new]

    def add(self, prepared: Sequence[Job]) -> None:
        with self._locked():
            self._write([Added(job) for job in prepared])

    def exchange(self, held: Sequence[Job], limit: int) -> list[Job]:
        now = clock.now()
        with self._locked():
            lines: list[Line] = [Done(job.queue_id, now) for job in held]
            claimed = self._next(limit)
            until = now + _LEASE
            lines += [Claimed(job.queue_id, "bench", until) for job in claimed]
            self._write(lines)
        return claimed

    def settle(self, held: Sequence[Job]) -> None:
        now = clock.now()
        with self._locked():
            self._write([Done(job.queue_id, now) for job in held])

    def wait(self, timeout: float) -> None:
        if self._bell is None:
            # What was written before is not waited for: the caller looks once more first.
            self._bell = Bell(self._directory, only="floor.jsonl")
        else:
            self._bell.wait(timeout)

    def close(self) -> None:
        os.close(self._file)
        if self._bell is not None:
            self._bell.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._read_tail()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read_tail(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._read_to:
            return
        for line in os.pread(self._file, size - self._read_to, self._read_to).splitlines():
            self._apply(self._decode(line))
        self._read_to = size

    def _write(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        data = b"\n".join([self._encode(line) for line in lines]) + b"\n"
        self._read_to += os.write(self._file, data)
        os.fdatasync(self._file)
        for line in lines:
            self._apply(line)

    def _apply(self, line: Line) -> None:
        if isinstance(line, Added):
            job = line.job
            self._jobs[job.queue_id] = job
            self._number += 1
            heappush(self._pending, (-job.priority, self._number, job.queue_id))
        elif isinstance(line, Claimed):
            self._taken.add(line.queue_id)
        else:
            del self._jobs[line.queue_id]
            self._taken.discard(line.queue_id)

    def _next(self, limit: int) -> list[Job]:
        found: list[Job] = []
        while self._pending and len(found) < limit:
            queue_id = heappop(self._pending)[2]
            # Another process may have taken or even ended it.
            if queue_id in self._jobs and queue_id not in self._taken:
                found.append(self._jobs[queue_id])
        return found
