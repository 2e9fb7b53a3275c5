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
        self._told = ""

    def refuse_another(self) -> None:
        """Give the jobs back, no retry spent, for a worker that has the catalog's model."""
        try:
            agree(self._catalog, self._embedder)
        except FingerprintMismatch as mismatch:
            if mismatch.message != self._told:
                log.warning("nothing is indexed here: %s %s", mismatch.message, mismatch.remedy)
            self._told = mismatch.message
            raise NotHandledHere(f"{mismatch.message}. {mismatch.remedy}") from None
        self._told = ""


def agree(catalog: Catalog, embedder: Embedder) -> None:
    """Raises ``FingerprintMismatch`` when the catalog is another model's. The first to come to a catalog
    that has no documents says whose it is."""
    ours = space_of(embedder)
    with catalog.snapshot() as snapshot:
        said = snapshot.fingerprints().get(Phase.VECTOR)
        if said == ours:
            return
        if said is not None and snapshot.tenants():
            raise differs(said, ours)
    catalog.set_fingerprints({Phase.VECTOR: ours}, replace=said is not None)


def differs(said: str, ours: str) -> FingerprintMismatch:
    return FingerprintMismatch(f"the vectors here are made with {said}, and this would make them with {ours}")
