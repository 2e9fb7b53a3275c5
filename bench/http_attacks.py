"""Latency for one tenant while another one takes all it can get: ``python -m bench.http_attacks``.

Fifty clients of a tenant search, list and upload at a fixed pace, in turns alone and beside the attacks of
one other key, which come from a process of their own: idle connections without a key, event streams, bodies
and uploads that drip, sign-ins, and pictures of many pages at any width. What is refused is begun again.
All of them share the machine, so the attacker's CPU time counts as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.http_processes import Connection, Served, penstock_server, state_folder
from bench.http_reads import percentile
from tests.pipeline.sample_documents import pdf

CLIENTS, PACE_S = 50, 0.5
PAGES = 200
AGAIN_S = 2.0
"""Pause of an attacker's connection after a refusal, half of it to one and a half."""
IDLE, STREAMS, BODIES, UPLOADS, SIGN_INS, DRAWINGS = 2_000, 400, 220, 64, 8, 16
"""Connections of each attack: more than the server gives, and as many as one machine can open."""
Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# The attacks, in a process of their own.


class Attacks:
    """Everything that one key, and one machine without a key, can hold open. Counts what came back."""

    def __init__(self, address: str, key: str, source_id: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._address = address
        self._key = key
        self._source_id = source_id
        self.statuses: Counter[str] = Counter()

    async def run(self, only: str | None) -> None:
        """Attack until the process is ended."""
        kinds: dict[str, tuple[int, Attack]] = {
            "idle": (IDLE, self._idle),
            "streams": (STREAMS, self._stream),
            "bodies": (BODIES, self._body),
            "uploads": (UPLOADS, self._upload),
            "sign-ins": (SIGN_INS, self._sign_in),
            "drawings": (DRAWINGS, self._draw),
        }
        chosen = {name: kind for name, kind in kinds.items() if only in (None, name)}
        tasks = [
            asyncio.create_task(self._again(name, attack))
            for name, (number, attack) in chosen.items()
            for _ in range(number)
        ]
        await asyncio.gather(*tasks)

    async def _again(self, name: str, attack: Attack) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    await attack(reader, writer)
                finally:
                    writer.close()
            self.statuses[name] += 1
            await asyncio.sleep(AGAIN_S * (0.5 + random.random()))

    def _head(self, method: str, target: str, size: int = 0, *, key: bool = True) -> bytes:
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._address}\r\nContent-Type: application/json\r\n"
        if key:
            head += f"Authorization: Bearer {self._key}\r\n"
        return f"{head}Content-Length: {size}\r\n\r\n".encode()

    async def _idle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if random.random() < 0.5:
            writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        await reader.read()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head("GET", "/events"))
        while await reader.read(65_536):
            pass

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send a byte a second, until the server answers."""
        answer = asyncio.create_task(reader.read(1))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait([answer], timeout=1)

    async def _body(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head("POST", "/search", 1_000))
        await self._drip(reader, writer)

    async def _upload(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head("POST", f"/files?name=drip-{random.random()}.md", 1_000_000))
        await self._drip(reader, writer)

    async def _sign_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"key": self._key}).encode()
        writer.write(self._head("POST", "/session", len(body), key=False) + body)
        await reader.read(1)

    async def _draw(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        page, width = random.randint(1, PAGES), random.randint(16, 2_000)
        target = f"/documents/{self._source_id}/pages/{page}/image?width={width}"
        writer.write(self._head("GET", target))
        await reader.read(65_536)


# The tenant that is measured.


class Client(threading.Thread):
    """One client of the other tenant: asks in turn, at a fixed pace, and counts milliseconds."""

    def __init__(self, address: str, key: str, until: float) -> None:
        super().__init__()
        self._address = address
        self._key = key
        self._until = until
        self.latencies: list[float] = []
        self.refused: Counter[str] = Counter()

    def run(self) -> None:
        time.sleep(random.random() * PACE_S)
        connection: KeyedConnection | None = None
        number = 0
        while time.monotonic() < self._until:
            number += 1
            method, target, body = self._request(number)
            began = time.perf_counter()
            try:
                connection = connection or KeyedConnection(self._address, self._key)
                status, answer = connection.ask(method, target, body)
                if status >= 300:
                    self.refused[f"{target}: {status} {answer[:150]!r}"] += 1
            except OSError as error:
                self.refused[f"{target}: {type(error).__name__}"] += 1
                connection = None
            took = time.perf_counter() - began
            self.latencies.append(took * 1_000)
            time.sleep(max(PACE_S - took, 0.0))

    def _request(self, number: int) -> tuple[str, str, bytes]:
        asked: list[tuple[str, str, bytes]] = [
            ("POST", "/search", b'{"query": "mill water", "limit": 3}'),
            ("GET", "/index/jobs/?limit=10", b""),
            ("GET", "/health/status", b""),
            ("POST", f"/files?name=note-{self.ident}.md", b"The mill takes in water."),
        ]
        return asked[number % len(asked)]


class KeyedConnection(Connection):
    """A kept connection that sends a key."""

    def __init__(self, address: str, key: str) -> None:
        super().__init__(address)
        self._address = f"{address}\r\nAuthorization: Bearer {key}"


def measured(served: Served, key: str, seconds: float) -> list[Client]:
    """Fifty clients, for a time."""
    clients = [Client(served.address, key, time.monotonic() + seconds) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return clients


@contextmanager
def attacked(served: Served, key: str, source_id: str, only: str | None) -> Iterator[None]:
    """The attacks, in another process."""
    command = [sys.executable, "-m", "bench.http_attacks", "--attack", served.address, key, source_id]
    process = subprocess.Popen(command + (["--only", only] if only else []))
    try:
        time.sleep(3.0)  # the connections are opened
        yield
    finally:
        process.terminate()
        process.wait()


def made_key(folder: Path, name: str, scope: str, *tenants: str) -> str:
    """A new key of the server with its state in a folder."""
    command = [sys.executable, "-m", "penstock", "--state", str(folder / "state"), "--json", "keys", "create"]
    options = ["--scope", scope, *(part for tenant in tenants for part in ("--tenant", tenant))]
    done = subprocess.run([*command, name, *options], check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["key"])


def indexed(served: Served, folder: Path, key: str) -> str:
    """Index a PDF with many pages for the attacker, and a note for the others; the id of the PDF."""
    (folder / "pages.pdf").write_bytes(pdf(*(f"Page {number} of the mill." for number in range(PAGES))))
    connection = KeyedConnection(served.address, key)
    made: dict[str, Any] = connection.json(
        "POST", "/index/", {"folder_path": str(folder / "pages.pdf"), "tenant_id": "greedy"}
    )
    while connection.json("GET", f"/index/jobs/{made['job_id']}")["status"] in ("pending", "running"):
        time.sleep(0.1)
    (found,) = connection.json("GET", "/documents?tenant_id=greedy")["documents"]
    connection.close()
    return str(found["source_id"])


def measure(seconds: float, turns: int, only: str | None, *, disk: bool) -> None:
    """Print the latencies of both sides."""
    found: dict[bool, list[list[float]]] = defaultdict(list)
    refused: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    # Fifty clients at this pace send as much as the default rate.
    settings = {"PENSTOCK_RATE_LIMIT": "12000", "PENSTOCK_MAX_QUEUE": "1000000"}
    with state_folder(disk=disk) as state:
        folder = state / "served"
        folder.mkdir()
        # Before the start: every request needs one of them from then on.
        admin = made_key(folder, "admin", "admin")
        greedy = made_key(folder, "greedy", "write", "greedy")
        other = made_key(folder, "other", "write", "other")
        with penstock_server(folder, "--processes", "1", **settings) as served:
            source_id = indexed(served, folder, admin)
            measured(served, other, 3.0)
            for _ in range(turns):
                for beside in (False, True):
                    if beside:
                        with attacked(served, greedy, source_id, only):
                            clients = measured(served, other, seconds)
                    else:
                        clients = measured(served, other, seconds)
                    found[beside].append([each for client in clients for each in client.latencies])
                    for client in clients:
                        refused[beside].update(client.refused)
                time.sleep(2.0)
    medians: dict[bool, float] = {}
    for beside, runs in found.items():
        p99 = [percentile(run, 0.99) for run in runs]
        medians[beside] = statistics.median(p99)
        values = [value for run in runs for value in run]
        print(
            f"{'with' if beside else 'no':>4} attacks  {len(values):6,} requests, p50 "
            f"{percentile(values, 0.5):.1f} ms, p99 by turn {[round(one, 1) for one in p99]}, "
            f"max {max(values):.0f} ms, {sum(refused[beside].values())} not answered"
        )
        for text, number in refused[beside].most_common(5):
            print(f"      {number} x {text}")
    print(
        f"p99 with / without {medians[True] / medians[False]:.2f} (median of {turns} turns); "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a turn, at most 120")
    parser.add_argument("--turns", type=int, default=3, help="turns of each side, at most 10")
    parser.add_argument("--only", help="one of the attacks: idle, streams, bodies, uploads, …")
    parser.add_argument("--disk", action="store_true", help="keep the state on the disk")
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8_192, most), most))
    if given.attack:
        asyncio.run(Attacks(*given.attack).run(given.only))
    else:
        measure(min(given.seconds, 120.0), min(given.turns, 10), given.only, disk=given.disk)


if __name__ == "__main__":
    main()
