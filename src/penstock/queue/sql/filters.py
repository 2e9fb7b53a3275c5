"""SQL of a ``JobQuery``: the only place where a statement is built; each filter is a fixed fragment."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.job import JobQuery
from penstock.queue.sql.statements import JOB_COLUMNS

_EQUAL = (
    "item_type op tenant_id collection branch held worker_id lock_key idempotency_key "
    "parent_id root_id waiting_for"
).split()


def find(query: JobQuery) -> tuple[str, list[object]]:
    where, values = _where(query)
    if query.after is not None:
        where.append(f"queue_id {'<' if query.newest_first else '>'} ?")
        values.append(query.after)
    order = "DESC" if query.newest_first else "ASC"
    statement = (
        f"SELECT {', '.join(JOB_COLUMNS)} FROM unified_queue"
        f" WHERE {' AND '.join(where) or 'TRUE'} ORDER BY queue_id {order} LIMIT ?"
    )
    return statement, [*values, query.limit]


def count(query: JobQuery, by: Sequence[str]) -> tuple[str, list[object]]:
    where, values = _where(query)
    columns = "".join(f"{name}, " for name in by)
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    return (
        f"SELECT {columns}count(*) FROM unified_queue WHERE {' AND '.join(where) or 'TRUE'}{grouped}",
        values,
    )


def _where(query: JobQuery) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []
    if query.statuses:
        # Literals, so that partial indexes on a status can be used.
        where.append("(" + " OR ".join(f"status = '{status}'" for status in sorted(query.statuses)) + ")")
    if query.top_level is not None:
        where.append("parent_id IS NULL" if query.top_level else "parent_id IS NOT NULL")
    if query.prefix is not None:
        where.append("queue_id >= ? AND queue_id < ?")
        values += [query.prefix, query.prefix + "\U0010ffff"]
    for name in _EQUAL:
        value = getattr(query, name)
        if value is not None:
            where.append(f"{name} = ?")
            values.append(str(value))
    return where, values
