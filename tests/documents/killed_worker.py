"""A worker in separate processes, killed at a named point: ``python -m tests.documents.killed_worker``.

Arguments: the point (or ``-``), the settings as JSON, and the last job. Points are patched into this
process and inherited by its forked children.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.assembly import Assembly
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.values import OutboxEntryKind, Outcome
from penstock.pipeline.pipeline import Pipeline
from penstock.worker.lanes import DocumentNotifier
from tests.worker.worker_processes import ROOT, children_of

_OLDEST = os.getpid()


def die() -> None:
    """Kill all processes at once, like a power cut."""
    for pid in [_OLDEST, *children_of(_OLDEST)]:
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _after_store() -> None:
    """Die when the generation is stored, before the job waits."""
    store = SqlCatalog.store

    def stored(self: SqlCatalog, *given: Any, **more: Any) -> Any:
        answers = store(self, *given, **more)
        if any(answer.outcome is Outcome.BUILDING for answer in answers):
            die()
        return answers

    SqlCatalog.store = stored  # type: ignore[method-assign]


def _before_telling() -> None:
    """Die when the generation is published, before the job is notified."""
    process_outbox = DocumentNotifier.process_outbox

    def told(self: DocumentNotifier) -> bool:
        if self._catalog.outbox(OutboxEntryKind.JOB):
            die()
        return process_outbox(self)

    DocumentNotifier.process_outbox = told  # type: ignore[method-assign]


def _before_clearing() -> None:
    """Die when the job is notified, before the outbox entry is cleared."""
    clear = SqlCatalog.clear

    def cleared(self: SqlCatalog, entry_ids: Any, **more: Any) -> bool:
        if {entry.entry_id for entry in self.outbox(OutboxEntryKind.JOB)} & set(entry_ids):
            die()
        return clear(self, entry_ids, **more)

    SqlCatalog.clear = cleared  # type: ignore[method-assign]


KILLED_AFTER = 5
"""Pages recognized before the kill."""


def recognitions(state_dir: Path) -> list[int]:
    """Numbers of the pages recognized by workers below, in order."""
    return [int(line.split()[0]) for line in _recorded(state_dir)]


def recognizers(state_dir: Path) -> list[int]:
    """The process of each recognition."""
    return [int(line.split()[1]) for line in _recorded(state_dir)]


def _recorded(state_dir: Path) -> list[str]:
    counted = state_dir / "recognized"
    return counted.read_text().splitlines() if counted.exists() else []


def _count_recognitions(*, until: int = 1_000) -> None:
    """Record each recognized page, and die before the last one is settled."""
    recognize = Pipeline.recognize
    state_dir = Path(msgspec.json.decode(sys.argv[2])["state_dir"])

    def recognized(self: Pipeline, content: Any, sizes: Any, page: int) -> Any:
        found = recognize(self, content, sizes, page)
        with (state_dir / "recognized").open("a") as counted:
            counted.write(f"{page} {os.getpid()}\n")
        if len(recognitions(state_dir)) >= until:
            die()
        return found

    Pipeline.recognize = recognized  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "recognized, not settled": lambda: _count_recognitions(until=KILLED_AFTER),
    "recognitions counted": _count_recognitions,
    "stored, not waiting": _after_store,
    "published, not told": _before_telling,
    "told, not cleared": _before_clearing,
    "-": lambda: None,
}


def served(
    settings: config.Settings, job_id: str, point: str = "-", timeout: float = 60.0, *, processes: int = 1
) -> int:
    """Run a worker until the end of the job or the named point; returns the exit code."""
    values = msgspec.json.encode(config.portable_values(settings), enc_hook=str).decode()
    command = [sys.executable, "-m", "tests.documents.killed_worker", point, values, job_id, str(processes)]
    return subprocess.run(command, cwd=ROOT, timeout=timeout, check=False).returncode


def main() -> None:
    point, values, job_id, processes = sys.argv[1:]
    POINTS[point]()
    given = msgspec.json.decode(values)
    settings = config.load({}, **given | {"state_dir": Path(given["state_dir"])})
    Assembly(settings).worker(processes=int(processes), until_job=job_id, start_method="fork").run()


if __name__ == "__main__":
    main()
