"""SQL statements: loaded from files by name, or built for a ``JobQuery``.

Each block of a file begins with ``-- name: xyz``. Only the statements of a query are built, of fixed
fragments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.clock import read_time
from penstock.queue.job import (
    Claim,
    FailureGroups,
    Held,
    Job,
    JobQuery,
    Status,
    bucket_step,
    counted_failures,
)
from penstock.queue.payloads import ITEM_TYPES
from penstock.queue.rules.rows import searched_texts

_HERE = Path(__file__).parent
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_CLAIMABLE = {
    "sqlite": "status = 'pending' AND held IS NULL",
    "postgres": "coalesce(held, status) = 'pending'",
}
"""Pending and not held, as the predicate of the claim index of each dialect."""
_OWN_DOCUMENT = {
    "sqlite": "parent_id IS NULL AND item_type <> 'function'",
    "postgres": "(parent_id IS NULL AND item_type <> 'function') = (SELECT true)",
}
"""Not a function and without a parent. Hidden from PostgreSQL's planner, which would choose the index of item
types for it, and read the rows of all tenants."""

JOB_COLUMNS = Job.__struct_fields__
CLAIM_COLUMNS = tuple(name for name in Claim.__struct_fields__ if name != "lease_until")

_FIXED_COLUMNS = frozenset(
    "queue_id item_type tenant_id collection branch created_at idempotency_key dedupe submitted_by "
    "lock_key limit_key backlog_key result_ttl_s parent_id parent_run root_id".split()
)
"""Columns that identify a row; no rule changes them."""

CHANGING_COLUMNS = tuple(name for name in JOB_COLUMNS if name not in _FIXED_COLUMNS)


INSERTED_COLUMNS = (
    "queue_id item_type op tenant_id collection branch priority created_at updated_at idempotency_key dedupe "
    "max_retries timeout_s submitted_by turn held run_at lock_key parent_id parent_run root_id payload_json "
    "metadata"
).split()
"""Columns of a new row; the others start with their defaults."""

OWN_COLUMNS = "queue_id idempotency_key turn lock_key root_id payload_json".split()
"""Columns in which the rows of a batch usually differ; most batches share the others."""

ROWS_AT_ONCE = 100
"""Rows of one INSERT of a batch on SQLite, which opens every index again for each statement."""

LOCK_CAP = 200
"""Locks that one transaction of a claim may try: PostgreSQL's lock table has a fixed size."""

_TYPES = {
    "integer": "priority retry_count max_retries timeout_s run claim_number turn parent_run lost_count "
    "children_open children_failed result_ttl_s",
    "bigint": "total_chunks",
    "timestamptz": "created_at updated_at run_at lease_until started_at finished_at last_error_at limit_at",
    "boolean": "dedupe awaited cancel_requested",
}
COLUMN_TYPES = {name: kind for kind, names in _TYPES.items() for name in names.split()}
"""Types of the PostgreSQL columns that are not text."""


