"""SQL lives in files: blocks that begin with ``-- name: xyz``, the same names in every dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import msgspec

_NAME = re.compile(r"^-- name: (\w+)(?: per (phase|chunk phase))?$", re.MULTILINE)

# Claiming, renewing and settling are the same for all phases; what differs stands here.
_PHASES = {
    "ocr": {
        "table": "task_queue_page",
        "index": "idx_tqp",
        "free": "ocr_status = 'pending'",
        "page_id": "id",
    },
    "vector": {
        "table": "task_queue_chunk",
        "index": "idx_tqc",
        "free": "vector_status = 'pending' AND vector_held IS NULL",
        "page_id": "page_id",
    },
    "graphrag": {
        "table": "task_queue_chunk",
        "index": "idx_tqc",
        "free": "graphrag_status = 'pending' AND vector_status = 'completed' AND graphrag_held IS NULL",
        "page_id": "page_id",
    },
}


@cache
def load(dialect: str) -> dict[str, str]:
    """Every statement of a dialect by name. Those ``per phase`` come out as name_ocr, name_vector, …; those
    ``per chunk phase`` without the first."""
    statements: dict[str, str] = {}
    for file in sorted(files(__package__).joinpath("queries", dialect).iterdir(), key=lambda f: f.name):
        _, *blocks = _NAME.split(file.read_text(encoding="utf-8"))
        for name, per_phase, text in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
            made = {name: text.strip()}
            if per_phase:
                made = {
                    f"{name}_{phase}": text.strip().format(phase=phase, **words)
                    for phase, words in _PHASES.items()
                    if per_phase == "phase" or words["table"] == "task_queue_chunk"
                }
            if made.keys() & statements.keys():
                raise AssertionError(f"{dialect} has two statements named {name}")
            statements |= made
    return {name: text.replace("{filtered}", statements["filtered"]) for name, text in statements.items()}


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Numbered schema changes, oldest first."""
    folder = files(__package__).joinpath("migrations", dialect)
    found = sorted(folder.iterdir(), key=lambda file: file.name)
    return [
        (int(file.name[:4]), file.read_text(encoding="utf-8")) for file in found if file.name[:4].isdigit()
    ]


class Cursor(Protocol):
    """As much of a DB-API cursor as is used; sqlite3 and psycopg have it."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Rows:
    """The named statements of a dialect, inside one transaction."""

    def __init__(self, cursor: Any, statements: dict[str, str]) -> None:
        self.cursor: Cursor = cursor
        self.statements = statements

    def run(self, name: str, *values: object) -> int:
        self.cursor.execute(self.statements[name], values)
        return self.cursor.rowcount

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.cursor.executemany(self.statements[name], rows)

    def one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        self.cursor.execute(self.statements[name], values)
        row: tuple[Any, ...] | None = self.cursor.fetchone()
        return row

    def all(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        self.cursor.execute(self.statements[name], values)
        return self.cursor.fetchall()

    def value(self, name: str, *values: object) -> Any:
        row = self.one(name, *values)
        return row[0] if row else None

    def numbers(self, name: str, count: int) -> int:
        """The first of ``count`` numbers that nobody else gets."""
        last: int = self.value("next_numbers", count, name)
        return last - count + 1


def listed(values: Iterable[object]) -> str:
    """A list as one parameter."""
    return msgspec.json.encode(list(values)).decode()
