"""A gateway process, killed at a named point: ``python -m tests.redis_contract.killed_gateway``.

Arguments: the point (or ``-``), the settings as JSON. Points are patched into this process, which kills
itself there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.database.factory import open_catalog, open_queue
from penstock.redis_contract import contract, rags
from penstock.redis_contract.lists import Lists
from penstock.service.collections import Collections
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs
from tests.worker.worker_processes import ROOT


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: Any, name: str) -> None:
    setattr(owner, name, die)


def _after(owner: Any, name: str) -> None:
    real = getattr(owner, name)

    def called(*given: Any, **more: Any) -> Any:
        real(*given, **more)
        die()

    setattr(owner, name, called)


def _after_some(owner: Any, name: str) -> None:
    real = getattr(owner, name)

    def called(*given: Any, **more: Any) -> Any:
        return die() if real(*given, **more) else 0

    setattr(owner, name, called)


def _between_two() -> None:
    """One message of the batch is acknowledged, the others are not."""
    real = Lists.accept

    def accept(*given: Any, **more: Any) -> bool:
        _before(Lists, "accept")
        return real(*given, **more)

    Lists.accept = accept  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "moved, not added": lambda: _before(Jobs, "submit_many"),
    "added, not acknowledged": lambda: _after(Jobs, "submit_many"),
    "one acknowledged, the others not": _between_two,
    "acknowledged, not mirrored": lambda: _before(Lists, "mirror"),
    "ended, file not moved": lambda: _before(rags, "move"),
    "file moved, not told": lambda: _before(Lists, "finish"),
    "told": lambda: _after(Lists, "finish"),
    "error written, file not moved": lambda: _after(rags, "write_error_file"),
    "-": lambda: None,
}


WAITING_POINTS: dict[str, Callable[[], None]] = {
    "left to another gateway": lambda: _after(Lists, "pass_on"),
    "expired, not refused": lambda: _after_some(Lists, "expire"),
    "record written, not refused": lambda: _after(rags, "write_record_beside"),
    "refused": lambda: _after(Lists, "refuse"),
}
"""Points that only messages pass which wait for their RAG, or wait in vain."""


REINDEX_POINTS: dict[str, Callable[[], None]] = {
    "rest not removed": lambda: _before(Collections, "remove_older"),
    "rest removed, not told": lambda: _after(Collections, "remove_older"),
}
"""Points that only messages with ``reindex`` pass."""


def start_gateway(settings: config.Settings, point: str = "-") -> subprocess.Popen[bytes]:
    values = msgspec.json.encode(config.portable_values(settings), enc_hook=str).decode()
    command = [sys.executable, "-m", "tests.redis_contract.killed_gateway", point, values]
    return subprocess.Popen(command, cwd=ROOT)


def main() -> None:
    point, values = sys.argv[1:]
    (POINTS | WAITING_POINTS | REINDEX_POINTS)[point]()
    given = msgspec.json.decode(values)
    settings = config.load({}, **given | {"state_dir": Path(given["state_dir"])})
    jobs = Jobs(open_queue(settings), settings)
    documents = Documents(open_catalog(settings), jobs, settings)
    contract.make_gateway(settings, jobs, documents).run()


if __name__ == "__main__":
    main()
