"""The composition of graph stores outside the catalog: tasks, reads and upkeep.

No driver of a store is imported before its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.catalog.parts import OutsideStore

if TYPE_CHECKING:
    from penstock.catalog.graph import GraphReader
    from penstock.catalog.protocol import Catalog
    from penstock.config import Settings
    from penstock.graph_stores.protocol import GraphCopy
    from penstock.handlers.outside_stores import GraphCopies
    from penstock.worker.store_keeper import StoreKeeper


_DEFAULT = "default"


def open_store(settings: Settings) -> GraphCopy | None:
    """The graph store of the settings; None: the catalog's own tables."""
    if settings.graph_store == _DEFAULT:
        return None
    from importlib.util import find_spec

    from penstock.config import GRAPH_STORE_SCHEMES
    from penstock.errors import DriverMissing
    from penstock.extensions import ExtensionKind, find, install_remedy

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
    from penstock.graph_stores.protocol import GraphStoreUrl

    return Neo4jCopy(GraphStoreUrl(settings.graph_store), settings.graph_store_timeout_s)


def open_graph_copies(settings: Settings, catalog: Catalog) -> GraphCopies | None:
    """The copy of a catalog's graph in an outside store; None without one in the settings."""
    from penstock.handlers.outside_stores import GraphCopies
    from penstock.worker.executor import Breakers

    store = open_store(settings)
    return GraphCopies(catalog, store, Breakers()) if store is not None else None


def open_graph_reader(settings: Settings, catalog: Catalog) -> GraphReader:
    """A reader of the graph: on the store of the settings once completely filled, else on the catalog."""
    store = open_store(settings)
    if store is None:
        return catalog.graph
    attached = catalog.outside.attached(OutsideStore.GRAPH)
    if attached is None or not attached.filled or attached.address != store.address:
        return catalog.graph
    from penstock.graph_stores.reader import CopyReader

    return CopyReader(store, attached.catalog_id, catalog.graph_texts, catalog.graph)


def keep_graph(
    settings: Settings, open_catalog: Callable[[], Catalog], catalog: Catalog
) -> StoreKeeper | None:
    """Start the upkeep of a graph store outside the catalog, if the settings name one.

    A former store is detached: the records of its removals would never be cleared.
    """
    if settings.graph_store != _DEFAULT:
        from penstock.worker.store_keeper import StoreKeeper

        return StoreKeeper(
            OutsideStore.GRAPH, open_catalog, lambda opened: open_graph_copies(settings, opened)
        )
    if catalog.outside.attached(OutsideStore.GRAPH) is not None:
        catalog.outside.detach(OutsideStore.GRAPH)
    return None
