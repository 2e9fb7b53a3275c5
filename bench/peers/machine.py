"""The machine and the versions a run was made with; nothing that names the host."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, kw_only=True):
    date: str
    system: str
    cores: int
    memory_gb: int
    python: str
    servers: dict[str, str]
    busy: float
    """Processes that wanted a core, on average over the last quarter of an hour, over the cores there are."""

    def line(self) -> str:
        servers = ", ".join(f"{name} {version}" for name, version in self.servers.items())
        return (
            f"{self.date}, {self.system}, {self.cores} cores, {self.memory_gb} GB, "
            f"Python {self.python}, {servers}"
        )


def described() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = os.cpu_count() or 1
    return Machine(
        date=datetime.now(UTC).date().isoformat(),
        system=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])} {platform.machine()}",
        cores=cores,
        memory_gb=round(memory / 2**30),
        python=platform.python_version(),
        servers={"SQLite": sqlite3.sqlite_version} | _servers(),
        busy=os.getloadavg()[2] / cores,
    )


def _servers() -> dict[str, str]:
    from tests.servers import postgres, redis

    programs = {"PostgreSQL": postgres.packaged_programs() / "postgres", "Redis": redis.BINARY}
    found = {}
    for name, program in programs.items():
        with suppress(OSError):
            found[name] = _version(program)
    return found


def _version(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number.group() if number else ""
