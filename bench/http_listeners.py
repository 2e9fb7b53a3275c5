"""CPU of the workers for each file, with and without event streams: ``python -m bench.http_listeners``.

The same folders are indexed again and again, in turns: without listeners, with them, without … Medians of the
turns are compared: the CPU time of the worker processes, which other load changes least, and the time by the
clock, which says something on a free machine only.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench.http_processes import Connection, Served, children, cpu_seconds, penstock_server, state_folder
from bench.http_reads import FILES, make_files


class Listeners(threading.Thread):
    """Open streams of ``/events``, read by one thread as they come."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__()
        host, _, port = address.partition(":")
        request = f"GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_connection((host, int(port))) for _ in range(number)]
        for one in self._sockets:
            one.sendall(request)
            self._selector.register(one, selectors.EVENT_READ)
        self.stopped = threading.Event()
        self.begun: set[int] = set()
        self.received = 0
        self.ended = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            for key, _ in self._selector.select(0.2):
                assert isinstance(key.fileobj, socket.socket)
                part = key.fileobj.recv(65_536)
                self.received += len(part)
                if b"data:" in part:
                    self.begun.add(key.fd)
                if not part:
                    self.ended += 1
                    self._selector.unregister(key.fileobj)

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until every stream has sent its first state."""
        until = time.monotonic() + seconds
        while len(self.begun) < len(self._sockets) and time.monotonic() < until:
            time.sleep(0.05)

    def close(self) -> None:
        self.stopped.set()
        self.join()
        for one in self._sockets:
            one.close()
        self._selector.close()


def workers_cpu(served: Served) -> float:
    """CPU time of the worker's processes; the server itself does not count."""
    return sum(cpu_seconds(pid) for pid in children(served.process.pid))


class Run(NamedTuple):
    """One forced index of the folders: milliseconds for each file, of the workers' CPU and by the clock."""

    cpu: float
    clock: float


def measured(served: Served, connection: Connection, folders: list[Path]) -> Run:
    """Index the folders again."""
    before, began = workers_cpu(served), time.perf_counter()
    for folder in folders:
        job = connection.json("POST", "/index/?force=true", {"folder_path": str(folder)})["job_id"]
        while connection.json("GET", f"/index/jobs/{job}")["status"] in ("pending", "running"):
            time.sleep(0.1)
    files = FILES * len(folders) / 1_000
    return Run((workers_cpu(served) - before) / files, (time.perf_counter() - began) / files)


def measure(listeners: int, turns: int, *, disk: bool) -> None:
    """Print the medians of both sides."""
    settings = {"PENSTOCK_RECYCLE_AFTER_JOBS": "0"}  # a process that ends would take its CPU time with it
    found: dict[bool, list[Run]] = {False: [], True: []}
    with (
        state_folder(disk=disk) as state,
        penstock_server(state / "served", "--processes", "2", **settings) as served,
    ):
        folders = make_files(state / "served")
        connection = Connection(served.address)
        measured(served, connection, folders)
        received = 0
        for _ in range(turns):
            found[False].append(measured(served, connection, folders))
            opened = Listeners(served.address, listeners)
            opened.start()
            opened.wait()
            found[True].append(measured(served, connection, folders))
            opened.close()
            received += opened.received
            if opened.ended:
                print(f"{opened.ended} of {listeners} streams ended early")
        connection.close()
    medians: dict[bool, Run] = {}
    for beside, runs in found.items():
        median = medians[beside] = Run(*(statistics.median(column) for column in zip(*runs, strict=True)))
        print(
            f"{listeners if beside else 'no':>5} listeners  {median.cpu:6.2f} ms CPU of the workers a file,"
            f" {median.clock:6.2f} ms by the clock  {[round(one.cpu, 2) for one in runs]}"
            f" {[round(one.clock, 2) for one in runs]}"
        )
    cpu, clock = (after / before for before, after in zip(medians[False], medians[True], strict=True))
    per_listener = received / max(turns * listeners, 1)
    print(f"ratios {cpu:.3f} and {clock:.3f}; {per_listener:,.0f} bytes for a listener in a turn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listeners", type=int, default=1_000, help="open streams, at most 1,400")
    parser.add_argument("--turns", type=int, default=5, help="runs of each side, at most 20")
    parser.add_argument("--disk", action="store_true", help="keep the state on the disk")
    given = parser.parse_args()
    wanted = min(given.listeners, 1_400)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(wanted * 2 + 500, 1_024), most), most))
    measure(wanted, min(given.turns, 20), disk=given.disk)


if __name__ == "__main__":
    main()
