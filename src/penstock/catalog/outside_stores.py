"""Outside stores, which copy a part of the catalog, and texts still to be removed from them.

The catalog is the truth. A task writes to the store first and settles afterwards, so a published document is
always in the store. A transaction that removes texts records them here, and upkeep removes them from the
store afterwards. A text number is never used twice, so a late removal hits no other text.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from penstock.named_tuple import NamedTuple


class OutsideStore(enum.StrEnum):
    """Part of the catalog copied by an outside store."""

    VECTOR = "vector"
    GRAPH = "graph"


class AttachedStore(NamedTuple):
    """The store in use. ``address``: its URL without password. ``filled``: it has all that is published.
    ``catalog_id`` tells the copies of several catalogs in one store apart."""

    address: str
    filled: bool
    catalog_id: str


class StoreFill(NamedTuple):
    """The right to fill a store, until another worker takes over. ``copied_to``: the last copied text."""

    number: int
    copied_to: int


class FillProgress(NamedTuple):
    """Share of the catalog copied to a store. ``copied``: vectors or texts since the fill began."""

    address: str
    filled: bool
    copied: int
    percent: int


class StoredText(NamedTuple):
    """A text in a store. ``space``: the vector space; empty in other stores."""

    tenant_id: str
    content_id: int
    space: str = ""


class StoredVector(NamedTuple):
    """A vector of the catalog, published or not, for a copy in another store."""

    content_id: int
    tenant_id: str
    source_key: int
    vector: bytes


class PendingRemoval(NamedTuple):
    """A text to be removed from a store. ``tenant_id`` is empty where the source is unknown."""

    removal_id: int
    text: StoredText


class OutsideStores(Protocol):
    """The outside stores of a catalog. Every call is one transaction."""

    def attach(self, store: OutsideStore, address: str) -> AttachedStore:
        """Use the store at this address from now on. Another address than before begins as not filled, unless
        the catalog has nothing to be copied; removals recorded for the former store are forgotten."""

    def detach(self, store: OutsideStore) -> None:
        """Stop using an outside store, and forget the removals recorded for it."""

    def attached(self, store: OutsideStore) -> AttachedStore | None: ...

    def set_filled(self, store: OutsideStore, address: str, *, filled: bool) -> None:
        """Record whether the store has everything published; no effect if another store is in use.
        A new fill begins with the first text, and a running fill ends."""

    def begin_fill(
        self, store: OutsideStore, address: str, lease: timedelta, *, now: datetime | None = None
    ) -> StoreFill | None:
        """Take the right to fill a store, from the last copied text on. None: the store is filled,
        not in use, or another worker holds the right until its lease ends."""

    def advance_fill(self, store: OutsideStore, fill: StoreFill, last: int, count: int) -> None:
        """Record that texts up to ``last`` are copied, and give the right back. Nothing if it was lost."""

    def end_fill(self, store: OutsideStore, fill: StoreFill) -> bool:
        """Record the end of a fill. False: the right was lost."""

    def leave_fill(self, store: OutsideStore, fill: StoreFill) -> None:
        """Give the right back, with nothing copied."""

    def fill_progress(self, store: OutsideStore) -> FillProgress | None:
        """Read the progress of filling the store in use; None if no store is in use."""

    def pending_removals(
        self, store: OutsideStore, limit: int, *, now: datetime | None = None
    ) -> list[PendingRemoval]:
        """Texts to be removed from a store, oldest first. Those whose task was running when they were removed
        follow some minutes later, as the task may still write. Removing a text twice does no harm."""

    def forget_removals(self, store: OutsideStore, removal_ids: Sequence[int]) -> None:
        """Delete the records of completed removals."""

    def spaces(self) -> list[str]:
        """Names of the vector spaces of the catalog."""

    def vector_ids(self, space: str) -> set[int]:
        """Numbers of the texts with a vector in a space."""

    def vectors(self, space: str, content_ids: Sequence[int]) -> list[StoredVector]:
        """The vectors of texts in a space; deleted texts are left out."""

    def vectors_after(self, content_id: int, limit: int) -> dict[str, list[StoredVector]]:
        """The vectors of the next texts, by space. At least ``limit``, if there are as many."""

    def outer_texts(self, store: OutsideStore, count: int) -> dict[str, set[int]]:
        """The oldest and the newest texts of a filled store, by space: a cheap sample."""

    def wanted(self, space: str, content_ids: Sequence[int]) -> set[int]:
        """The texts that have a vector in a space, or are to get one by a task."""

    def withdraw(self, store: OutsideStore, texts: Sequence[StoredText]) -> None:
        """Record texts written to a store by a task that could not settle. Texts of a document, or
        of a pending task, are left out."""