class _Hints:
    """Index hints by name: SQLite has no statistics here, PostgreSQL has no hints."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def __getitem__(self, name: str) -> str:
        return f"INDEXED BY idx_unified_queue_{name}" if self._dialect == "sqlite" else ""


def _arrays(names: Iterable[str]) -> str:
    return ", ".join(f":{name}::{COLUMN_TYPES.get(name, 'text')}[]" for name in names)


def _own_or_common(name: str) -> str:
    return name if name in OWN_COLUMNS else f":{name}::{COLUMN_TYPES.get(name, 'text')}"


class _QueueStatements(dict[str, str]):
    """The statements of a dialect by name, each formatted at its first use: a command uses few of them.

    A dictionary, as several are looked up for each job. Iterate over ``formatted()`` instead.
    """

    def __init__(self, blocks: Mapping[str, str], words: Mapping[str, object], dialect: str) -> None:
        super().__init__()
        self._blocks = blocks
        self._words = words
        self._dialect = dialect

    def __missing__(self, name: str) -> str:
        text = _COMMENT.sub("", self._blocks[name]).strip().format(**self._words).strip()
        self[name] = _with_parameters(text, self._dialect)
        return self[name]

    def formatted(self) -> dict[str, str]:
        """All statements."""
        return {name: self[name] for name in self._blocks}


@cache
def load(dialect: str) -> _QueueStatements:
    """Load all statements of a dialect by name."""
    # The value after the claim.
    claim = ", ".join(CLAIM_COLUMNS).replace("claim_number", "claim_number + 1")
    lists: dict[str, object] = {
        "job": ", ".join(JOB_COLUMNS),
        "job_values": ", ".join(f":{name}" for name in JOB_COLUMNS),
        "job_arrays": _arrays(JOB_COLUMNS),
        "index": _Hints(dialect),
        "claimable": _CLAIMABLE[dialect],
        "own_document": _OWN_DOCUMENT[dialect],
        "for_update": "" if dialect == "sqlite" else "FOR UPDATE",
        "for_update_skip_locked": "" if dialect == "sqlite" else "FOR UPDATE SKIP LOCKED",
        "inserted_values": ", ".join(f":{name}" for name in INSERTED_COLUMNS),
        "inserted_rows": ", ".join([f"({', '.join('?' * len(INSERTED_COLUMNS))})"] * ROWS_AT_ONCE),
        "claim": claim,
        "indexing_types": ", ".join(f"'{name}'" for name in ITEM_TYPES if name != "function"),
        "claim_columns": ", ".join(CLAIM_COLUMNS),
        "changing": ", ".join(f"{name} = {_changed(name, dialect)}" for name in CHANGING_COLUMNS),
        "changing_names": ", ".join(CHANGING_COLUMNS),
        "changing_arrays": _arrays(CHANGING_COLUMNS),
        "inserted": ", ".join(INSERTED_COLUMNS),
        "inserted_arrays": _arrays(INSERTED_COLUMNS),
        "own": ", ".join(OWN_COLUMNS),
        "own_arrays": _arrays(OWN_COLUMNS),
        "own_or_common": ", ".join(map(_own_or_common, INSERTED_COLUMNS)),
    }
    blocks: dict[str, str] = {}
    for name, text in (*_blocks("both"), *_blocks(dialect)):
        if name in blocks:
            raise AssertionError(f"{dialect} has two statements named {name}")
        blocks[name] = text
    return _QueueStatements(blocks, lists, dialect)


def _changed(name: str, dialect: str) -> str:
    """The new value of a column. In SQLite, an unchanged payload is not given: it may be in another table."""
    if dialect == "postgres":
        return f"s.{name}"
    return f"coalesce(:{name}, {name})" if name == "payload_json" else f":{name}"


def _blocks(folder: str) -> Iterator[tuple[str, str]]:
    for file in sorted((_HERE / "queries" / folder).iterdir(), key=lambda file: file.name):
        # Split as text: an expression looks at every line, which takes ten times as long.
        _, *blocks = f"\n{file.read_text(encoding='utf-8')}".split("\n-- name: ")
        for block in blocks:
            name, _, text = block.partition("\n")
            yield name, text


def _with_parameters(statement: str, dialect: str) -> str:
    """Turn ``:name`` into the parameter style of a driver.

    SQLite gets numbers in order of appearance, as its driver binds a tuple faster than a dictionary.
    """
    if dialect == "postgres":
        return _PARAMETER.sub(r"%(\1)s", statement)
    numbers: dict[str, int] = {}
    return _PARAMETER.sub(lambda found: f"?{numbers.setdefault(found[1], len(numbers) + 1)}", statement)


def migrations(dialect: str) -> list[tuple[int, str]]:
    """List the numbered schema scripts, oldest first."""
    folder = _HERE / "migrations" / dialect
    found = sorted(folder.iterdir(), key=lambda file: file.name)
    return [
        (int(file.name[:4]), file.read_text(encoding="utf-8")) for file in found if file.name[:4].isdigit()
    ]


_EQUAL = (
    "item_type op tenant_id collection branch held worker_id lock_key limit_key idempotency_key "
    "parent_id root_id waiting_for error_code error_reason"
).split()


_WAITING = "waiting_for IS NOT NULL AND finished_at IS NULL"
"""The predicate of the index of waiting jobs."""

_Dialect: TypeAlias = Literal["sqlite", "postgres"]
_LONG = "(SELECT p.payload_json FROM unified_queue_payload p WHERE p.queue_id = unified_queue.queue_id)"
_SEARCHED: dict[_Dialect, tuple[str, ...]] = {
    "sqlite": (
        "instr(lower(queue_id), ?)",
        "instr(lower(coalesce(error_message, '')), ?)",
        f"instr(lower(coalesce(nullif(payload_json, 'null'), {_LONG}, '')), ?)",
    ),
    # With the C collation, lower() changes letters of ASCII only, as SQLite does.
    "postgres": (
        'strpos(lower(queue_id COLLATE "C"), ?)',
        "strpos(lower(coalesce(error_message, '') COLLATE \"C\"), ?)",
        'strpos(lower(payload_json COLLATE "C"), ?)',
    ),
}
"""Places of a text: in the id, the message and the payload."""
_AGE: dict[_Dialect, str] = {
    "sqlite": "(? - (julianday(last_error_at) - 2440587.5) * 86400)",
    "postgres": "(?::float8 - extract(epoch FROM last_error_at)::float8)",
}
"""Seconds between a failure and a time, given in seconds since 1970."""
_UNORDERED: dict[_Dialect, str] = {"sqlite": "+queue_id", "postgres": "(queue_id || '')"}
"""The id as a value that no index has in order."""
_UNORDERED_PARENT: dict[_Dialect, str] = {"sqlite": "+parent_id", "postgres": "(parent_id || '')"}
_FLOOR: dict[_Dialect, str] = {"sqlite": "CAST({} AS INTEGER)", "postgres": "trunc({})::integer"}


def find(query: JobQuery, dialect: _Dialect) -> tuple[str, list[object]]:
    where, values = _where(query, dialect)
    after = f"queue_id {'<' if query.newest_first else '>'} ?"
    order = f"queue_id {'DESC' if query.newest_first else 'ASC'}"
    if query.by_priority:
        order = f"priority DESC, {order}"
    if query.after is not None and query.by_priority:
        where.append(f"(priority < ? OR (priority = ? AND {after}))")
        values += [query.after_priority, query.after_priority, query.after]
    elif query.after is not None:
        where.append(after)
        values.append(query.after)
    if query.waiting or query.statuses == {Status.IN_PROGRESS}:
        # There are few of them. In order of ids, all rows would be read for them.
        order = order.replace("queue_id", _UNORDERED[dialect])
    elif dialect == "sqlite" and query.top_level and not (query.by_priority or query.statuses):
        return _newest_of_each_type(query, where, values, order)
    # Without statistics, SQLite would choose the index of all jobs in progress.
    chosen = " INDEXED BY idx_unified_queue_waiting" if query.waiting and dialect == "sqlite" else ""
    found = f"FROM unified_queue{chosen} WHERE {' AND '.join(where) or 'TRUE'} ORDER BY {order} LIMIT ?"
    if query.statuses == {Status.FAILED} or (dialect == "sqlite" and query.item_type is not None):
        # An index has the columns of most filters. Sorted as whole rows, 100,000 of them took a second.
        found = f"FROM unified_queue WHERE queue_id IN (SELECT queue_id {found}) ORDER BY {order}"
    return f"SELECT {', '.join(JOB_COLUMNS)} {found}", [*values, query.limit]


def _newest_of_each_type(
    query: JobQuery, where: list[str], values: list[object], order: str
) -> tuple[str, list[object]]:
    """Jobs without a parent. Children, of which there may be a thousand times as many, are not read."""
    types = [query.item_type] if query.item_type is not None else ITEM_TYPES
    one = (
        "SELECT * FROM (SELECT queue_id FROM unified_queue INDEXED BY idx_unified_queue_item_type"
        f" WHERE item_type = ? AND {' AND '.join(where)} ORDER BY {order} LIMIT ?)"
    )
    ids = f"SELECT queue_id FROM ({' UNION ALL '.join([one] * len(types))}) ORDER BY {order} LIMIT ?"
    every = [value for name in types for value in (name, *values, query.limit)]
    found = f"FROM unified_queue WHERE queue_id IN ({ids}) ORDER BY {order}"
    return f"SELECT {', '.join(JOB_COLUMNS)} {found}", [*every, query.limit]


def failures(
    select: Callable[[str, list[object]], list[Any]],
    query: JobQuery,
    dialect: _Dialect,
    limit: int,
    now: datetime,
) -> FailureGroups:
    """Groups of failed jobs: two statements over the index of reasons, the second one for the buckets."""
    where, values = _failed(query, dialect)
    found = select(
        "SELECT error_reason, count(*), min(last_error_at), max(last_error_at), max(queue_id),"
        " sum(count(*)) OVER (), min(min(last_error_at)) OVER ()"
        f" FROM unified_queue WHERE {where} GROUP BY error_reason"
        " ORDER BY count(*) DESC, error_reason LIMIT ?",
        [*values, limit],
    )
    timed = [(*row[:2], _moment(row[2]), _moment(row[3]), *row[4:6]) for row in found]
    step = bucket_step(_moment(found[0][6]) if found else None, now)
    reasons = [row[0] for row in found]
    bucket = _FLOOR[dialect].format(f"{_AGE[dialect]} / ?")
    marks = ", ".join("?" * len(reasons))
    buckets = found and select(
        f"SELECT error_reason, {bucket}, count(*) FROM unified_queue"
        f" WHERE {where} AND error_reason IN ({marks}) GROUP BY 1, 2",
        [now.timestamp(), step.total_seconds(), *values, *reasons],
    )
    return counted_failures(timed, buckets, step)


def _moment(value: Any) -> datetime:
    """A time, which SQLite stores as text."""
    return read_time(value) if isinstance(value, str) else value


def _failed(query: JobQuery, dialect: _Dialect) -> tuple[str, list[object]]:
    # Only failed jobs have a reason. The index of SQLite has no status, that of PostgreSQL begins with it.
    statuses = frozenset() if dialect == "sqlite" else frozenset({Status.FAILED})
    where, values = _where(msgspec.structs.replace(query, statuses=statuses), dialect)
    return " AND ".join(["error_reason IS NOT NULL", *where]), values


def count(
    query: JobQuery, dialect: _Dialect, by: Sequence[str], cap: int | None = None
) -> tuple[str, list[object]]:
    where, values = _where(query, dialect)
    if dialect == "sqlite" and query.top_level and not (query.statuses or query.item_type):
        # A range of the index for each type, instead of the whole table.
        where.append(f"item_type IN ({', '.join(repr(name) for name in ITEM_TYPES)})")
    if cap is not None and not by:
        found = f"SELECT 1 FROM unified_queue WHERE {' AND '.join(where) or 'TRUE'} LIMIT ?"
        return f"SELECT count(*) FROM ({found}) AS found", [*values, cap]
    columns = "".join(f"{name}, " for name in by)
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    return (
        f"SELECT {columns}count(*) FROM unified_queue WHERE {' AND '.join(where) or 'TRUE'}{grouped}",
        values,
    )


def groups_of(rows: Iterable[Sequence[Any]], by: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """Counts by group, from rows of the group's columns and a number; without empty groups."""
    named = (
        (tuple(_column_value(name, value) for name, value in zip(by, row, strict=False)), row[-1])
        for row in rows
    )
    return {group: number for group, number in named if number}


