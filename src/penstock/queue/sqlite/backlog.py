"""Upper bounds of the pending jobs, so that not every addition counts them.

A count reads an entry of an index for each pending job: with 8,000 of them it costs more than the addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from penstock import clock
from penstock.job import NewJob, QueueLimits
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import NO_LIMITS
from penstock.queue.sqlite.rows import SqliteRows

FEW = 200
"""Pending jobs up to which every addition counts them."""

RECOUNT_S = 1.0
"""Time for which a count is used. Rows added since are always seen, by any process; jobs that returned to the
queue, by a retry for example, are seen at the next count."""


class _Counted(NamedTuple):
    """A count: the last row number at the time, and the time until which the count is used."""

    pending: int
    last_row: int
    until: float

    def bound(self, last_row: int) -> int:
        """The largest possible number of pending jobs: the count and all later rows."""
        return self.pending + last_row - self.last_row


class BacklogBounds:
    """Counts of pending jobs for the limits of one queue. Used inside write transactions only."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, bool, str | None], _Counted] = {}

    def have_room(self, rows: SqliteRows, new: Sequence[NewJob], limits: QueueLimits) -> bool:
        """Tell whether new rows without a backlog key surely keep the limits."""
        if limits.functions is None and all(item.item_type == "function" for item in new):
            # The usual call of a function: no limit is about it, so nothing is counted.
            return True
        left = self.binding(rows, new, limits)
        return left.indexing is None and left.per_tenant is None and left.functions is None

    def binding(self, rows: SqliteRows, new: Sequence[NewJob], limits: QueueLimits) -> QueueLimits:
        """The limits, without limits certainly kept by the new rows; the rules check the others."""
        if limits == NO_LIMITS:
            return limits
        tenants = [item.tenant_id for item in new if item.item_type != "function"]
        number, functions = len(tenants), len(new) - len(tenants)
        fits = partial(self._fits, rows, rows.scalar("last_row") or 0)
        kept = {
            "indexing": fits(number, limits.indexing),
            "per_tenant": all(fits(number, limits.per_tenant, of) for of in set(tenants)),
            "functions": fits(functions, limits.functions, functions=True),
        }
        return msgspec.structs.replace(limits, **{name: None for name, kept in kept.items() if kept})

    def _fits(
        self,
        rows: SqliteRows,
        last_row: int,
        number: int,
        limit: int | None,
        tenant_id: str | None = None,
        *,
        functions: bool = False,
    ) -> bool:
        """Tell whether more rows surely fit. False: perhaps not."""
        if limit is None or not number:
            return True
        kind, now = (limit, functions, tenant_id), clock.elapsed_s()
        known = self._counted.get(kind)
        if known is None or now >= known.until or _is_used_up(known, last_row, limit - number):
            pending = rows.backlog(functions=functions, tenant_id=tenant_id, cap=limit + 1)
            known = _Counted(pending, last_row, now + RECOUNT_S)
            if pending > FEW:
                self._counted[kind] = known
            else:
                self._counted.pop(kind, None)
        return known.bound(last_row) + number <= limit


def _is_used_up(known: _Counted, last_row: int, room: int) -> bool:
    """Tell whether only a new count can decide. A count already above the limit is not repeated."""
    return last_row < known.last_row or known.pending <= room < known.bound(last_row)
