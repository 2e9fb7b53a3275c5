"""``python -m bench.tasks``: ``get_pending_tasks`` beside the task queue's own table and index, in SQLite.

The floor is the table of the function task queue as its text writes it, with its own index and its own way
to leave out busy entities: all pending rows are read. The hot query is its ``LIMIT 100`` without entities.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.contenders import ENGINES, forget, open_queue
from bench.stores import fresh_directory
from penstock import clock, config
from penstock.queue.protocol import Queue
from penstock.service.functions import FunctionJobs

LIMIT = 100
BULK = 2_000
REPETITIONS = 5
_SCHEMA = """
CREATE TABLE task_queue (
    task_id TEXT PRIMARY KEY,
    entity_type TEXT NOT NULL CHECK (entity_type IN ('planner', 'worker')),
    entity_id TEXT NOT NULL,
    function_name TEXT NOT NULL,
    payload JSON,
    status TEXT NOT NULL DEFAULT 'PENDING',
    error_message TEXT,
    retry_count INTEGER NOT NULL DEFAULT 0,
    max_retries INTEGER NOT NULL DEFAULT 3,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_task_queue_status_created ON task_queue (status, created_at);
CREATE INDEX idx_task_queue_entity ON task_queue (entity_type, entity_id);
CREATE INDEX idx_task_queue_function ON task_queue (function_name);
CREATE INDEX idx_task_queue_status_updated ON task_queue (status, updated_at);
"""
_PENDING = "SELECT * FROM task_queue WHERE status = 'PENDING' ORDER BY created_at"
_BUSY = "SELECT entity_type, entity_id FROM task_queue WHERE status = 'IN_PROGRESS'"


def seed_table(path: Path, rows: int, entities: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.executescript(_SCHEMA)
    connection.executemany(
        "INSERT INTO task_queue (task_id, entity_type, entity_id, function_name, payload) VALUES (?,?,?,?,?)",
        ((clock.new_task_id(), "worker", f"w{n % entities}", "work", '{"n":1}') for n in range(rows)),
    )
    connection.commit()
    return connection


def with_entity_locking(connection: sqlite3.Connection) -> list[Any]:
    """The text's own function: one pending task for each entity that is not busy."""
    busy = set(connection.execute(_BUSY))
    available = []
    for task in connection.execute(_PENDING).fetchall():
        entity = (task[1], task[2])
        if entity not in busy:
            available.append(task)
            busy.add(entity)
    return available


def hot_query(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(f"{_PENDING} LIMIT {LIMIT}").fetchall()


def median_ms(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def tasks_of(engine: str, directory: Path, rows: int, entities: int) -> tuple[FunctionJobs, Queue]:
    queue = open_queue(engine, directory)
    queue.migrate()
    app = FunctionJobs(queue, config.load({}, state_dir=directory))
    app.function("work")(lambda payload: payload)
    for start in range(0, rows, BULK):
        numbers = range(start, min(start + BULK, rows))
        app.tasks.enqueue_multiple_tasks([_task(n % entities) for n in numbers])
    return app, queue


def _task(entity: int) -> dict[str, Any]:
    about = {"entity_type": "worker", "entity_id": f"w{entity}", "function_name": "work"}
    return about | {"payload": {"n": 1}}


def measure(engine: str, rows: int, entities: int, below: Path) -> str:
    with fresh_directory(below) as directory:
        app, queue = tasks_of(engine, directory, rows, entities)
        try:
            ours = median_ms(lambda: app.tasks.get_pending_tasks(LIMIT))
        finally:
            queue.close()
            forget(engine, directory)
        with closing(seed_table(directory / "seed.db", rows, entities)) as seed:
            locking, hot = median_ms(lambda: with_entity_locking(seed)), median_ms(lambda: hot_query(seed))
    return (
        f"{engine:9} {rows:7,} pending, {entities:6,} entities: ours {ours:8.2f} ms, "
        f"the text's function {locking:8.2f} ms ({ours / locking:.2f} x), "
        f"its LIMIT {LIMIT} alone {hot:6.2f} ms ({ours / hot:.1f} x)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--dir", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    for engine in options.engine or ENGINES:
        for entities in (options.rows, 1_000, 20):
            print(measure(engine, options.rows, entities, options.dir), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
