"""The composition of vector stores outside the catalog: search, tasks and comparison.

No client of a store is imported before its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.catalog.protocol import Catalog
    from penstock.config import Settings
    from penstock.handlers.outside_stores import OutsideVectors, StoreComparison
    from penstock.pipeline.vectors.directory import CacheDirectory
    from penstock.pipeline.vectors.protocol import NearestVectors
    from penstock.vector_stores.protocol import VectorStore
    from penstock.worker.store_keeper import StoreKeeper


def open_vector_search(
    store: VectorStore | None, catalog: Catalog, vector_files: CacheDirectory
) -> NearestVectors:
    """Make the search in a vector store, or in the catalog's own vectors with their cache files."""
    from penstock.pipeline.vectors.cache import VectorCache

    own = VectorCache(vector_files)
    if store is None:
        return own
    from penstock.service.search import StoreSearch
    from penstock.worker.executor import Breakers

    return StoreSearch(catalog, own, store, Breakers())


def open_comparison(store: VectorStore | None, catalog: Catalog) -> StoreComparison | None:
    """Make the comparison of a vector store with the catalog."""
    if store is None:
        return None
    from penstock.handlers.outside_stores import StoreComparison

    return StoreComparison(catalog.outside, store)


def refuse_unusable(settings: Settings) -> None:
    """Raise for a vector store that cannot be used as it is set, or whose client is not installed."""
    from penstock.vector_stores.factory import open_vector_store

    open_vector_store(settings)


def keep_vectors(
    settings: Settings, open_catalog: Callable[[], Catalog], catalog: Catalog
) -> StoreKeeper | None:
    """Start the upkeep of a vector store outside the catalog, or make the catalog use none but itself."""
    from penstock.vector_stores.factory import DEFAULT

    if settings.vector_store == DEFAULT:
        attach_vectors(settings, catalog)
        return None
    from penstock.worker.store_keeper import StoreKeeper

    return StoreKeeper("vector", open_catalog, lambda opened: attach_vectors(settings, opened))


def attach_vectors(settings: Settings, catalog: Catalog) -> OutsideVectors | None:
    """Make the catalog use the vector store of the settings, or none but itself.

    A process of tasks has a store of its own: a store is not for several threads.
    """
    from penstock.catalog.parts import OutsideStore
    from penstock.vector_stores.factory import open_vector_store

    store = open_vector_store(settings)
    if store is None:
        if catalog.outside.attached(OutsideStore.VECTOR) is not None:
            catalog.outside.detach(OutsideStore.VECTOR)
        return None
    from penstock.handlers.outside_stores import OutsideVectors
    from penstock.worker.executor import Breakers

    return OutsideVectors(catalog, store, Breakers())
