"""Requests a second for notes over HTTP, by a live server: ``python -m bench.http_enqueue``.

Senders are threads of another process, each with one connection, so that server and senders have a core each.
The state directory is in memory if it can be: otherwise the commits of the disk are measured. Beside it stand
a bare Starlette server that commits a small row a request, or the row of the queue, in its only thread or in
groups by a second one; a constant of both, and the service without HTTP. Ratios are of CPU times: other work
on the machine changes them less than the clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench.http_processes import (
    SETTINGS,
    Connection,
    Served,
    cpu_seconds,
    floor_server,
    penstock_server,
    state_folder,
)
from penstock import config
from penstock.assembly import Assembly


def send(address: str, route: str, sender: int, number: int) -> None:
    """Send requests over one connection, each after the answer to the one before."""
    connection = Connection(address)
    for each in range(number):
        body = json.dumps({"content": f"note {os.getpid()}-{sender}-{each}"}).encode()
        adds = route in ("/content", "/row", "/group")
        status, answer = connection.ask("POST" if adds else "GET", route, body if adds else b"")
        assert status in (200, 202), answer
    connection.close()


def send_all(address: str, route: str, connections: int, number: int) -> None:
    """Send from so many connections at the same time."""
    threads = [
        threading.Thread(target=send, args=(address, route, sender, number)) for sender in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Measured(NamedTuple):
    """Requests a second, and CPU time for each: of the server and of the senders, in microseconds."""

    rate: float
    cpu: float
    senders: float


def measured(served: Served, route: str, connections: int, number: int) -> Measured:
    """Send from another process, and wait for its end."""
    began, used = time.perf_counter(), cpu_seconds(served.process.pid)
    of_children = os.times().children_user + os.times().children_system
    senders = multiprocessing.Process(target=send_all, args=(served.address, route, connections, number))
    senders.start()
    senders.join()
    total = connections * number
    rate = total / (time.perf_counter() - began)
    sent = os.times().children_user + os.times().children_system - of_children
    cpu = cpu_seconds(served.process.pid) - used
    return Measured(rate, cpu / total * 1e6, sent / total * 1e6)


class Line(NamedTuple):
    """A server, a route, and the number of connections."""

    name: str
    served: Served
    route: str
    connections: int


def shown(line: Line, found: Measured) -> str:
    """A measurement as one line of text."""
    return (
        f"{line.name:8} {line.route:10} {line.connections:3} connections  {found.rate:7,.0f} requests/s  "
        f"{found.cpu:6,.0f} us CPU each, senders {found.senders:5,.0f} us"
    )


def service_alone(state: Path, number: int) -> str:
    """The same notes without HTTP, one thread."""
    assembly = Assembly(config.load(os.environ | SETTINGS, state_dir=state), door="http")
    began, used = time.perf_counter(), time.process_time()
    for each in range(number):
        assembly.documents.note(f"alone {each}")
    rate, cpu = number / (time.perf_counter() - began), (time.process_time() - used) / number * 1e6
    assembly.close()
    return f"{'service':8} {'':10} {'':3}              {rate:7,.0f} notes/s     {cpu:6,.0f} us CPU each"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--number", type=int, default=1_500, help="requests of each connection, at most 20,000"
    )
    parser.add_argument("--turns", type=int, default=3, help="measurements of each line, at most 10")
    parser.add_argument(
        "--disk", action="store_true", help="keep the state on the disk of the temporary folder"
    )
    given = parser.parse_args()
    number = min(given.number, 20_000)
    with (
        state_folder(disk=given.disk) as folder,
        penstock_server(folder / "served", "--no-worker") as served,
        floor_server(folder / "floor") as floor,
    ):
        print(service_alone(folder / "alone", number))
        send_all(served.address, "/content", 2, 100)
        lines = [
            Line("floor", floor, "/constant", 2),
            Line("penstock", served, "/health", 2),
            Line("floor", floor, "/content", 2),
            Line("floor", floor, "/row", 2),
            *(Line("floor", floor, "/group", connections) for connections in (2, 16)),
            *(Line("penstock", served, "/content", connections) for connections in (1, 2, 16)),
        ]
        found: dict[Line, list[Measured]] = {line: [] for line in lines}
        for _ in range(min(given.turns, 10)):
            for line, turns in found.items():
                each = max(number * 2 // line.connections, 1)
                turns.append(measured(line.served, line.route, line.connections, each))
                print(shown(line, turns[-1]))
        print("medians of the turns:")
        least = next(turns for line, turns in found.items() if line.route == "/row")
        for line, turns in found.items():
            middle = Measured(*(statistics.median(column) for column in zip(*turns, strict=True)))
            ratio = statistics.median(ours.cpu / row.cpu for ours, row in zip(turns, least, strict=True))
            print(f"{shown(line, middle)}  {ratio:5.2f} of /row")


if __name__ == "__main__":
    main()
