"""Stores from settings. Nothing is connected, and no driver imported, before the first use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.config import GRAPH_STORE_SCHEMES, NO_STORE, Settings
from penstock.errors import DriverMissing
from penstock.extensions import ExtensionKind, find, install_remedy
from penstock.graph_stores.protocol import GraphStoreUrl

if TYPE_CHECKING:
    from penstock.graph_stores.protocol import GraphCopy


def open_graph_store(settings: Settings) -> GraphCopy | None:
    """Make the store of the settings; None: the graph is read from the catalog."""
    if settings.graph_store == NO_STORE:
        return None
    scheme = settings.graph_store.partition("://")[0]
    added = None if scheme in GRAPH_STORE_SCHEMES else find(ExtensionKind.GRAPH_STORE, scheme)
    if added is not None:
        store: GraphCopy = added.call(settings.graph_store, settings.graph_store_timeout_s)
        return store
    if find_spec("neo4j") is None:
        raise DriverMissing(
            "the graph store needs the package neo4j, which is not installed", remedy=install_remedy("neo4j")
        )
    from penstock.graph_stores.neo4j import Neo4jCopy

    return Neo4jCopy(GraphStoreUrl(settings.graph_store), settings.graph_store_timeout_s)
