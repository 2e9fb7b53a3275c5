"""Requests a second for notes over HTTP, by a live server: ``python -m bench.http_enqueue``.

Senders are threads of another process, each with one connection, so that server and senders have a core each.
The state directory is in memory if it can be: otherwise the commits of the disk are measured. Beside it stand
the health route, which shows what HTTP itself costs, and the service without HTTP.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from penstock import config
from penstock.assembly import Assembly

SETTINGS = {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_MAX_QUEUE": "100000"}
MEMORY = Path("/dev/shm")


def started(state: Path) -> tuple[subprocess.Popen[str], str]:
    """A server without a worker, and its address."""
    command = [sys.executable, "-m", "penstock", "--state", str(state), "--json", "serve", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--no-worker"], env=os.environ | SETTINGS, stdout=subprocess.PIPE, text=True, cwd=state
    )
    assert server.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        text += server.stdout.readline()
    return server, str(json.loads(text)["url"]).removeprefix("http://")


def send(address: str, route: str, sender: int, number: int) -> None:
    """Send requests over one connection, each after the answer to the one before."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        for each in range(number):
            body = (
                json.dumps({"content": f"note {os.getpid()}-{sender}-{each}"}).encode()
                if route == "/content"
                else b""
            )
            head = f"{'POST' if body else 'GET'} {route} HTTP/1.1\r\nHost: {address}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            answer = connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 20"), answer
            while not answer.endswith(b"}"):
                answer += connection.recv(65_536)


def send_all(address: str, route: str, connections: int, number: int) -> None:
    """Send from so many connections at the same time."""
    threads = [
        threading.Thread(target=send, args=(address, route, sender, number)) for sender in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(server: subprocess.Popen[str], address: str, route: str, connections: int, number: int) -> str:
    """Requests a second, and CPU time of the server for each."""
    began, used = time.perf_counter(), cpu_seconds(server.pid)
    senders = multiprocessing.Process(target=send_all, args=(address, route, connections, number))
    senders.start()
    senders.join()
    total = connections * number
    rate = total / (time.perf_counter() - began)
    cpu = (cpu_seconds(server.pid) - used) / total * 1e6
    return f"{route:10} {connections:3} connections  {rate:7,.0f} requests/s  {cpu:6,.0f} us CPU each"


def service_alone(state: Path, number: int) -> str:
    """The same notes without HTTP, one thread."""
    assembly = Assembly(config.load(os.environ | SETTINGS, state_dir=state), door="http")
    began, used = time.perf_counter(), time.process_time()
    for each in range(number):
        assembly.documents.note(f"alone {each}")
    rate, cpu = number / (time.perf_counter() - began), (time.process_time() - used) / number * 1e6
    assembly.close()
    return f"{'service':10} {'':3}             {rate:7,.0f} notes/s     {cpu:6,.0f} us CPU each"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=1_500, help="requests of each connection")
    parser.add_argument(
        "--disk", action="store_true", help="keep the state on the disk of the temporary folder"
    )
    given = parser.parse_args()
    place = None if given.disk or not MEMORY.is_dir() else str(MEMORY)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        print(service_alone(Path(folder, "alone"), given.number))
        state = Path(folder, "state")
        state.mkdir()
        server, address = started(state)
        try:
            send_all(address, "/content", 2, 100)
            for route, connections in (("/health", 2), ("/content", 1), ("/content", 2), ("/content", 16)):
                print(measured(server, address, route, connections, max(given.number * 2 // connections, 1)))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


if __name__ == "__main__":
    main()
