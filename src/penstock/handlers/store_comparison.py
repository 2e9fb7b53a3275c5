"""Outside stores compared with the catalog: fill progress, differences and repair."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta

import msgspec

from penstock import clock
from penstock.catalog.outside_stores import FillProgress, OutsideStore, OutsideStores, StoredText
from penstock.config import Settings
from penstock.errors import ServiceUnavailable
from penstock.named_tuple import NamedTuple
from penstock.store_url import StoreUrl
from penstock.vector_stores.protocol import AT_ONCE, Point, VectorStore, collection_name, prefix_of
from penstock.vocabulary import how_many

NO_STORE = "default"
MOST_PENDING = 1_000_000
LATER = timedelta(days=1)
"""Removals due within this time are left to a worker."""


class StoreProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the catalog in an outside store. ``copied``: vectors or texts of the last fill."""

    kind: str
    address: str
    filled: bool
    copied: int
    percent: int

    def unfilled(self) -> str:
        """Describe an unfilled store in one line."""
        what = how_many(self.copied, "vector" if self.kind == OutsideStore.VECTOR else "text")
        done = f"{what} copied by workers so far, about {self.percent} %"
        return f"the {self.kind} store {self.address} is not filled yet, so the catalog is read: {done}"


def store_progress(outside: OutsideStores, settings: Settings) -> list[StoreProgress]:
    """The stores in use with their fill progress; a store new in the settings has nothing yet."""
    named = {OutsideStore.VECTOR: settings.vector_store, OutsideStore.GRAPH: settings.graph_store}
    found = {kind: outside.fill_progress(kind) for kind in OutsideStore}
    for kind, url in named.items():
        if url != NO_STORE and found[kind] is None:
            found[kind] = FillProgress(StoreUrl(url).masked, filled=False, copied=0, percent=0)
    return [StoreProgress(kind=kind, **one._asdict()) for kind, one in found.items() if one is not None]


def unfilled_stores(outside: OutsideStores, settings: Settings) -> list[str]:
    """One line for each unfilled store."""
    return [one.unfilled() for one in store_progress(outside, settings) if not one.filled]


class _SpaceDifference(NamedTuple):
    """Texts without a point in a collection, and points without a text."""

    space: str
    collection: str
    missing: set[int]
    surplus: set[int]


class StoreComparison:
    """A vector store beside the vectors of the catalog. Lists all points of the store."""

    def __init__(self, outside: OutsideStores, store: VectorStore) -> None:
        self._outside = outside
        self._store = store

    def differences(self) -> Iterator[str]:
        """Describe each difference in one line."""
        name = f"the vector store {self._store.address}"
        attached = self._outside.attached(OutsideStore.VECTOR)
        if attached is None or attached.address != self._store.address:
            vectors = sum(len(self._outside.vector_ids(space)) for space in self._outside.spaces())
            if vectors:
                yield f"{name} is new and lacks {how_many(vectors, 'vector')}"
            return
        try:
            for found in self._compare(attached.catalog_id):
                if found.missing:
                    yield f"{name} lacks {how_many(len(found.missing), 'vector')} of {found.space}"
                if found.surplus:
                    yield f"{name} has {how_many(len(found.surplus), 'vector')} of {found.space} too many"
            for collection in self._unused(attached.catalog_id):
                yield f"{name} has the collection {collection}, which is of no use any more"
        except ServiceUnavailable as error:
            yield error.message

    def remove_surplus(self, catalog_id: str, copied: int) -> None:
        """Delete points of texts missing from the catalog: deleted while another store was in use.

        ``copied``: points just copied. A store with as many has no others.
        """
        spaces = self._outside.spaces()
        for collection in self._unused(catalog_id):
            self._store.drop(collection)
        there = sum(self._store.count(collection_name(catalog_id, space)) for space in spaces)
        for found in self._compare(catalog_id) if there != copied else ():
            for batch in _batches(found.surplus):
                self._store.delete(found.collection, batch)

    def fix(self) -> int:
        """Copy missing vectors from the catalog and delete surplus points; return their number."""
        address = self._store.address
        attached = self._outside.attach(OutsideStore.VECTOR, address)
        repaired = 0
        for found in self._compare(attached.catalog_id):
            if found.missing and attached.filled:
                # Until it is filled, searches read the catalog.
                self._outside.set_filled(OutsideStore.VECTOR, address, filled=False)
            repaired += self._copy(found) + len(found.surplus)
            for batch in _batches(found.surplus):
                self._store.delete(found.collection, batch)
        for collection in self._unused(attached.catalog_id):
            self._store.drop(collection)
            repaired += 1
        self._outside.set_filled(OutsideStore.VECTOR, address, filled=True)
        return repaired

    def _compare(self, catalog_id: str) -> Iterator[_SpaceDifference]:
        for space in self._outside.spaces():
            collection = collection_name(catalog_id, space)
            # In this order: what comes between the two counts as missing, and is only copied once more.
            there = self._store.ids(collection)
            known = self._outside.vector_ids(space)
            surplus = there - known - self._leaving(space)
            for batch in _batches(surplus):
                # A task has written its points and is to settle.
                surplus -= self._outside.wanted(space, batch)
            yield _SpaceDifference(space, collection, known - there, surplus)

    def _leaving(self, space: str) -> set[int]:
        """Texts with a pending removal from the store."""
        found = self._outside.pending_removals(OutsideStore.VECTOR, MOST_PENDING, now=clock.now() + LATER)
        return {one.text.content_id for one in found if one.text.space == space}

    def _unused(self, catalog_id: str) -> list[str]:
        """Collections of spaces no longer in the catalog."""
        there = self._store.collections(prefix_of(catalog_id))
        used = {collection_name(catalog_id, space) for space in self._outside.spaces()}
        return [collection for collection in there if collection not in used]

    def _copy(self, found: _SpaceDifference) -> int:
        copied = 0
        for batch in _batches(found.missing):
            vectors = self._outside.vectors(found.space, batch)
            self._store.upsert(found.collection, [Point(*one) for one in vectors])
            # Vectors of texts removed meanwhile must be removed again.
            texts = [StoredText(one.tenant_id, one.content_id, found.space) for one in vectors]
            self._outside.withdraw(OutsideStore.VECTOR, texts)
            copied += len(vectors)
        return copied


def _batches(ids: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), AT_ONCE):
        yield ordered[start : start + AT_ONCE]
