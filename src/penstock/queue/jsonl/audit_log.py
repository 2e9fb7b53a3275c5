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
        try:
            if self._lines % CHECK_EVERY == 0:
                self._open()
            self._lines += 1
            os.write(self._fd, describe(record).encode(errors="replace"))
        except OSError:
            # The transaction is durable already: after an error the caller would repeat it.
            return

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
    line = f"{record.at.isoformat(timespec='milliseconds')} {record.do}"
    worker = _worker(record)
    if worker is not None:
        line += f" by {worker}"
    if record.paused is not None:
        named = [f"{'/'.join(pause.order)}{_phase(pause)}" for pause in record.paused]
        line += f": paused {', '.join(named) or 'nothing'}"
    became, ids = _effects(record)
    if ids:
        counts = ", ".join([f"{number} {what}" for what, number in became.items()])
        line += f": {counts}, {ids[0]}" + (f" … {ids[-1]}" if ids[-1] != ids[0] else "")
    return line + "\n"


def _effects(record: Record) -> tuple[dict[str, int], list[str]]:
    """Count the rows by what became of them, and list the first and the last of each kind."""
    became: dict[str, int] = {}
    ids: list[str] = []
    if record.new:
        became["added"] = len(record.new)
        ids += record.new[0].queue_id, record.new[-1].queue_id
    for group, changes in record.changed:
        status = changes.get("status", "updated")
        became[status] = became.get(status, 0) + len(group)
        ids += group[0], group[-1]
    if record.gone:
        became["removed"] = len(record.gone)
        ids += record.gone[0], record.gone[-1]
    return became, ids


def _phase(pause: Pause) -> str:
    return "" if pause.phase is PauseState.PAUSED else f" ({pause.phase})"


def _worker(record: Record) -> str | None:
    if record.worker is not None:
        return record.worker.worker_id
    for _, changes in record.changed:
        if worker := changes.get("worker_id"):
            return str(worker)
    return None
