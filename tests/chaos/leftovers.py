"""Leftovers of a stopped deployment: processes, temporary files, shared memory, files of its state."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PATIENCE_S = 120.0
"""Children of a supervisor that was killed end by themselves, as soon as they run."""
KEPT = re.compile(
    r"""
    queue\.db(-wal|-shm)? | catalog\.db(-wal|-shm)?
    | queue/jobs/(index_queue\.(jsonl|snapshot|log(\.\d+)?)|\.queue\.lock)
    | server\.json | audit\.jsonl | history\.json
    | vectors/[^/]+/[^/]+
    | workers/[0-9a-f]+\.upkeep | workers/[0-9a-f]+/[a-z-]+\.lock
    | (uploads|fetched|images)/[^/]*
    """,
    re.VERBOSE,
)
"""Files that belong in a state directory while nothing runs."""


def processes(mark: str, patience_s: float = PATIENCE_S) -> list[str]:
    """Return the processes that were started with a variable, once they had time to end."""
    deadline = time.monotonic() + patience_s
    while (found := [*_marked(mark)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _marked(mark: str) -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*"):
        # Of another user, or gone by now. A process that ended has no environment.
        with suppress(OSError):
            if path.name != str(os.getpid()) and mark.encode() in (path / "environ").read_bytes().split(
                b"\0"
            ):
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield f"process {path.name} ({words.strip()[:100]}) still runs"


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def unexpected(names: Iterable[str]) -> list[str]:
    """Return the files that do not belong in the state directory of a stopped deployment."""
    return [name for name in names if KEPT.fullmatch(name) is None]


def mapped_memory(pids: Iterable[int]) -> set[str]:
    """Names of the shared memory that these processes use."""
    found = set()
    for pid in pids:
        # Gone by now.
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            found |= {
                line.partition(f"{SHARED_MEMORY}/")[2] for line in lines if f" {SHARED_MEMORY}/" in line
            }
    return {name for name in found if not name.endswith("(deleted)")}
