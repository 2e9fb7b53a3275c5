"""Row counts of a SQLite queue at a bounded price.

Counters written with every transaction cost 12 to 20 % of a single enqueue and of a drain job by job. So a
large table is counted as far as a bound, kind by kind, and beyond it estimated from rows at equal distances.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.queue.sqlite.rows import SQL, SqliteRows, column_value
from penstock.row_counts import BOUND, Class, RowCounts, combined

FEW_ROWS = 5_000
"""A table whose row numbers span no more than this is counted whole."""

SAMPLED_ROWS = 400


def tally(rows: SqliteRows) -> RowCounts:
    first, last = rows.cursor.execute(SQL["row_range"]).fetchone()
    if first is None or last - first < FEW_ROWS:
        return RowCounts(_counts(rows, "tally_all"))
    distance = (last - first + 1) / SAMPLED_ROWS
    numbers = [int(first + distance * (place + 0.5)) for place in range(SAMPLED_ROWS)]
    sample = _counts(rows, "tally_sample", msgspec.json.encode(numbers).decode())
    return combined(_counts(rows, "tally_bounded", BOUND), sample, distance)


def _counts(rows: SqliteRows, name: str, *values: Any) -> dict[Class, int]:
    return {
        (column_value("status", status), column_value("held", held), item_type): number
        for status, held, item_type, number in rows.cursor.execute(SQL[name], values).fetchall()
    }
