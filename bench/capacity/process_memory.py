"""Memory of processes: what they share is divided among them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from bench.processes import tree


def tree_mb(root: int) -> float:
    """Memory of a process and its descendants in MB; 0 where it may not be read."""
    return sum(_kb(pid) for pid in tree(root)) / 1024


def _kb(pid: int) -> int:
    with suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def disk_mb(directory: Path) -> float:
    """Blocks of the files below a directory in MB."""
    used = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                used += path.stat().st_blocks * 512
    return used / 2**20
