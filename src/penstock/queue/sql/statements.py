"""SQL statements, loaded from files by name. Each block begins with ``-- name: xyz``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from penstock.items import ITEM_TYPES
from penstock.job import Claim, Job

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

FIXED_COLUMNS = frozenset(
    "queue_id item_type tenant_id collection branch created_at idempotency_key dedupe submitted_by "
    "lock_key limit_key backlog_key result_ttl_s parent_id parent_run root_id".split()
)
"""Columns that identify a row; no rule changes them."""

CHANGING_COLUMNS = tuple(name for name in JOB_COLUMNS if name not in FIXED_COLUMNS)


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


class QueueStatements(dict[str, str]):
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
def load(dialect: str) -> QueueStatements:
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
    return QueueStatements(blocks, lists, dialect)


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
