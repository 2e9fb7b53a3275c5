"""``python -m bench.peers.cpu``: CPU time a job of callers, workers and servers, beside peers.

CPU time depends less than rates on other work on the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.peers import field, places
from bench.peers.field import Contender
from bench.peers.places import Store
from bench.peers.session import Session, Unable, session
from bench.processes import cpu_seconds
from bench.stores import fresh_directory

SINGLES, BULK, DRAINED = 1_000, 8_000, 12_000
STARTED, LEFT = 500, 300
"""Jobs at the begin and at the end of a drain that are not counted."""
LIMIT_S = 60.0
OURS, BEFORE = "Penstock", "before"


class Cost(NamedTuple):
    """Microseconds a job."""

    client: float
    server: float

    @property
    def together(self) -> float:
        return self.client + self.server


class Entry(NamedTuple):
    name: str
    contender: Contender
    checkout: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # A signal to end also ends its servers and workers.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    names = [OURS, *options.peer] if options.peer else []
    entries = [Entry(each.name, each, None) for each in field.on(options.store, names)]
    if options.before:
        entries.insert(0, entries[0]._replace(name=BEFORE, checkout=options.before.resolve()))
    costs: dict[str, dict[str, list[Cost]]] = {"one": {}, "many": {}, "drain": {}}
    below = places.MEMORY if options.store != "redis" else options.dir
    with fresh_directory(below) as directory, places.opened(options.store, directory) as store:
        for number in range(options.rounds):
            # Each goes first in turn.
            turn = number % len(entries)
            for entry in entries[turn:] + entries[:turn]:
                for what, cost in _measured(entry, store, directory, options.only):
                    costs[what].setdefault(entry.name, []).append(cost)
    _print([entry.name for entry in entries], costs)
    return 0


def _measured(entry: Entry, store: Store, directory: Path, only: str | None) -> Iterator[tuple[str, Cost]]:
    print(f"{entry.name} …", file=sys.stderr, flush=True)
    if only != "drain":
        with _in_checkout(entry.checkout), session(entry.contender, store, directory) as each:
            # Statements are prepared, and files have grown.
            each.ask("one", 0, 50, LIMIT_S)
            yield "one", _adding(each, "one", SINGLES)
            each.ask("many", 0, 1_000, LIMIT_S)
            yield "many", _adding(each, "many", BULK)
    if only != "enqueue":
        with _in_checkout(entry.checkout), session(entry.contender, store, directory) as each:
            yield "drain", _draining(each)


@contextmanager
def _in_checkout(root: Path | None) -> Iterator[None]:
    """Processes that start meanwhile import from another checkout."""
    before = os.environ.get("PYTHONPATH")
    if root is not None:
        os.environ["PYTHONPATH"] = f"{root / 'src'}{os.pathsep}{root}"
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        elif root is not None:
            del os.environ["PYTHONPATH"]


def _adding(each: Session, verb: str, jobs: int) -> Cost:
    client, server = cpu_seconds(each.client_pid), _server_cpu(each.url)
    added, _ = each.ask(verb, 0, jobs, LIMIT_S)
    used = cpu_seconds(each.client_pid) - client, _server_cpu(each.url) - server
    return Cost(*(seconds / added * 1e6 for seconds in used))


def _draining(each: Session) -> Cost:
    each.ask("many", 0, DRAINED, LIMIT_S)
    each.start(1)
    marks = each.marks
    if not each.wait_for(lambda: marks.done() > STARTED, LIMIT_S):
        raise Unable("ran nothing")
    (pid,) = each.pids
    done, worker, server = marks.done(), cpu_seconds(pid), _server_cpu(each.url)
    each.wait_for(lambda: marks.done() > DRAINED - LEFT, LIMIT_S)
    used = cpu_seconds(pid) - worker, _server_cpu(each.url) - server
    return Cost(*(seconds / (marks.done() - done) * 1e6 for seconds in used))


def _server_cpu(url: str) -> float:
    pid = _server_pid(url)
    return cpu_seconds(pid) if pid else 0.0


_pids: dict[str, int] = {}


def _server_pid(url: str) -> int:
    """The first process of the server; 0 without a server."""
    scheme, _, rest = url.partition("://")
    place = f"{scheme}://{rest.rpartition('/')[0]}"
    if place not in _pids:
        _pids[place] = _asked_pid(scheme, url)
    return _pids[place]


def _asked_pid(scheme: str, url: str) -> int:
    if scheme == "postgresql":
        import psycopg

        with psycopg.connect(url) as connection:
            stat = Path(f"/proc/{connection.info.backend_pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])
    if scheme == "redis":
        import redis

        with redis.Redis.from_url(url) as client:
            return int(client.info("server")["process_id"])
    return 0


def _print(names: Sequence[str], costs: dict[str, dict[str, list[Cost]]]) -> None:
    for what, found in costs.items():
        if not found:
            continue
        first = found[names[0]]
        print(f"\n| {what} | caller or worker, us a job | server | together | of {names[0]} |")
        print("|---|---:|---:|---:|---:|")
        for name in names:
            own = found[name]
            client, server, together = (
                statistics.median(values)
                for values in zip(*((each.client, each.server, each.together) for each in own), strict=True)
            )
            share = statistics.median(b.together / a.together for a, b in zip(first, own, strict=True))
            print(f"| {name} | {client:.0f} | {server:.0f} | {together:.0f} | {share:.2f} |")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.cpu", description="CPU time a job, beside peers or another checkout."
    )
    stores = [store for store in places.STORES if store == "redis" or store.endswith(places.IN_MEMORY)]
    parser.add_argument("store", choices=stores)
    parser.add_argument(
        "--peer", action="append", default=[], help="only these (repeatable), beside Penstock"
    )
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout of Penstock")
    parser.add_argument("--only", choices=("enqueue", "drain"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dir", type=Path, default=Path("/tmp"), help="where the files of Redis are made")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
