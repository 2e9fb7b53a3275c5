"""The row of the ledger of unindexed paths.

Apart from ``written_records``: a walk in which no file has changed may write it, and no other row.
"""

from __future__ import annotations

from penstock.catalog.sql.row_types import RowType
from penstock.catalog.values import Place
from penstock.named_tuple import NamedTuple


class LedgerRow(NamedTuple):
    place: Place
    path: str
    kind: str
    rule: str
    cause: str
    remedy: str
    job_id: str | None
    at: str


LEDGER_ROW = RowType(LedgerRow)
