"""Cursors over the catalog for a walk. Disk and catalog are both read in the order of paths."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.catalog.views import KnownSource


class CatalogCursor:
    """Known sources below a root, in order: those before a path, then the one at the path."""

    def __init__(self, catalog: Catalog, place: Place, root: str) -> None:
        self._sources = known_below(catalog, place, root)
        self._next = next(self._sources, None)
        self.any = self._next is not None

    def before(self, path: str) -> Iterator[KnownSource]:
        while self._next is not None and self._next.path < path:
            yield self._next
            self._next = next(self._sources, None)

    def at(self, path: str) -> KnownSource | None:
        if self._next is None or self._next.path != path:
            return None
        found, self._next = self._next, next(self._sources, None)
        return found

    def rest(self) -> Iterator[KnownSource]:
        while self._next is not None:
            yield self._next
            self._next = next(self._sources, None)
