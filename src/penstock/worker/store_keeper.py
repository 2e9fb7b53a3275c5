"""Upkeep of a store outside the catalog, in a thread: a slow store holds up nothing else.

No process is forked while such a thread works: the child would inherit locks that its thread holds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.errors import PenstockError

_EVERY_S = 1.0
_MORE_S = 0.001
"""Pause between two batches, in which a process can be forked."""
_DOWN_S = 10.0
"""Pause after the store could not be used."""
_LAST_S = 3.0
"""Time for the last run, when the worker ends."""
_JOIN_S = 10.0
"""Longest wait for a call in progress, when the worker ends."""

log = logging.getLogger("penstock.upkeep")
_working = threading.Lock()
os.register_at_fork(
    before=_working.acquire, after_in_parent=_working.release, after_in_child=_working.release
)


class KeptStore(Protocol):
    """A store outside the catalog, as upkeep sees it."""

    def keep(self) -> bool:
        """Do a bounded piece of work; return whether there may be more."""

    def close(self) -> None: ...


class StoreKeeper:
    """Fills a store with missing texts of the catalog, and removes deleted ones."""

    def __init__(
        self,
        kind: str,
        open_catalog: Callable[[], Catalog],
        open_store: Callable[[Catalog], KeptStore | None],
    ) -> None:
        self._kind = kind
        self._open_catalog = open_catalog
        self._open_store = open_store
        self._over = threading.Event()
        self._until = 0.0
        self._told = ""
        self.idle = False
        """True if the last run left nothing to be done, or could not use the store."""
        self._thread = threading.Thread(target=self._work, name=f"penstock-{kind}-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Run once more, for a short time, and end. A fill goes on with the next worker."""
        self._until = clock.elapsed_s() + _LAST_S
        self._over.set()
        self._thread.join(_JOIN_S)

    def _work(self) -> None:
        try:
            with _working:
                catalog = self._open_catalog()
            with closing(catalog):
                with _working:
                    store = self._open_store(catalog)
                if store is not None:
                    with closing(store):
                        self._keep(store)
        except PenstockError as error:
            log.warning("the %s store is not kept: %s. %s", self._kind, error, error.remedy)
        finally:
            self.idle = True

    def _keep(self, store: KeptStore) -> None:
        while True:
            last = self._over.is_set()
            pause = self._run(store)
            if last and (pause is not None or clock.elapsed_s() > self._until):
                return
            if pause is None:
                time.sleep(_MORE_S)
            else:
                self._over.wait(pause)

    def _run(self, store: KeptStore) -> float | None:
        """Run the upkeep; return the pause until the next run. None: there is more to do."""
        try:
            with _working:
                more = store.keep()
        except PenstockError as error:
            self.idle = True
            if error.message != self._told:
                log.warning("%s. %s", error.message, error.remedy)
                self._told = error.message
            return _DOWN_S
        self.idle, self._told = not more, ""
        return None if more else _EVERY_S
