"""Model check: one model makes all vectors of a catalog, and only a command changes the model."""

from __future__ import annotations

import logging

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.errors import FingerprintMismatch
from penstock.handlers.registry import NotHandledHere
from penstock.pipeline.embed.protocol import Embedder, space_of

log = logging.getLogger("penstock.worker")


class ModelCheck:
    """This worker's embedding model, compared with the catalog's."""

    def __init__(self, catalog: Catalog, embedder: Embedder) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._logged = ""

    def check(self) -> None:
        """Release the jobs, without using a retry, if the catalog has another model."""
        try:
            check_model(self._catalog, self._embedder)
        except FingerprintMismatch as mismatch:
            if mismatch.message != self._logged:
                log.warning("this worker indexes nothing: %s %s", mismatch.message, mismatch.remedy)
            self._logged = mismatch.message
            raise NotHandledHere(f"{mismatch.message}. {mismatch.remedy}") from None
        self._logged = ""


def check_model(catalog: Catalog, embedder: Embedder) -> None:
    """Raise ``FingerprintMismatch`` if the catalog has another model.

    For a catalog without documents, record this model.
    """
    own_space = space_of(embedder)
    with catalog.snapshot() as snapshot:
        catalog_space = snapshot.fingerprints().get(Phase.VECTOR)
        if catalog_space == own_space:
            return
        if catalog_space is not None and any(one.sources for one in snapshot.tenants()):
            raise model_mismatch(catalog_space, own_space)
    catalog.set_fingerprints({Phase.VECTOR: own_space}, replace=catalog_space is not None)


def model_mismatch(catalog_space: str, own_space: str) -> FingerprintMismatch:
    return FingerprintMismatch(
        f"the catalog's vectors are made with {catalog_space}, but the settings here use {own_space}"
    )
