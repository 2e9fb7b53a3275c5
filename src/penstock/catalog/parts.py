"""Parts of a catalog with protocols of their own: the graph, and stores outside."""

from __future__ import annotations

from typing import Protocol

from penstock.catalog.graph import GraphStore, GraphTexts
from penstock.catalog.outside_stores import OutsideStores


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
        """Stores outside the catalog that hold a copy of a part of it."""
