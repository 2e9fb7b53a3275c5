"""Rows of outside stores: attached stores, and texts to be removed from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock import clock
from penstock.catalog.parts import (
    AttachedStore,
    FillProgress,
    OutsideStore,
    PendingRemoval,
    StoredText,
    StoredVector,
    StoreFill,
)
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.sql.statements import Statements, column, listed
from penstock.clock import format_time

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog

LATE_WRITES = timedelta(minutes=5)
"""Wait before a text is removed whose task was running: longer than a call to a store lasts."""
_IDS_AT_ONCE = 10_000
_CATALOG_ID = "catalog"
"""Name of the number that tells catalogs apart, made when the first store is attached."""


class CatalogOutsideStores:
    """The outside stores of one catalog."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def attach(self, store: OutsideStore, address: str) -> AttachedStore:
        return self._catalog.write(lambda rows: _attach(rows, store, address))

    def detach(self, store: OutsideStore) -> None:
        self._catalog.write(lambda rows: _detach(rows, store))

    def attached(self, store: OutsideStore) -> AttachedStore | None:
        with self._catalog.snapshot() as snapshot:
            return _attached(snapshot.rows, store)

    def set_filled(self, store: OutsideStore, address: str, *, filled: bool) -> None:
        self._catalog.write(lambda rows: rows.send("set_filled", filled, store, address))

    def begin_fill(
        self, store: OutsideStore, address: str, lease: timedelta, *, now: datetime | None = None
    ) -> StoreFill | None:
        at = now or self._catalog.now()
        until = format_time(at + lease)
        found = self._catalog.write(
            lambda rows: rows.one("begin_fill", until, store, address, format_time(at))
        )
        return StoreFill(*found) if found is not None else None

    def advance_fill(self, store: OutsideStore, fill: StoreFill, last: int, count: int) -> None:
        self._catalog.write(lambda rows: rows.send("advance_fill", last, count, store, fill.number))

    def end_fill(self, store: OutsideStore, fill: StoreFill) -> bool:
        return self._catalog.write(lambda rows: rows.one("end_fill", store, fill.number) is not None)

    def leave_fill(self, store: OutsideStore, fill: StoreFill) -> None:
        self._catalog.write(lambda rows: rows.send("leave_fill", store, fill.number))

    def fill_progress(self, store: OutsideStore) -> FillProgress | None:
        with self._catalog.snapshot() as snapshot:
            found = snapshot.rows.one("fill_progress", store)
            if found is None:
                return None
            address, filled, copied, copied_to = found
            last = snapshot.rows.value(f"last_{store}_text") or 1
        percent = 100 if filled else min(100 * copied_to // last, 99)
        return FillProgress(address, bool(filled), copied, percent)

    def pending_removals(
        self, store: OutsideStore, limit: int, *, now: datetime | None = None
    ) -> list[PendingRemoval]:
        at = format_time(now or self._catalog.now())
        with self._catalog.snapshot() as snapshot:
            found = snapshot.rows.all("pending_removals", store, at, limit)
        return [PendingRemoval(number, StoredText(*text)) for number, *text in found]

    def forget_removals(self, store: OutsideStore, removal_ids: Sequence[int]) -> None:
        if removal_ids:
            self._catalog.write(lambda rows: rows.send("forget_removals", store, listed(removal_ids)))

    def spaces(self) -> list[str]:
        with self._catalog.snapshot() as snapshot:
            return column(snapshot.rows.all("space_names"))

    def vector_ids(self, space: str) -> set[int]:
        with self._catalog.snapshot() as snapshot:
            batches = snapshot.rows.batches("vector_ids", _IDS_AT_ONCE, space)
            return {number for batch in batches for (number,) in batch}

    def vectors(self, space: str, content_ids: Sequence[int]) -> list[StoredVector]:
        with self._catalog.snapshot() as snapshot:
            found = snapshot.rows.all("copied_vectors", space, listed(content_ids))
        return [StoredVector(*row) for row in found]

    def vectors_after(self, content_id: int, limit: int) -> dict[str, list[StoredVector]]:
        found: dict[str, list[StoredVector]] = {}
        with self._catalog.snapshot() as snapshot:
            for space, *row in snapshot.rows.all("vectors_after", content_id, limit):
                found.setdefault(space, []).append(StoredVector(*row))
        return found

    def outer_texts(self, store: OutsideStore, count: int) -> dict[str, set[int]]:
        with self._catalog.snapshot() as snapshot:
            if store is OutsideStore.GRAPH:
                outer = column(snapshot.rows.all("outer_graph_texts", count))
                return {"": set(column(snapshot.rows.all(f"copied_texts_{EXTRACTING}", listed(outer))))}
            found: dict[str, set[int]] = {}
            for space, content_id in snapshot.rows.all("outer_vectors", count):
                found.setdefault(space, set()).add(content_id)
            return found

    def wanted(self, space: str, content_ids: Sequence[int]) -> set[int]:
        with self._catalog.snapshot() as snapshot:
            return set(column(snapshot.rows.all("wanted_vectors", space, listed(content_ids))))

    def withdraw(self, store: OutsideStore, texts: Sequence[StoredText]) -> None:
        now = self._catalog.now()
        self._catalog.write(lambda rows: _withdraw(rows, store, texts, now))


def _attached(rows: Statements, store: OutsideStore) -> AttachedStore | None:
    found = rows.one("attached_store", store)
    return None if found is None else AttachedStore(found[0], bool(found[1]), f"{found[2]:012x}")


def _attach(rows: Statements, store: OutsideStore, address: str) -> AttachedStore:
    rows.hold("outside_stores")
    known = _attached(rows, store)
    if known is not None and known.address == address:
        return known
    _detach(rows, store)
    filled = rows.value(f"any_{store}_copied") is None
    if not rows.value("sequence", _CATALOG_ID):
        rows.send("set_catalog_id", _CATALOG_ID, int(clock.new_uuids(1)[0][-12:], 16) or 1)
    rows.send("attach_store", store, address, filled)
    attached = _attached(rows, store)
    assert attached is not None
    return attached


def _detach(rows: Statements, store: OutsideStore) -> None:
    rows.send("detach_store", store)
    rows.send("forget_all_removals", store)


def _withdraw(rows: Statements, store: OutsideStore, texts: Sequence[StoredText], now: datetime) -> None:
    removals = RemovalRows(rows, now)
    by_owner: dict[tuple[str, str], list[int]] = {}
    for text in texts:
        by_owner.setdefault((text.tenant_id, text.space), []).append(text.content_id)
    for (tenant_id, space), ids in sorted(by_owner.items()):
        wanted = ("wanted_vectors", space) if store is OutsideStore.VECTOR else ("texts_there",)
        there = set(column(rows.all(*wanted, listed(ids))))
        removals.add(store, tenant_id, [number for number in ids if number not in there], space)
    removals.flush()


class RemovalRows:
    """Removals of one transaction, recorded for the attached stores. Without any, nothing is recorded."""

    def __init__(self, rows: Statements, now: datetime) -> None:
        self._rows = rows
        self._at = format_time(now)
        self._late = format_time(now + LATE_WRITES)
        self._stores = frozenset(column(rows.all("outside_stores")))
        self._spaces: list[str] | None = None
        self._found: list[tuple[str, str, int, str, str]] = []

    def add(
        self,
        store: OutsideStore,
        tenant_id: str,
        content_ids: Iterable[int],
        space: str = "",
        *,
        late: bool = False,
    ) -> None:
        """Record texts for one store, if it is attached. ``late``: tasks of them may be running."""
        if store in self._stores:
            due_at = self._late if late else self._at
            self._found += [(store, tenant_id, number, space, due_at) for number in content_ids]

    def add_texts(self, tenant_id: str, content_ids: Sequence[int], *, late: bool = False) -> None:
        """Record deleted texts, for all attached stores and all vector spaces."""
        if not self._stores or not content_ids:
            return
        if self._spaces is None:
            self._spaces = column(self._rows.all("space_names"))
        self.add(OutsideStore.GRAPH, tenant_id, content_ids, late=late)
        for space in self._spaces:
            self.add(OutsideStore.VECTOR, tenant_id, content_ids, space, late=late)

    def add_vectors(self, tenant_id: str, space_id: int, content_ids: Sequence[int]) -> None:
        """Record texts removed from one vector space."""
        if OutsideStore.VECTOR in self._stores and content_ids:
            space = self._rows.value("space_name", space_id)
            self.add(OutsideStore.VECTOR, tenant_id, content_ids, space)

    def flush(self) -> None:
        if self._found:
            numbers = self._rows.numbers("row", len(self._found))
            self._rows.many(
                "add_removal", [(number, *row) for number, row in zip(numbers, self._found, strict=True)]
            )
            self._found = []
