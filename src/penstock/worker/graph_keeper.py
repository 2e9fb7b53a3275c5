"""Upkeep of a graph store outside the catalog, in a thread: a slow store holds up nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing

from penstock.catalog.protocol import Catalog
from penstock.errors import PenstockError
from penstock.handlers.graph_copies import GraphCopies

EVERY_S = 1.0
DOWN_S = 10.0
"""Pause after the store could not be used."""
LAST_S = 10.0
"""Longest wait for the last run, when the worker ends."""

log = logging.getLogger("penstock.upkeep")


class GraphKeeper:
    """Fills the store if it has not all that the catalog has, and removes texts that are gone."""

    def __init__(
        self, open_catalog: Callable[[], Catalog], open_copies: Callable[[Catalog], GraphCopies | None]
    ) -> None:
        self._open_catalog = open_catalog
        self._open_copies = open_copies
        self._over = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._work, name="penstock-graph-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Run once more and end."""
        self._over.set()
        self._thread.join(LAST_S)

    def _work(self) -> None:
        try:
            with closing(self._open_catalog()) as catalog:
                copies = self._open_copies(catalog)
                if copies is not None:
                    with closing(copies):
                        self._keep(copies)
        except PenstockError as error:
            log.warning("the graph store is not kept: %s. %s", error, error.remedy)

    def _keep(self, copies: GraphCopies) -> None:
        over = False
        while not over:
            over = self._over.is_set()
            pause = EVERY_S if self._run(copies) else DOWN_S
            self._over.wait(pause)

    def _run(self, copies: GraphCopies) -> bool:
        try:
            copies.keep()
        except PenstockError as error:
            if error.message != self._told:
                log.warning("%s. %s", error.message, error.remedy)
                self._told = error.message
            return False
        self._told = ""
        return True
