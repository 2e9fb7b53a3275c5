"""Audit log for people: one line per transaction, never read back."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock.queue.jsonl.records import Record
from penstock.queue.rules.pauses import Pause, PauseState

ROTATE_AT = 10 * 1024 * 1024
CHECK_EVERY = 64
"""Lines between two checks of the file: rotation may be due, or another process has rotated it."""


class Audit:
    """The log file. Written under the journal's lock, so lines are in order and rotation has one writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._lines = 0

    def record(self, record: Record) -> None:
        # The transaction is durable already. An error here would make the caller repeat it.
        with suppress(OSError):
            if self._lines % CHECK_EVERY == 0:
                self._open()
            self._lines += 1
            os.write(self._fd, describe(record).encode(errors="replace"))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._lines = 0

    def _open(self) -> None:
        self.close()
        with suppress(FileNotFoundError):
            if self._path.stat().st_size >= ROTATE_AT:
                self._path.rename(self._path.with_name(self._path.name + ".1"))
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def describe(record: Record) -> str:
    """Format a record: ``2026-01-01T12:00:00.000+00:00 claim by w1: 100 in_progress, job_0 … job_99``."""
    ids = [job.queue_id for job in record.new]
    became = {"added": len(ids)} if ids else {}
    for group, changes in record.changed:
        ids += group
        status = changes.get("status", "updated")
        became[status] = became.get(status, 0) + len(group)
    if record.gone:
        ids += record.gone
        became["removed"] = len(record.gone)
    worker = _worker(record)
    line = f"{record.at.isoformat(timespec='milliseconds')} {record.do}" + (f" by {worker}" if worker else "")
    if record.paused is not None:
        named = [f"{'/'.join(pause.order)}{_phase(pause)}" for pause in record.paused]
        line += f": paused {', '.join(named) or 'nothing'}"
    if ids:
        counts = ", ".join([f"{number} {what}" for what, number in became.items()])
        line += f": {counts}, {ids[0]}" + (f" … {ids[-1]}" if len(ids) > 1 else "")
    return line + "\n"


def _phase(pause: Pause) -> str:
    return "" if pause.phase is PauseState.PAUSED else f" ({pause.phase})"


def _worker(record: Record) -> str | None:
    if record.worker is not None:
        return record.worker.worker_id
    named = (changes["worker_id"] for _, changes in record.changed if changes.get("worker_id"))
    return next(named, None)
