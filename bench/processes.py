"""Processes that are measured: what a whole tree of them has used, and its end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def tree(root: int) -> list[int]:
    """A process and all that came from it; those that have ended are not in it."""
    found = [root]
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_seconds(root: int) -> float:
    """What the processes of the tree that live have used so far; from the scheduler, in nanoseconds."""
    return sum(_nanoseconds(pid) for pid in tree(root)) / 1e9


def kill_tree(root: int) -> None:
    # Stopped first, one after the other from the root: what stands still starts no others meanwhile.
    stopped: list[int] = []
    while found := [pid for pid in tree(root) if pid not in stopped]:
        _signal(found[0], signal.SIGSTOP)
        stopped.append(found[0])
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _nanoseconds(pid: int) -> int:
    used = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            used += int((task / "schedstat").read_text().split()[0])
    return used
