"""An import that is killed after some of its transactions: python -m tests.legacy.killed_import."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from penstock import assembly, config
from penstock.legacy.importer import ImportOptions


def dies(method: Any, before: list[int], *, after: bool) -> Any:
    """Count the calls of a method down, and die at the last one, before it or after it."""

    def called(*arguments: Any, **more: Any) -> Any:
        before[0] -= 1
        if before[0] <= 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = method(*arguments, **more)
        if before[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return called


def main(url: str, state: str, kind: str, source: str, where: str, calls: str) -> None:
    made = assembly.Assembly(config.load({}, url=url, state_dir=state))
    left = [int(calls)]
    queue = made.queue
    queue.restore = dies(queue.restore, left, after=where == "after restore")  # type: ignore[method-assign]
    if where == "after record":
        left[0] = 1_000_000
        ledger = type(made.catalog.imports)
        recorded = [int(calls)]
        ledger.record_imports = dies(ledger.record_imports, recorded, after=True)  # type: ignore[method-assign]
    made.imports.run(kind, source, ImportOptions())


if __name__ == "__main__":
    main(*sys.argv[1:])
