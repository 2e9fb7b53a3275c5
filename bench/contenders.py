"""What is measured: an engine of Penstock or a floor, behind the same few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from bench.floor_jsonl import JournalFloor
from bench.floor_sqlite import SqliteFloor
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, NewJob
from penstock.queue.protocol import Queue

ENGINES = ("sqlite", "jsonl", "postgres", "redis")
LEASE = timedelta(seconds=300)


class Contender(Protocol):
    def prepare(self, new: Sequence[NewJob]) -> Sequence[Any]:
        """Jobs in the form this contender's ``add`` takes; never timed."""

    def add(self, prepared: Sequence[Any]) -> None: ...

    def exchange(self, held: Sequence[Any], limit: int) -> Sequence[Any]:
        """End what is held as done and claim up to ``limit`` more, in one transaction."""

    def settle(self, held: Sequence[Any]) -> None: ...

    def wait(self, timeout: float) -> None: ...

    def close(self) -> None: ...


class Engine:
    """Penstock's own queue, used as a custom worker uses it."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def prepare(self, new: Sequence[NewJob]) -> Sequence[NewJob]:
        return new

    def add(self, prepared: Sequence[NewJob]) -> None:
        self.queue.add(prepared)

    def exchange(self, held: Sequence[Claim], limit: int) -> Sequence[Claim]:
        done = [transitions.done(claim) for claim in held]
        return self.queue.exchange(done, ClaimRequest("bench", limit, LEASE)).claims

    def settle(self, held: Sequence[Claim]) -> None:
        self.queue.settle([transitions.done(claim) for claim in held])

    def wait(self, timeout: float) -> None:
        self.queue.wait(timeout)

    def close(self) -> None:
        self.queue.close()


def open_engine(engine: str, directory: Path) -> Contender:
    queue = open_queue(engine, directory)
    queue.migrate()
    return Engine(queue)


def open_floor(engine: str, directory: Path) -> Contender:
    if engine == "postgres":
        from bench.floor_postgres import PostgresFloor

        return PostgresFloor(directory)
    if engine == "redis":
        from bench.floor_redis import RedisFloor

        return RedisFloor(directory)
    return SqliteFloor(directory) if engine == "sqlite" else JournalFloor(directory)


def open_guaranteed_floor(engine: str, directory: Path) -> Contender:
    """The floor of additions with the guarantees of the engine: SQLite has one."""
    from bench.floor_sqlite_guarantees import GuaranteedSqliteFloor

    assert engine == "sqlite"
    return GuaranteedSqliteFloor(directory)


Opener = Callable[[str, Path], Contender]
OPENERS: dict[str, Opener] = {"ours": open_engine, "floor": open_floor, "guaranteed": open_guaranteed_floor}


def open_contender(side: str, engine: str, directory: Path) -> Contender:
    """``side`` is a name, not an object, so that a child process can be told to open the same thing."""
    directory.mkdir(parents=True, exist_ok=True)
    return OPENERS[side](engine, directory)


def open_queue(engine: str, directory: Path) -> Queue:
    # Only the engine that is measured is imported.
    if engine == "sqlite":
        from penstock.queue.sqlite.queue import SqliteQueue

        return SqliteQueue(directory / "queue.db")
    if engine == "postgres":
        from bench.postgres_server import store
        from penstock.queue.postgres.queue import PostgresQueue

        return PostgresQueue(store(directory))
    if engine == "redis":
        from bench.server_redis import queue_url
        from penstock.queue.redis.queue import RedisQueue

        return RedisQueue(queue_url(directory))
    from penstock.queue.jsonl.queue import JsonlQueue

    return JsonlQueue(directory)


def server_cpu_s(engine: str, directory: Path) -> float:
    """What a server has used so far; 0 where there is none."""
    if engine != "redis":
        return 0.0
    from bench import server_redis

    return server_redis.cpu_s(directory)


def commands(engine: str, directory: Path) -> int:
    """Commands a server has run so far; 0 where there is none."""
    if engine != "redis":
        return 0
    from bench import server_redis

    return server_redis.commands(directory)


def forget(engine: str, directory: Path) -> None:
    """Remove what is kept elsewhere than in the directory."""
    if engine == "redis":
        from bench import server_redis

        server_redis.forget(directory)
