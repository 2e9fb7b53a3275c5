"""One model makes all vectors of a catalog, and only a command changes which: none is mixed in unnoticed."""

from __future__ import annotations

import logging

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.errors import FingerprintMismatch
from penstock.handlers.registry import NotHandledHere
from penstock.pipeline.embed.protocol import Embedder, space_of

log = logging.getLogger("penstock.worker")


class ModelCheck:
    """Ours, beside the catalog's."""

    def __init__(self, catalog: Catalog, embedder: Embedder) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._logged = ""

    def check(self) -> None:
        """Give the jobs back, no retry spent, for a worker that has the catalog's model."""
        try:
            check_model(self._catalog, self._embedder)
        except FingerprintMismatch as mismatch:
            if mismatch.message != self._logged:
                log.warning("nothing is indexed here: %s %s", mismatch.message, mismatch.remedy)
            self._logged = mismatch.message
            raise NotHandledHere(f"{mismatch.message}. {mismatch.remedy}") from None
        self._logged = ""


def check_model(catalog: Catalog, embedder: Embedder) -> None:
    """Raises ``FingerprintMismatch`` when the catalog is another model's. The first to come to a catalog
    that has no documents says whose it is."""
    own_space = space_of(embedder)
    with catalog.snapshot() as snapshot:
        catalog_space = snapshot.fingerprints().get(Phase.VECTOR)
        if catalog_space == own_space:
            return
        if catalog_space is not None and snapshot.tenants():
            raise model_mismatch(catalog_space, own_space)
    catalog.set_fingerprints({Phase.VECTOR: own_space}, replace=catalog_space is not None)


def model_mismatch(catalog_space: str, own_space: str) -> FingerprintMismatch:
    return FingerprintMismatch(
        f"the vectors here are made with {catalog_space}, and this would make them with {own_space}"
    )
