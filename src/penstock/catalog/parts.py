"""Parts of a catalog with protocols of their own: the graph, stores outside, imported rows and projects."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from penstock.catalog.graph import GraphStore, GraphTexts


class OutsideStore(enum.StrEnum):
    """Part of the catalog copied by an outside store."""

    VECTOR = "vector"
    GRAPH = "graph"


class AttachedStore(msgspec.Struct, frozen=True):
    """The store in use. ``address``: its URL without password. ``filled``: it has all that is published.
    ``catalog_id`` tells the copies of several catalogs in one store apart."""

    address: str
    filled: bool
    catalog_id: str


class StoreFill(msgspec.Struct, frozen=True):
    """The right to fill a store, until another worker takes over. ``copied_to``: the last copied text."""

    number: int
    copied_to: int


class FillProgress(msgspec.Struct, frozen=True):
    """Share of the catalog copied to a store. ``copied``: vectors or texts since the fill began."""

    address: str
    filled: bool
    copied: int
    percent: int


class StoredText(msgspec.Struct, frozen=True):
    """A text in a store. ``space``: the vector space; empty in other stores."""

    tenant_id: str
    content_id: int
    space: str = ""


class StoredVector(msgspec.Struct, frozen=True):
    """A vector of the catalog, published or not, for a copy in another store."""

    content_id: int
    tenant_id: str
    source_key: int
    vector: bytes


class PendingRemoval(msgspec.Struct, frozen=True):
    """A text to be removed from a store. ``tenant_id`` is empty where the source is unknown."""

    removal_id: int
    text: StoredText


class OutsideStores(Protocol):
    """The outside stores of a catalog, which copy a part of it, and texts still to be removed from them.

    The catalog is the truth. A task writes to the store first and settles afterwards, so a published document
    is always in the store. A transaction that removes texts records them here, and upkeep removes them from
    the store afterwards. A text number is never used twice, so a late removal hits no other text. Every call
    is one transaction.
    """

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


class ImportedRow(msgspec.Struct, frozen=True):
    """A row of another queue, and the job that it became a part of. ``name``: its table, list or file."""

    name: str
    row_id: str
    outcome: str
    job_id: str | None


class ImportLedger(Protocol):
    """Rows imported from other queues, by kind and address of their store."""

    def imported(self, kind: str, source: str, name: str, row_ids: Sequence[str]) -> dict[str, ImportedRow]:
        """The recorded ones of these rows, by id."""

    def record_imports(self, kind: str, source: str, rows: Sequence[ImportedRow]) -> None:
        """Record rows, each once in a call. A row that was recorded before is replaced."""


class PortableTable(msgspec.Struct, frozen=True):
    """A table of a catalog in a form readable by every catalog."""

    name: str
    columns: tuple[str, ...]


class CatalogRows(Protocol):
    """The rows of a catalog at one moment."""

    numbers: Mapping[str, int]
    """The last number of a row and of a change."""

    def tables(self) -> list[PortableTable]:
        """All tables in dependency order: referenced tables first."""

    def rows(self, table: PortableTable) -> Iterator[Sequence[Sequence[Any]]]:
        """The rows of a table in batches, in the same order from every catalog."""

    def count(self, table: PortableTable) -> int:
        """Number of rows of a table."""


class CatalogTransfer(Protocol):
    """All rows of a catalog, read at one moment or put into an emptied catalog."""

    def reading(self) -> AbstractContextManager[CatalogRows]:
        """Read the rows of one moment: when the context was entered."""

    def is_empty(self) -> bool:
        """Check that the catalog has no documents."""

    def begin_restore(self) -> None:
        """Delete all rows and mark the catalog as unfinished, as ``Queue.begin_restore`` does."""

    def refuse_unknown(self, table: PortableTable) -> None:
        """Raise ``SchemaMismatch`` for a table or column unknown to this catalog."""

    def restore(self, table: PortableTable, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows. Tasks in progress become pending."""

    def end_restore(self, numbers: Mapping[str, int]) -> None:
        """Go on with the numbers of the other catalog, and remove the mark."""

    def restore_unfinished(self) -> bool:
        """Check whether the catalog has the mark."""


class ProjectRoot(msgspec.Struct, frozen=True):
    """The top folder of a project, and the tenant its documents have since it was first indexed.

    ``remote``: the normalised remote at that time, without user and password; empty without one.
    """

    root: str
    tenant_id: str
    name: str
    remote: str


class ProjectRoots(Protocol):
    """Top folders of projects: work trees of git repositories that were indexed."""

    def all(self) -> list[ProjectRoot]:
        """All of them, by name and folder."""

    def at(self, roots: Sequence[str]) -> list[ProjectRoot]:
        """The recorded ones of these folders."""

    def record(self, project: ProjectRoot) -> ProjectRoot:
        """Record a folder. A recorded folder keeps its tenant, and is returned as it was recorded first."""

    def move(self, old: str, new: str) -> bool:
        """Give a project another folder; False if the old one is unknown."""


class CatalogParts(Protocol):
    """Parts of a catalog beside its documents and tasks."""

    @property
    def graph(self) -> GraphStore:
        """The entities and relations found in the texts of this catalog."""

    @property
    def graph_texts(self) -> GraphTexts:
        """Entities and relations of each text, for a copy in another store."""

    @property
    def outside(self) -> OutsideStores:
        """Stores outside the catalog with a copy of a part."""

    @property
    def imports(self) -> ImportLedger:
        """Rows imported from other queues."""

    @property
    def transfer(self) -> CatalogTransfer:
        """All rows, for backups and for moves between stores."""

    @property
    def projects(self) -> ProjectRoots:
        """Top folders of projects."""
