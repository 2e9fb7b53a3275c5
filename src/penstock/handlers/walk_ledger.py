"""Ledger of a walk: skipped and unreadable paths, written in batches for `penstock why`."""

from __future__ import annotations

from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import LedgerEntry, LedgerKind
from penstock.handlers.context import Context
from penstock.pipeline.walk.protocol import Skipped, Unreadable


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
