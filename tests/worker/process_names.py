"""Names of processes that stay unique when the kernel assigns a process id again."""

from __future__ import annotations

from pathlib import Path


def process_name(pid: int | str = "self") -> str:
    """Process id and start, in ticks since the boot; an empty text for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return f"{text.split(maxsplit=1)[0]}.{text.rpartition(')')[2].split()[19]}"
