"""Stores from settings. Nothing is connected, and no driver imported, before the first use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.catalog.outside_stores import OutsideStore
from penstock.config import Settings
from penstock.errors import DriverMissing
from penstock.extras import install_remedy
from penstock.graph_stores.address import GraphStoreUrl

if TYPE_CHECKING:
    from penstock.catalog.graph import GraphReader
    from penstock.catalog.protocol import Catalog
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


def open_graph_reader(settings: Settings, catalog: Catalog) -> GraphReader:
    """The graph as it is shown: from the store of the settings if it has everything, else the catalog's."""
    store = open_graph_store(settings)
    if store is None:
        return catalog.graph
    attached = catalog.outside.attached(OutsideStore.GRAPH)
    if attached is None or not attached.filled or attached.address != store.address:
        return catalog.graph
    from penstock.graph_stores.reader import CopyReader

    return CopyReader(store, attached.catalog_id, catalog.graph_texts)


def forget_graph_store(catalog: Catalog) -> None:
    """Forget a store that was used before: nobody would clear the records of removals any more."""
    if catalog.outside.attached(OutsideStore.GRAPH) is not None:
        catalog.outside.detach(OutsideStore.GRAPH)
