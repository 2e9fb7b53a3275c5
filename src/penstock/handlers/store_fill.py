"""Fill of an outside store: copies of missing texts, and a regular check for lost ones.

One worker fills a store at a time. The catalog knows the last copied text, so the next worker goes on there
after a crash. New texts are written by their tasks meanwhile, and searches read the catalog until the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from penstock import clock
from penstock.catalog.outside_stores import OutsideStore, OutsideStores, StoreFill
from penstock.errors import ServiceUnavailable
from penstock.named_tuple import NamedTuple

LEASE = timedelta(seconds=60)
"""Time without a batch after which another worker goes on. Both writing the same batch does no harm."""
CHECK_S = 60.0
"""Time between two looks at a sample of a filled store."""
OTHERS_S = 5.0
"""Time between two attempts to fill a store that another worker is filling."""
SAMPLE = 50
"""Texts at either end of the catalog that are looked for: a store from a backup lacks the newest."""

log = logging.getLogger("penstock.upkeep")


class CopiedBatch(NamedTuple):
    """The number of the last copied text, and how many vectors or texts were copied."""

    last: int
    size: int


class StoreFiller:
    """Fills one store. ``copy`` copies the texts after a number; None: there are none.

    ``lacks`` looks for some texts, by space, in the store, and returns whether it has lost one. ``finish``
    removes what the store has and the catalog has not, at the end of a fill.
    """

    def __init__(
        self,
        outside: OutsideStores,
        store: OutsideStore,
        address: str,
        copy: Callable[[int], CopiedBatch | None],
        lacks: Callable[[dict[str, set[int]]], bool],
        finish: Callable[[], None],
    ) -> None:
        self._outside = outside
        self._store = store
        self._address = address
        self._copy = copy
        self._lacks = lacks
        self._finish = finish
        self._check_at = 0.0
        self._ask_at = 0.0

    def run(self) -> bool:
        """Copy one batch, if the store lacks some; return whether there may be more.

        Raises ``ServiceUnavailable`` while the store cannot be used.
        """
        attached = self._outside.attached(self._store)
        if attached is None or attached.address != self._address:
            return False
        if attached.filled and not self._has_lost_some():
            return False
        if clock.elapsed_s() < self._ask_at:
            return False
        fill = self._outside.begin_fill(self._store, self._address, LEASE)
        if fill is None:
            self._ask_at = clock.elapsed_s() + OTHERS_S
            return False
        try:
            return self._copy_some(fill)
        except ServiceUnavailable:
            self._outside.leave_fill(self._store, fill)
            raise

    def _copy_some(self, fill: StoreFill) -> bool:
        name = f"the {self._store} store {self._address}"
        if fill.copied_to == 0:
            log.info("filling %s from the catalog", name)
        batch = self._copy(fill.copied_to)
        if batch is not None:
            self._outside.advance_fill(self._store, fill, batch.last, batch.size)
            return True
        self._finish()
        if not self._outside.end_fill(self._store, fill):
            return True
        log.info("%s is filled", name)
        return False

    def _has_lost_some(self) -> bool:
        """Check a sample from time to time. A store with a missing sample is filled from the beginning."""
        if clock.elapsed_s() < self._check_at:
            return False
        if self._lacks(self._outside.outer_texts(self._store, SAMPLE)):
            log.warning("the %s store %s has lost data, and is filled again", self._store, self._address)
            self._outside.set_filled(self._store, self._address, filled=False)
            return True
        self._check_at = clock.elapsed_s() + CHECK_S
        return False
