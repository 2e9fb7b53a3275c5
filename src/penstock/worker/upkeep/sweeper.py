"""Keeps the catalog tidy: what no generation shows any more goes, and tasks of silent workers come back."""

from __future__ import annotations

import logging
from datetime import timedelta

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import outcomes
from penstock.catalog.rules.publication import UNFINISHED
from penstock.catalog.values import OutboxEntryKind

AT_ONCE = 100
SWEEPS = 4
"""Transactions of one step at most."""
KEPT = timedelta(days=7)
"""How long tombstones and cached vectors of texts nobody has any more are remembered."""

log = logging.getLogger("penstock.upkeep")


class Sweeper:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def clear_leftovers(self) -> bool:
        entries = self._catalog.outbox(OutboxEntryKind.LEFTOVER, limit=AT_ONCE)
        if not entries:
            return False
        ids = [entry.entry_id for entry in entries]
        over = any(self._catalog.clear(ids) for _ in range(SWEEPS))
        return not over or len(entries) == AT_ONCE

    def take_back(self, lease: timedelta) -> bool:
        """Give up tasks whose worker showed no sign of life for longer than ``lease``."""
        late = self._catalog.expired(lease=lease, limit=AT_ONCE)
        if late:
            log.warning("%d tasks are taken back: their workers gave no sign of life", len(late))
            self._catalog.settle([outcomes.lost(claim) for claim in late])
        return len(late) == AT_ONCE

    def drop_unfinished(self, lease: timedelta) -> bool:
        """Drop large generations whose writer wrote no part for longer than ``lease``."""
        unfinished = self._catalog.unfinished(silent=lease, limit=AT_ONCE)
        for document_id in unfinished:
            if self._catalog.drop(document_id, UNFINISHED):
                log.warning("generation %d is dropped: %s", document_id, UNFINISHED)
        return len(unfinished) == AT_ONCE

    def forget(self) -> bool:
        return self._catalog.sweep(clock.now() - KEPT) > 0
