"""Parts of a catalog with protocols of their own: the graph, stores outside, imported rows and projects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.catalog.graph import GraphStore, GraphTexts
from penstock.catalog.outside_stores import OutsideStores
from penstock.named_tuple import NamedTuple


class ImportedRow(NamedTuple):
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


class PortableTable(NamedTuple):
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


class ProjectRoot(NamedTuple):
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
