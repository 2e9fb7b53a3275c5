"""What a dead child's functions started and left running: found by its process group, killed if surely ours.

A process number is not given away while a group bears it. So what bears the number of a child's group is that
group, unless all of it ended and the number came round to somebody else. Whoever kills it must rule that out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessInfo(NamedTuple):
    """A process as the kernel knows it. ``started`` is counted from the boot, in ticks."""

    pid: int
    group: int
    session: int
    started: int


class GroupLeader(NamedTuple):
    """A child as its supervisor wrote it down: which process it was, of which session, boot and container."""

    pid: int
    started: int
    session: int
    realm: str

    @classmethod
    def of(cls, pid: int) -> GroupLeader | None:
        """None where there is no /proc to read it from."""
        process, realm = _process(pid), _realm()
        return cls(pid, process.started, process.session, realm) if process and realm else None

    @classmethod
    def parse(cls, fields: list[str]) -> GroupLeader | None:
        """From what ``written`` made; None when that is not all there."""
        try:
            pid, started, session, realm = fields
            return cls(int(pid), int(started), int(session), realm)
        except ValueError:
            return None

    def written(self) -> str:
        return " ".join(map(str, self))


def kill_left_behind(leader: GroupLeader) -> int:
    """Kill what is left of the group of a dead supervisor's child; answers how many processes that were."""
    if leader.pid <= 1 or leader.realm != _realm():
        return 0
    members = [process for process in _processes() if process.group == leader.pid]
    if not members or not all(_belongs(process, leader) for process in members):
        return 0
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGKILL)
        return len(members)
    return 0


def _belongs(process: ProcessInfo, leader: GroupLeader) -> bool:
    if process.pid == leader.pid:
        return process.started == leader.started
    # Whoever took the number over most likely belongs to another session, as another service or terminal.
    return process.session == leader.session and process.started >= leader.started


def _processes() -> Iterator[ProcessInfo]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            process = _process(int(entry.name))
            if process is not None:
                yield process


def _process(pid: int) -> ProcessInfo | None:
    try:
        # The name, in parentheses, may hold anything, blanks and parentheses too.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else ProcessInfo(pid, int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _realm() -> str:
    """This boot and this container: elsewhere the same numbers are other processes."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
