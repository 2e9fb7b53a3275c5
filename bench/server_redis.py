"""One Redis server for a run of the benchmarks, shared by both sides and by the processes they start.

It keeps nothing on disk: what is compared is the work, not the disk.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

import redis

from tests.servers.redis import Server

OPTIONS = ("--save", "", "--appendonly", "no")


def queue_url(directory: Path) -> str:
    """A queue of its own for every directory."""
    note = directory.parent / "redis.url"
    if not note.exists():
        server = Server(directory.parent / "redis", *OPTIONS)
        server.start()
        atexit.register(server.kill)
        note.write_text(server.url)
    return f"{note.read_text()}/0?name={directory.name}"


def forget(directory: Path) -> None:
    with _client(directory) as client:
        client.flushall(asynchronous=True)


def cpu_s(directory: Path) -> float:
    with _client(directory) as client:
        used = client.info("cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


def commands(directory: Path) -> int:
    """Commands run since the server started, those inside of scripts counted, the scripts themselves not."""
    with _client(directory) as client:
        statistics = client.info("commandstats")
    return sum(each["calls"] for name, each in statistics.items() if "eval" not in name)


def _client(directory: Path) -> Any:
    return redis.Redis.from_url(queue_url(directory).partition("?")[0])
