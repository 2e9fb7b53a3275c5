"""Server processes of the HTTP measurements, and connections to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SETTINGS = {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_MAX_QUEUE": "100000"}
MEMORY = Path("/dev/shm")
WAIT_S = 60.0


class Served(NamedTuple):
    """A running server: its process and its address."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def penstock_server(folder: Path, *arguments: str, **settings: str) -> Iterator[Served]:
    """``penstock serve`` for the files of a folder, whose state is beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock", "--state", str(folder / "state"), "--json", "-q", "serve"]
    process = subprocess.Popen(
        [*command, "--port", "0", *arguments],
        env=kept | SETTINGS | settings,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with {process.wait()}")
        text += line
    yield from _until_stopped(Served(process, str(json.loads(text)["url"]).removeprefix("http://")))


@contextmanager
def floor_server(folder: Path) -> Iterator[Served]:
    """``bench.http_floor`` with its database in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.http_floor", str(folder / "floor.db")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield from _until_stopped(Served(process, process.stdout.readline().strip()))


def _until_stopped(served: Served) -> Iterator[Served]:
    try:
        yield served
    finally:
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            served.process.kill()
            served.process.wait()
        if served.process.stdout is not None:
            served.process.stdout.close()


@contextmanager
def state_folder(*, disk: bool) -> Iterator[Path]:
    """A temporary folder, in memory unless the disk is to be measured as well."""
    with tempfile.TemporaryDirectory(dir=None if disk or not MEMORY.is_dir() else MEMORY) as folder:
        yield Path(folder)


class Connection:
    """One kept connection: each request is sent after the answer to the one before."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._address = address
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer, which must have a length."""
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._address}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._received()
        top, _, rest = received.partition(b"\r\n\r\n")
        fields = top.lower().split(b"\r\n")
        length = next(int(one[15:]) for one in fields if one.startswith(b"content-length:"))
        parts = [rest]
        size = len(rest)
        while size < length:
            parts.append(self._received())
            size += len(parts[-1])
        return int(top[9:12]), b"".join(parts)

    def json(self, method: str, target: str, value: object = None) -> Any:
        """The answer as a value; an error if it is a refusal."""
        status, body = self.ask(method, target, b"" if value is None else json.dumps(value).encode())
        if status >= 300:
            raise RuntimeError(f"{method} {target}: {status} {body[:300]!r}")
        return json.loads(body)

    def close(self) -> None:
        self._socket.close()

    def _received(self) -> bytes:
        part = self._socket.recv(65_536)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Processes that a process started, without those below them."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted({int(child) for each in found for child in each.read_text().split()})
