"""Long readings, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import LedgerEntry, Place
from penstock.catalog.views import KnownSource


def known_below(
    catalog: Catalog, place: Place, folder: str | None = None, after: str = ""
) -> Iterator[KnownSource]:
    """All sources of a place, or at and below a folder, in the order of their paths."""
    while True:
        # A snapshot each time: it takes long, and an old one would keep the log from shrinking.
        with catalog.snapshot() as snapshot:
            page = snapshot.known(place, folder, after=after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path


def ledger_below(catalog: Catalog, place: Place, folder: str) -> Iterator[LedgerEntry]:
    """Iterate over the unindexed paths at and below a folder, by path."""
    after = ""
    while True:
        with catalog.snapshot() as snapshot:
            page = snapshot.ledger(place, folder, after=after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path


def failures_below(catalog: Catalog, place: Place, folder: str | None = None) -> Iterator[LedgerEntry]:
    """Iterate over the failed paths at and below a folder, by path."""
    after = ""
    while True:
        with catalog.snapshot() as snapshot:
            page = snapshot.failures(place, folder, after=after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path


class CatalogCursor:
    """Known sources below a root, for a walk: both are read in the order of paths."""

    def __init__(self, catalog: Catalog, place: Place, root: str) -> None:
        self._sources = known_below(catalog, place, root)
        self._next = next(self._sources, None)
        self.any = self._next is not None

    def before(self, path: str) -> Iterable[KnownSource]:
        if self._next is None or self._next.path >= path:
            # The most frequent case: the next known file is the next one found.
            return ()
        return self._until(path)

    def _until(self, path: str) -> Iterator[KnownSource]:
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
