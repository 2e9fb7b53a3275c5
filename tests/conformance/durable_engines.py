"""Durable engines by name, for tests with several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.queue.protocol import Queue

ROOT = Path(__file__).resolve().parents[2]
MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A place where a sync costs nothing, for what need not outlive the machine; None is the usual place."""


def _sqlite(place: Path) -> Queue:
    from penstock.queue.sqlite.queue import SqliteQueue

    return SqliteQueue(place / "queue.db", synchronous="FULL", busy_timeout_s=60)


def _jsonl(place: Path) -> Queue:
    from penstock.queue.jsonl.queue import JsonlQueue

    return JsonlQueue(place)


def _postgres(place: Path) -> Queue:
    from penstock.queue.postgres.queue import PostgresQueue
    from tests.servers import postgres

    return PostgresQueue(postgres.store_at(place))


def _redis(place: Path) -> Queue:
    from penstock.queue.redis.queue import RedisQueue
    from tests.servers.redis import queue_url

    return RedisQueue(queue_url(place))


DURABLE: dict[str, Callable[[Path], Queue]] = {
    "sqlite": _sqlite,
    "jsonl": _jsonl,
    "postgres": _postgres,
    "redis": _redis,
}


def opened(engine: str, place: Path) -> Queue:
    place.mkdir(parents=True, exist_ok=True)
    queue = DURABLE[engine](place)
    queue.migrate()
    return queue


def given_back(place: Path) -> None:
    """Give the server's space for this test back to the next."""
    if (place / "postgres.json").exists():
        from tests.servers import postgres

        postgres.give_back(place)


def started(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start ``tests.conformance.<module>`` as a process with pipes."""
    command = [sys.executable, "-m", f"tests.conformance.{module}", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, **pipes)
