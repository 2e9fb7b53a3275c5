"""A worker as a process of its own: ``python -m tests.worker.serving ENGINE PLACE NAME TERMS``.

NAME is the host it plays: workers of one name share a directory. TERMS is JSON.
"""

from __future__ import annotations

import functools
import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock.queue.protocol import Queue
from penstock.worker.supervisor import Supervisor, Terms
from tests.worker import handlers_for_tests


def opened(engine: str, place: Path) -> Queue:
    if engine == "sqlite":
        from penstock.queue.sql.sqlite import SqliteQueue

        # What a power cut does is not asked here, and the sync is most of a commit's cost.
        return SqliteQueue(place / "queue.db", synchronous="NORMAL")
    from penstock.queue.jsonl import JsonlQueue

    queue = JsonlQueue(place / "queue")
    queue.migrate()
    return queue


def terms(engine: str, place: Path, name: str, given: dict[str, Any]) -> Terms:
    lease_s = given.pop("lease_s", 30.0)
    registry = handlers_for_tests.broken_registry if given.pop("broken", 0) else handlers_for_tests.registry
    retention = {status: timedelta(seconds=kept) for status, kept in given.pop("retention", {}).items()}
    return Terms(
        open_queue=functools.partial(opened, engine, place),
        registry=registry,
        directory=place / name,
        lease=timedelta(seconds=lease_s),
        retention=retention,
        **{"heartbeat_s": lease_s / 3, "start_method": "fork", "poll_s": 0.25} | given,
    )


def main() -> None:
    engine, place, name, given = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    Supervisor(terms(engine, Path(place), name, msgspec.json.decode(given))).run()


if __name__ == "__main__":
    main()