def _column_value(name: str, value: Any) -> Any:
    """Decode the text of a column to a value of a job."""
    if value is None:
        return None
    return Status(value) if name == "status" else Held(value) if name == "held" else value


def _where(query: JobQuery, dialect: _Dialect) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []
    if query.statuses:
        # Literals, so that partial indexes on a status can be used.
        where.append("(" + " OR ".join(f"status = '{status}'" for status in sorted(query.statuses)) + ")")
    if query.top_level is not None:
        where.append("parent_id IS NULL" if query.top_level else "parent_id IS NOT NULL")
    if query.waiting:
        where.append(f"{_WAITING} AND status = 'in_progress' AND lease_until IS NULL")
    if query.prefix is not None:
        where.append("queue_id >= ? AND queue_id < ?")
        values += [query.prefix, query.prefix + "\U0010ffff"]
    if query.text is not None:
        plain, quoted = searched_texts(query.text)
        where.append("(" + " OR ".join(f"{place} > 0" for place in _SEARCHED[dialect]) + ")")
        values += [plain, plain, quoted]
    for name in _EQUAL:
        value = getattr(query, name)
        if value is not None:
            # The few children in progress among all of a parent: not by the index of children.
            few = name == "parent_id" and query.statuses == {Status.IN_PROGRESS}
            where.append(f"{_UNORDERED_PARENT[dialect] if few else name} = ?")
            values.append(str(value))
    return where, values
