"""The journal's story for people: one line a transaction, never read back."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from penstock.queue.records import Record

ROTATE_AT = 10 * 1024 * 1024


class Audit:
    """Written under the journal's lock, so lines stand in order and rotation meets no other writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._inode = 0

    def note(self, record: Record) -> None:
        # What the line tells has happened and is durable. A caller told of an error here would do it again.
        with suppress(OSError):
            self._open()
            os.write(self._fd, describe(record).encode(errors="replace"))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        """Make the descriptor that of the file at the path: another process may have rotated it."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - on every write
        except FileNotFoundError:
            self.close()
        else:
            if status.st_size >= ROTATE_AT:
                self._path.rename(self._path.with_name(self._path.name + ".1"))
                self.close()
            elif status.st_ino != self._inode:
                self.close()
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._inode = os.fstat(self._fd).st_ino


def describe(record: Record) -> str:
    """``2026-01-01T12:00:00.000+00:00 claim 100 jobs by w1, in_progress 100: job_0 … job_99``."""
    parts = [record.at.isoformat(timespec="milliseconds"), record.do]
    ids = [job.queue_id for job in record.new]
    became: Counter[str] = Counter(added=len(ids)) if ids else Counter()
    for group, changes in record.changed:
        ids += group
        became[changes.get("status", "updated")] += len(group)
    ids += record.gone
    if record.gone:
        became["removed"] += len(record.gone)
    if ids:
        parts.append(f"{len(ids)} jobs" if len(ids) > 1 else "1 job")
    worker = _worker(record)
    if worker:
        parts.append(f"by {worker}")
    if record.paused is not None:
        parts.append(f"paused: {', '.join('/'.join(pair) for pair in record.paused) or 'nothing'}")
    line = " ".join(parts)
    if ids:
        counts = ", ".join(f"{what} {number}" for what, number in became.items())
        line += f", {counts}: {ids[0]}" + (f" … {ids[-1]}" if len(ids) > 1 else "")
    return line + "\n"


def _worker(record: Record) -> str | None:
    if record.worker is not None:
        return record.worker.worker_id
    named = (changes["worker_id"] for _, changes in record.changed if changes.get("worker_id"))
    return next(named, None)
