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


def cpu_seconds(root: int, *, ended: bool = False) -> float:
    """What the processes of the tree that live have used so far; from the scheduler, in nanoseconds.

    ``ended``: with those that ended and were waited for, in hundredths of a second.
    """
    pids = tree(root)
    used = sum(_nanoseconds(pid) for pid in pids) / 1e9
    return used + sum(_ticks_of_ended(pid) for pid in pids) / os.sysconf("SC_CLK_TCK") if ended else used


def _ticks_of_ended(pid: int) -> int:
    with suppress(OSError):
        # After the name in parentheses, which may hold blanks: user and system time of ended children.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[13]) + int(fields[14])
    return 0


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
