"""Making documents invisible, whole batches at a time."""

from __future__ import annotations

from datetime import datetime

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place, Removal


def remove_all(catalog: Catalog, removal: Removal) -> int:
    """Batch after batch, until nothing is left to make invisible; how many sources went."""
    total = 0
    while True:
        removed = catalog.remove(removal)
        total += removed.sources
        if not removed.more:
            return total


def removal_of_one(place: Place, path: str, asked_at: datetime) -> Removal:
    """Of this document alone: where a folder has taken its place, what is in it stays."""
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=path,
        below=False,
        asked_at=asked_at,
    )
