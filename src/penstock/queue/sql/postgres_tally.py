"""Row counts of a PostgreSQL queue at a bounded price.

A counter would have to be written by every transaction: as a statement trigger that adds up changes it cost
12 % of a drain in batches of 100 and 24 % of one job by job. So a large table is counted as far as a bound,
kind by kind, and beyond it estimated from pages chosen by chance.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.job import Held, Status
from penstock.queue.sql.postgres_rows import Found, PostgresRows
from penstock.queue.tallies import Class, Tally

FEW_PAGES = 1_000
"""A table of so many pages, some thousand rows, is counted whole."""

SAMPLED_PAGES = 200

BOUND = 1_000
"""Rows of one kind that are counted one by one."""

_BOUNDED = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})


def tally(rows: PostgresRows) -> Tally:
    pages = int(rows.scalar("table_pages"))
    if pages <= FEW_PAGES:
        return Tally(_counts(rows.ask("tally_all")))
    percent = 100 * SAMPLED_PAGES / pages
    sample = _counts(rows.ask("tally_sample", percent=percent))
    guessed = {kind: round(number * 100 / percent) for kind, number in sample.items()}
    counted = _counts(rows.ask("tally_bounded", cap=BOUND))
    groups: Counter[tuple[Status, Held | None]] = Counter()
    for (status, held, _), number in counted.items():
        groups[status, held] += number
    full = {group for group, number in groups.items() if number >= BOUND}
    kept = {kind: number for kind, number in counted.items() if kind[:2] not in full}
    others = {kind: number for kind, number in guessed.items() if kind[0] not in _BOUNDED or kind[:2] in full}
    return Tally(kept | others, exact=False)


def _counts(found: Found) -> dict[Class, int]:
    return {_kind(*row[:3]): row[3] for row in found}


def _kind(status: str, held: str | None, item_type: Any) -> Class:
    return Status(status), None if held is None else Held(held), item_type
