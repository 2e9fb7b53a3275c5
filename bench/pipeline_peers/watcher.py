"""``watcher.py COUNTER KILL_AT COMMAND...``: run a command, and print what all its processes have used.

In a process of its own, which waits for nothing else: what the system counts of its children is this command.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.processes import kill_tree, tree

LOOK_S = 0.04
KILL_LOOK_S = 0.002
SET_CHILD_SUBREAPER = 36


def memory_mb(root: int) -> float:
    """Memory of a tree of processes; each shared page is divided among those that have it."""
    total = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def texts(counter: Path) -> int:
    try:
        return counter.stat().st_size
    except FileNotFoundError:
        return 0


def watch(running: subprocess.Popen[bytes], counter: Path, kill_at: int) -> float:
    """Wait for the end of a command, or end it; return the most memory seen."""
    most = 0.0
    while running.poll() is None:
        if kill_at and texts(counter) >= kill_at:
            kill_tree(running.pid)
            break
        if kill_at:
            time.sleep(KILL_LOOK_S)
        else:
            most = max(most, memory_mb(running.pid))
            time.sleep(LOOK_S)
    return most


def main() -> None:
    counter, kill_at, *command = sys.argv[1:]
    # What the command leaves behind becomes a child of this process, to be waited for and counted as well.
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        most = watch(running, Path(counter), int(kill_at))
        code = running.wait()
        try:
            while True:
                os.wait()
        except ChildProcessError:
            pass
        wall_s = time.monotonic() - began
        output.seek(0)
        said = output.read().decode(errors="replace")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall_s,
        "memory_mb": max(most, used.ru_maxrss / 1024),
        "embedded": texts(Path(counter)),
        "output": said,
    }
    print(json.dumps([code, spent]))


if __name__ == "__main__":
    main()
