"""Counts of the rows of a PostgreSQL queue, at a bounded price."""

from __future__ import annotations

from typing import Any

from penstock.job import Held, Status
from penstock.queue.postgres.pause_rows import Found
from penstock.queue.postgres.rows import PostgresRows
from penstock.row_counts import BOUND, Class, RowCounts, combined

FEW_PAGES = 1_000
"""Tables up to this number of pages, some thousand rows, are counted exactly."""

SAMPLED_PAGES = 200


def tally(rows: PostgresRows) -> RowCounts:
    """Count rows at a bounded price.

    A counter would have to be written by every transaction: as a statement trigger it cost 12 % of a drain in
    batches of 100, and 24 % of one job by job. So a large table is counted up to a bound, class by class, and
    estimated beyond it from random pages.
    """
    pages = int(rows.scalar("table_pages"))
    if pages <= FEW_PAGES:
        return RowCounts(_counts(rows.fetch("tally_all")))
    percent = 100 * SAMPLED_PAGES / pages
    sample = _counts(rows.fetch("tally_sample", percent=percent))
    return combined(_counts(rows.fetch("tally_bounded", cap=BOUND)), sample, 100 / percent)


def _counts(found: Found) -> dict[Class, int]:
    return {_kind(*row[:3]): row[3] for row in found}


def _kind(status: str, held: str | None, item_type: Any) -> Class:
    return Status(status), None if held is None else Held(held), item_type
