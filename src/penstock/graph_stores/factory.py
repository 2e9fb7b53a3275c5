"""Stores from settings. Nothing is connected, and no driver imported, before the first use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.config import Settings
from penstock.errors import DriverMissing
from penstock.extras import install_remedy
from penstock.graph_stores.address import GraphStoreUrl

if TYPE_CHECKING:
    from penstock.graph_stores.protocol import GraphCopy

DEFAULT = "default"


def open_graph_store(settings: Settings) -> GraphCopy | None:
    """Make the store of the settings; None: the graph is read from the catalog."""
    if settings.graph_store == DEFAULT:
        return None
    if find_spec("neo4j") is None:
        raise DriverMissing(
            "the graph store needs the package neo4j, which is not installed", remedy=install_remedy("neo4j")
        )
    from penstock.graph_stores.neo4j import Neo4jCopy

    return Neo4jCopy(GraphStoreUrl(settings.graph_store), settings.graph_store_timeout_s)
