"""Options and report of an import."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.legacy.rows import RowOutcome, RowReport
from penstock.named_tuple import NamedTuple

PENSTOCK = "penstock"
"""Kind of an import from another store of Penstock."""


@dataclasses.dataclass
class ImportReport:
    """Counts of an import: rows by table and outcome, and the result of the verification."""

    kind: str
    source: str
    dry_run: bool
    total: int
    tables: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    verified: bool | None = None
    differences: list[RowReport] = dataclasses.field(default_factory=list)
    """The first rows that the queue does not hold as they are in the source."""
    retired: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further facts of one kind, such as checksums."""

    def add(self, reports: Sequence[RowReport]) -> None:
        for report in reports:
            self.tables.setdefault(report.table, Counter())[report.outcome.value] += 1

    @property
    def counts(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for counted in self.tables.values():
            total += counted
        return {outcome.value: total[outcome.value] for outcome in RowOutcome}

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


OnRows: TypeAlias = Callable[[Sequence[RowReport], ImportReport], None]


class ImportOptions(NamedTuple):
    """Options of an import: dry run, comparison, and removal of the source."""

    dry_run: bool = False
    verify: bool = False
    retire: bool = False
    drop: bool = False
    source_catalog: str | None = None
    """URL of the catalog of another store of Penstock, if it is not in the same database."""
