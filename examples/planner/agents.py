"""Data of the example: planners, workers and production figures, in a SQLite file beside the queue."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS planners (planner_id TEXT PRIMARY KEY, question TEXT, plan TEXT, answer TEXT);
CREATE TABLE IF NOT EXISTS workers (
    worker_id TEXT PRIMARY KEY, planner_id TEXT, kind TEXT, asks TEXT, ready INTEGER DEFAULT 0, result TEXT);
CREATE TABLE IF NOT EXISTS grindings (mill TEXT, sacks INTEGER);
"""
BOOKS = [("Upper", 12), ("Upper", 9), ("Lower", 31), ("Lower", 4), ("Tide", 17)]


class Agents:
    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as database:
            database.executescript(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=30)
        try:
            with database:
                yield database
        finally:
            database.close()

    def write(self, statement: str, *values: object) -> None:
        with self._open() as database:
            database.execute(statement, values)

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._open() as database:
            return database.execute(statement, values).fetchall()

    def fill_the_books(self) -> None:
        with self._open() as database:
            database.executemany("INSERT INTO grindings VALUES (?, ?)", BOOKS)

    def has_planner(self, planner_id: str) -> bool:
        return bool(self.read("SELECT 1 FROM planners WHERE planner_id = ?", planner_id))

    def has_worker(self, worker_id: str) -> bool:
        return bool(self.read("SELECT 1 FROM workers WHERE worker_id = ?", worker_id))

    def plan_of(self, planner_id: str) -> list[dict[str, str]]:
        ((plan,),) = self.read("SELECT plan FROM planners WHERE planner_id = ?", planner_id)
        steps: list[dict[str, str]] = json.loads(plan)
        return steps
