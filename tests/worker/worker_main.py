"""A worker as a separate process: ``python -m tests.worker.worker_main URL PLACE NAME OPTIONS``.

NAME is the simulated host: workers of one name share a directory. OPTIONS is JSON.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock import clock, config
from penstock.database.factory import open_queue
from penstock.errors import StoreUnavailable
from penstock.queue.job import Held, Job, JobQuery
from penstock.queue.jsonl.journal import lock_holder
from penstock.queue.protocol import Queue
from penstock.worker.supervisor import Supervisor, WorkerOptions
from tests.worker import sample_handlers


def opened(url: str, pooled: int = 0) -> Queue:
    # Power cuts are not tested here, and the sync is most of the cost of a commit.
    return open_queue(config.load({}, url=url, sqlite_synchronous="NORMAL", postgres_pooler=bool(pooled)))


class Flaky:
    """A store unavailable for some calls, or losing the response to a claim."""

    def __init__(self, queue: Queue, away: float, unanswered: float) -> None:
        self._queue = queue
        self._away = away
        self._unanswered = unanswered
        self._chance = random.Random(os.getpid())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._queue, name)
        if name in ("wait", "close"):
            return found
        chance = self._chance.random()

        def call(*given: object, **named: object) -> Any:
            if chance < self._away:
                raise StoreUnavailable("the network is down")
            answer = found(*given, **named)
            if name == "exchange" and chance > 1 - self._unanswered:
                raise StoreUnavailable("the network went down; it may have been done")
            return answer

        return call


class Slow:
    """A store listing held jobs slowly: the counts of before have changed by then."""

    def __init__(self, queue: Queue, seconds: float) -> None:
        self._queue = queue
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def find(self, query: JobQuery) -> list[Job]:
        if query.held is Held.TIME:
            time.sleep(self._seconds)
        return self._queue.find(query)


def slow(url: str, seconds: float) -> Queue:
    return cast("Queue", Slow(opened(url), seconds))


def flaky(url: str, away: float, unanswered: float) -> Queue:
    return cast("Queue", Flaky(opened(url), away, unanswered))


def options(url: str, place: Path, name: str, given: dict[str, Any]) -> WorkerOptions:
    lease_s = given.pop("lease_s", 30.0)
    registry = sample_handlers.broken_registry if given.pop("broken", 0) else sample_handlers.registry
    retention = {status: timedelta(seconds=kept) for status, kept in given.pop("retention", {}).items()}
    away, unanswered = given.pop("away", 0.0), given.pop("unanswered", 0.0)
    opening = functools.partial(opened, url, given.pop("pooled", 0))
    if find_s := given.pop("find_s", 0.0):
        opening = functools.partial(slow, url, find_s)
    if away or unanswered:
        opening = functools.partial(flaky, url, away, unanswered)
    settings = config.load({}, url=url)
    usual = {
        "start_method": "fork",
        "heartbeat_s": lease_s / 3,
        "poll_s": 0.25,
        "upkeep_s": settings.upkeep_s,
        "grace_s": settings.cancel_grace_s,
        "shutdown_grace_s": 30.0,
        "recycle_after": settings.recycle_after_jobs or None,
        "recycle_growth_mb": settings.recycle_growth_mb or None,
    }
    return WorkerOptions(
        open_queue=opening,
        registry=registry,
        directory=place / name,
        lease=timedelta(seconds=lease_s),
        task_lease=timedelta(seconds=settings.task_lease_s),
        retention=retention,
        lock_holder=functools.partial(lock_holder, settings.store),
        row_locks=settings.store.engine == "postgres",
        **usual | given,
    )


def set_clock_off(seconds: float) -> None:
    """Shift the clock, as on a host with a wrong time."""
    right = clock.now
    clock.now = lambda: right() + timedelta(seconds=seconds)


def signal_once_stopping(record: logging.LogRecord) -> bool:
    """Send the second signal as soon as the first is seen to be taken."""
    if record.getMessage().startswith("finishing running jobs"):
        signal.raise_signal(signal.SIGTERM)
    return True


def main() -> None:
    url, place, name, told = sys.argv[1:]
    given = msgspec.json.decode(told)
    set_clock_off(given.pop("clock_off_s", 0))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if given.pop("eager", 0):
        logging.getLogger("penstock.worker").addFilter(signal_once_stopping)
    Supervisor(options(url, Path(place), name, given)).run()


if __name__ == "__main__":
    main()
