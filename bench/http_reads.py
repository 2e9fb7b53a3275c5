"""Latency of status reads while two workers index flat out: ``python -m bench.http_reads``.

Each reader asks in turn for the status, a job, a page of jobs and the constant of a bare server, at a fixed
pace. The bare server runs beside the other one, so the last column is what the machine itself allows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path

from bench.http_processes import (
    Connection,
    Served,
    cpu_seconds,
    floor_server,
    penstock_server,
    state_folder,
)

FOLDERS, FILES, WORDS = 4, 300, 120
PACE_S = 0.05
FLOOR = "floor: a constant"


def make_files(folder: Path) -> list[Path]:
    """Folders of small Markdown files."""
    made = []
    for number in range(FOLDERS):
        one = folder / f"folder-{number}"
        one.mkdir(parents=True)
        made.append(one)
        for each in range(FILES):
            words = " ".join(f"word{(each * 31 + place) % 997}" for place in range(WORDS))
            (one / f"{each}.md").write_text(f"# File {number}-{each}\n\n{words}\n")
    return made


class Feeder(threading.Thread):
    """Keeps the workers busy: indexes the folders again as soon as one of them has ended."""

    def __init__(self, address: str, folders: list[Path]) -> None:
        super().__init__()
        self._connection = Connection(address)
        self._folders = folders
        self.stopped = threading.Event()
        self.job_id = ""
        self.started = 0
        self.idle_looks = 0

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            status = self._connection.json("GET", "/health/status")
            if self.started and status["queue_length"] == 0 and not status["indexing_in_progress"]:
                self.idle_looks += 1
            if len(status["running_jobs"]) + status["queue_length"] < FOLDERS:
                self.feed()
        self._connection.close()

    def feed(self) -> None:
        folder = self._folders[self.started % len(self._folders)]
        answer = self._connection.json("POST", "/index/?force=true", {"folder_path": str(folder)})
        self.job_id = answer["job_id"]
        self.started += 1


class Reader(threading.Thread):
    """Asks for everything in turn, until a time. Latencies are in milliseconds."""

    def __init__(self, served: Served, floor: Served, feeder: Feeder, until: float) -> None:
        super().__init__()
        self._served, self._floor = Connection(served.address), Connection(floor.address)
        self._feeder = feeder
        self._until = until
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []

    def run(self) -> None:
        while time.monotonic() < self._until:
            job = f"/index/jobs/{self._feeder.job_id}"
            for name, connection, target in (
                ("/health/status", self._served, "/health/status"),
                (FLOOR, self._floor, "/constant"),
                ("/index/jobs/{id}", self._served, job),
                ("/index/jobs/", self._served, "/index/jobs/?limit=50"),
            ):
                began = time.perf_counter()
                try:
                    status, body = connection.ask("GET", target)
                    if status != 200:
                        self.errors.append(f"{target}: {status} {body[:200]!r}")
                except OSError as error:
                    self.errors.append(f"{target}: {error}")
                    return
                took = time.perf_counter() - began
                self.latencies[name].append(took * 1_000)
                time.sleep(max(PACE_S - took, 0.0))


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def report(latencies: dict[str, list[float]]) -> list[str]:
    """One line for each kind of request, with the ratio of its p99 to the floor's."""
    floor = percentile(latencies[FLOOR], 0.99)
    lines = [
        f"{'request':20} {'number':>7} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'max ms':>8}  p99 / floor"
    ]
    for name, values in sorted(latencies.items()):
        shown = " ".join(f"{percentile(values, share):8.1f}" for share in (0.5, 0.95, 0.99, 1.0))
        lines.append(f"{name:20} {len(values):7,} {shown}  {percentile(values, 0.99) / floor:.2f}")
    return lines


def cpu_rate(served: Served, seconds: float) -> float:
    """Share of a core that the server uses while nobody reads."""
    used, began = cpu_seconds(served.process.pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(served.process.pid) - used) / (time.monotonic() - began)


def measure(seconds: float, readers: int, *, disk: bool) -> None:
    """Index flat out, read meanwhile, and print the table."""
    with (
        state_folder(disk=disk) as folder,
        penstock_server(folder / "served", "--processes", "2") as served,
        floor_server(folder / "floor") as floor,
    ):
        feeder = Feeder(served.address, make_files(folder / "served"))
        feeder.feed()
        feeder.start()
        time.sleep(3.0)  # the workers' processes start
        unread = cpu_rate(served, min(seconds / 3, 10.0))
        until, used = time.monotonic() + seconds, cpu_seconds(served.process.pid)
        threads = [Reader(served, floor, feeder, until) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read_for = time.monotonic() - until + seconds
        used = cpu_seconds(served.process.pid) - used - unread * read_for
        feeder.stopped.set()
        feeder.join()
        done = Connection(served.address).json("GET", "/queue/stats")["by_status"].get("done", 0)
    latencies: dict[str, list[float]] = defaultdict(list)
    for thread in threads:
        for name, values in thread.latencies.items():
            latencies[name] += values
    errors = [error for thread in threads for error in thread.errors]
    print(f"{done:,} jobs done, {feeder.idle_looks} looks without work, {len(errors)} errors", *errors[:5])
    print("\n".join(report(latencies)))
    mean = statistics.fmean(latencies["/health/status"])
    print(f"mean of /health/status: {mean:.1f} ms, {readers} readers, {seconds:g} s")
    reads = sum(len(values) for name, values in latencies.items() if name != FLOOR)
    print(
        f"CPU of the server: {used / reads * 1_000:.2f} ms a read, {unread:.1%} of a core without reads;"
        f" load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the reads, at most 600")
    parser.add_argument("--readers", type=int, default=2, help="connections that read, at most 50")
    parser.add_argument("--disk", action="store_true", help="keep the state on the disk")
    given = parser.parse_args()
    measure(min(given.seconds, 600.0), min(given.readers, 50), disk=given.disk)


if __name__ == "__main__":
    main()
