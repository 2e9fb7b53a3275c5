"""What the catalog knows below a path, a page at a time: a million sources need no more memory than ten."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.catalog.answers import KnownSource
from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import Place


def known_sources(
    catalog: Catalog, place: Place, folder: str | None = None, *, after: str = ""
) -> Iterator[KnownSource]:
    """Sources at or below a folder (None: all of the place) by path, from the first beyond ``after``."""
    while True:
        # A snapshot each time: reading them all is long, and an old one would keep the log from shrinking.
        with catalog.snapshot() as snapshot:
            page = snapshot.known(place, folder, after=after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path
