"""Stores that outlive a run: a measurement of many minutes is made in pieces.

``KeptStore`` opens the store of a directory. A server is started for it, and stopped at the end of the piece;
its files stay.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.capacity.process_memory import disk_mb, tree_mb
from bench.processes import cpu_seconds
from penstock import config
from tests.servers.postgres import PostgresServer
from tests.servers.redis import Server

ENGINES = ("sqlite", "postgres", "redis")
POSTGRES_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "1000"}
REDIS_SETTINGS = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
NEVER = 1_000_000_000


class KeptStore(msgspec.Struct, frozen=True, kw_only=True):
    """An open store. ``server``: the first process of its server; 0 without one."""

    engine: str
    directory: Path
    url: str
    server: int = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PENSTOCK_URL": self.url,
            "PENSTOCK_STATE": str(self.directory / "state"),
            # An index of approximate neighbours is an optional part, and takes minutes to build.
            "PENSTOCK_USEARCH_FROM": str(NEVER),
        }

    def settings(self) -> config.Settings:
        return config.load(self.environment)

    def server_cpu_s(self) -> float:
        return cpu_seconds(self.server, ended=True) if self.server else 0.0

    def server_mb(self) -> float:
        return tree_mb(self.server) if self.server else 0.0

    def disk_mb(self) -> float:
        return disk_mb(self.directory / "data")

    def state_mb(self) -> float:
        return disk_mb(self.directory / "state")


@contextmanager
def kept_store(engine: str, directory: Path, **settings: str) -> Iterator[KeptStore]:
    """Open the store of a directory; a new directory is a new store. ``settings``: of PostgreSQL."""
    if threading.current_thread() is threading.main_thread():
        # A signal to end also ends the servers and workers of a measurement.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    opened = {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}[engine]
    with opened(data, settings) as (url, server):
        yield KeptStore(engine=engine, directory=directory, url=url, server=server)


@contextmanager
def _sqlite(data: Path, settings: dict[str, str]) -> Iterator[tuple[str, int]]:
    del settings
    yield f"sqlite:///{data}/penstock.db", 0


@contextmanager
def _postgres(data: Path, settings: dict[str, str]) -> Iterator[tuple[str, int]]:
    # The user of the server has to get there, also below a private temporary directory.
    data.parent.chmod(0o755)
    server = PostgresServer(data)
    if not (data / "data").exists():
        server.create()
    server.start(None, **POSTGRES_SETTINGS | settings)
    try:
        yield server.url(), int((data / "data" / "postmaster.pid").read_text().split()[0])
    finally:
        server.stop("fast")


@contextmanager
def _redis(data: Path, settings: dict[str, str]) -> Iterator[tuple[str, int]]:
    del settings
    server = Server(data, *REDIS_SETTINGS)
    server.start()
    assert server.process is not None
    try:
        yield f"{server.url}/0?name=capacity", server.process.pid
    finally:
        server.process.terminate()
        server.process.wait()
