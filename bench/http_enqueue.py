"""Requests a second for notes over HTTP, by a live server: ``python -m bench.http_enqueue``.

Senders are threads of another process, each with one connection, so that server and senders have a core each.
The state directory is in memory if it can be: otherwise the commits of the disk are measured. Beside it stand
a bare Starlette server that commits one row a request, a constant of both, and the service without HTTP.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import threading
import time
from pathlib import Path

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
        adds = route == "/content"
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


def measured(name: str, served: Served, route: str, connections: int, number: int) -> str:
    """Requests a second, and CPU time of the server for each."""
    began, used = time.perf_counter(), cpu_seconds(served.process.pid)
    senders = multiprocessing.Process(target=send_all, args=(served.address, route, connections, number))
    senders.start()
    senders.join()
    total = connections * number
    rate = total / (time.perf_counter() - began)
    cpu = (cpu_seconds(served.process.pid) - used) / total * 1e6
    return (
        f"{name:8} {route:10} {connections:3} connections  {rate:7,.0f} requests/s  {cpu:6,.0f} us CPU each"
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
        for _ in range(min(given.turns, 10)):
            print(measured("floor", floor, "/constant", 2, number))
            print(measured("penstock", served, "/health", 2, number))
            print(measured("floor", floor, "/content", 2, number))
            for connections in (1, 2, 16):
                print(
                    measured("penstock", served, "/content", connections, max(number * 2 // connections, 1))
                )


if __name__ == "__main__":
    main()
