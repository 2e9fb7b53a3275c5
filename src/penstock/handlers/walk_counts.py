"""Counts of a walk: the progress of a folder job while it walks, and its part of the job's result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import LedgerEntry, LedgerKind
from penstock.catalog.views import PublishedCount, PublishedPath
from penstock.handlers.context import Context
from penstock.pipeline.extract.file_types import suffix_of
from penstock.pipeline.walk.ignore import Rule, Skipped, Unreadable


class WalkCounts(msgspec.Struct):
    """Counts of a walk, named as in the job's result."""

    seen: int = 0
    unchanged: int = 0
    failed_before: int = 0
    """Failed permanently in an earlier walk and unchanged since: not read again."""
    other_extractor: int = 0
    """Unchanged files whose entities are of another extractor, and would be paid for again."""
    changed: int = 0
    added: int = 0
    moved: int = 0
    vanished: int = 0
    skipped: int = 0
    unreadable: int = 0
    bytes: int = 0
    """Bytes of the files to read, for an estimate of the remaining time."""
    sent: int = 0
    """Files with a child job in the queue."""
    without_job: int = 0
    """Files that need no child job."""
    inside: int = 0
    """Files inside others with a child job of this job, sent although their container is unchanged."""
    resumed: int = 0
    """Files that an earlier run of the job indexed after this request was made."""
    resumed_chunks: int = 0
    skipped_by: dict[str, int] = {}
    """Skipped paths by rule, the most frequent first."""

    def skip(self, rule: Rule) -> None:
        self.skipped += 1
        self.skipped_by[rule] = self.skipped_by.get(rule, 0) + 1

    def resume(self, published: PublishedCount, members: Sequence[PublishedPath]) -> None:
        """Count files published by an earlier run; ``members``: the files inside other files among them."""
        self.resumed = published.sources - len(members)
        self.resumed_chunks = published.chunks - sum(member.chunks for member in members)

    def as_dict(self, *, waiting: int = 0) -> dict[str, Any]:
        """All counts, and the total. ``waiting``: files found, but neither compared nor sent yet."""
        counts = {name: getattr(self, name) for name in self.__struct_fields__}
        ranked = sorted(self.skipped_by.items(), key=lambda entry: (-entry[1], entry[0]))
        total = self.without_job + self.sent + waiting
        return counts | {"skipped_by": {str(rule): count for rule, count in ranked}, "total": total}


MOST_TYPES = 40
"""Types in the result of a job. The others count as one, named ``*``."""


class TypeCounts:
    """Files of a walk by suffix: ``read`` (sent to a child job), ``unchanged`` or ``skipped``."""

    def __init__(self) -> None:
        self._by_suffix: dict[str, dict[str, int]] = {}

    def add(self, path: str, outcome: Literal["read", "unchanged", "skipped"]) -> None:
        counts = self._by_suffix.setdefault(suffix_of(path), {})
        counts[outcome] = counts.get(outcome, 0) + 1

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Counts by suffix, the most frequent first."""
        ranked = sorted(self._by_suffix.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))
        kept = dict(ranked[:MOST_TYPES])
        for _, counts in ranked[MOST_TYPES:]:
            others = kept.setdefault("*", {})
            for outcome, number in counts.items():
                others[outcome] = others.get(outcome, 0) + number
        return kept


class WalkLedger:
    """Skipped and unreadable paths below one root, since the last write."""

    def __init__(self, catalog: Catalog, context: Context, root: str) -> None:
        self._catalog = catalog
        self._context = context
        self._root = root
        self._entries: list[LedgerEntry] = []

    def path_of(self, report: Skipped | Unreadable) -> str:
        """The absolute path of a report."""
        return f"{self._root}/{report.path}" if report.path not in ("", ".") else self._root

    def record(self, report: Skipped | Unreadable) -> None:
        skipped = isinstance(report, Skipped)
        rule = str(report.rule) if isinstance(report, Skipped) else report.code
        cause = report.rule.meaning if isinstance(report, Skipped) else report.reason
        if isinstance(report, Skipped) and report.detail:
            cause = f"{cause} ({report.detail})"
        self._entries.append(
            LedgerEntry(
                place=self._context.place,
                path=self.path_of(report),
                kind=LedgerKind.SKIPPED if skipped else LedgerKind.FAILED,
                rule=rule,
                cause=cause,
                job_id=self._context.job_id,
            )
        )
        if len(self._entries) >= BATCH:
            self.write()

    def write(self) -> None:
        entries, self._entries = self._entries, []
        if entries:
            self._catalog.note(entries)
