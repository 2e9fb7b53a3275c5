"""Keeps the files of vectors near to the catalog, and draws the graphs over large ones: a process of its own,
which gets only what the others leave of the processor."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from penstock import clock
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.pipeline.vectors.cache_directory import CacheDirectory
from penstock.worker.spawn import start_context

if TYPE_CHECKING:
    from penstock.pipeline.vectors.cache import SpaceCache

ROUNDS = 10
"""Rounds of upkeep between two looks at a catalog that changes all the time."""
TIDY_AFTER = timedelta(hours=1)
"""About how long a vector that was removed may stay in a file, where a worker runs."""
SLICE = 50_000
"""Rows drawn before the graph is written, or half of what is drawn already if that is more: who is stopped
loses no more."""
NICENESS = 19

log = logging.getLogger("penstock.upkeep")


class VectorKeeper:
    """The supervisor's side: sweeps, and sees to it that at most one process of its keeps the files."""

    def __init__(
        self, catalog: Catalog, open_catalog: Callable[[], Catalog], shelf: CacheDirectory, start_method: str
    ) -> None:
        self._catalog = catalog
        self._open_catalog = open_catalog
        self._shelf = shelf
        self._context = start_context(start_method)
        self._process: BaseProcess | None = None
        self._sequence: int | None = None
        self._tidy_at = math.inf
        self._rounds = 0

    def step(self) -> bool:
        """Not in the first round: a command that works for a moment has other things to do."""
        self._rounds += 1
        if self._rounds % ROUNDS != 2 or self._busy():
            return False
        now = time.monotonic()
        with self._catalog.snapshot() as snapshot:
            sequence = snapshot.changes("").sequence
            if sequence == self._sequence and now < self._tidy_at:
                return False
            with suppress(OSError):  # files that cannot be removed are no reason to end a worker
                self._shelf.sweep(lambda tenant_id: {space.name for space in snapshot.spaces(tenant_id)})
            large = any(True for _ in worth_a_file(snapshot, self._shelf))
        if large:
            self._start()
        # Once more when files of now are old enough to be tidied, also if nothing changes until then.
        self._tidy_at = now + TIDY_AFTER.total_seconds() if sequence != self._sequence else math.inf
        self._sequence = sequence
        return False

    def _busy(self) -> bool:
        if self._process is None:
            return False
        if self._process.is_alive():
            return True
        if self._process.exitcode:
            # Looked at again in a while, also if nothing changes until then.
            log.warning("the process that keeps vectors ended with %s", self._process.exitcode)
            self._sequence = None
        self._process.close()
        self._process = None
        return False

    def _start(self) -> None:
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=keep, args=(self._open_catalog, self._shelf, os.getpid()), daemon=True
        )
        try:
            process.start()
        except OSError as error:
            log.warning("no process could be started to keep vectors: %s", error)
            return
        self._process = process

    def close(self) -> None:
        """It is killed in the middle of anything: what has no name yet is nobody's."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None


def worth_a_file(snapshot: CatalogSnapshot, shelf: CacheDirectory) -> Iterator[tuple[str, str, int]]:
    """Tenants, spaces and dimensions."""
    for tenant_id in sorted({each.tenant_id for each in snapshot.tenants()}):
        for space in snapshot.spaces(tenant_id):
            if space.chunks >= shelf.sizes.file_from and space.dimension:
                yield tenant_id, space.name, space.dimension


def keep(open_catalog: Callable[[], Catalog], shelf: CacheDirectory, parent_pid: int) -> None:
    """What the process does, until everything is as it should be or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(NICENESS)
    catalog = open_catalog()
    try:
        keep_all(catalog, shelf, lambda: os.getppid() != parent_pid)
    finally:
        catalog.close()


def keep_all(catalog: Catalog, shelf: CacheDirectory, stop: Callable[[], bool] = lambda: False) -> None:
    from penstock.pipeline.vectors.ann_index import usearch_installed
    from penstock.pipeline.vectors.cache import SpaceCache

    with catalog.snapshot() as snapshot:
        large = list(worth_a_file(snapshot, shelf))
    for tenant_id, space, dimension in large:
        if stop():
            return
        copy = SpaceCache(tenant_id, space, dimension, shelf)
        with catalog.snapshot() as snapshot:
            copy.follow(snapshot, compact=_old(shelf, tenant_id, space))
        rows = copy.base.label.rows if copy.base is not None else 0
        if rows < shelf.sizes.index_from:
            continue
        if usearch_installed():
            while _draw_on(copy, shelf, tenant_id, space, stop):
                continue
        else:
            log.info("%d vectors of a tenant; the extra `usearch` would make searching them quicker", rows)


def _old(shelf: CacheDirectory, tenant_id: str, space: str) -> bool:
    try:
        written = shelf.vectors(tenant_id, space).stat().st_mtime
    except OSError:
        return False
    return clock.now().timestamp() - written > TIDY_AFTER.total_seconds() / 2


def _draw_on(
    copy: SpaceCache, shelf: CacheDirectory, tenant_id: str, space: str, stop: Callable[[], bool]
) -> bool:
    """One slice; whether there is more to draw."""
    from penstock.pipeline.vectors.ann_index import build_index, read_stamp

    rows, path = copy.base, shelf.index(tenant_id, space)
    if rows is None or stop():
        return False
    drawn = read_stamp(path, rows)
    covered = drawn.covered if drawn is not None else 0
    if len(rows) - covered <= max(shelf.sizes.max_drift, covered // 20):
        return False
    until = min(len(rows), covered + max(SLICE, covered // 2))
    try:
        with shelf.lock(tenant_id, space) as alone, shelf.new_file(path) as (file, young):
            if not alone or not build_index(file, young, rows, path, until, stop):
                return False
            shelf.publish(young, path)
    except OSError as error:
        log.warning("no graph of vectors could be drawn: %s", error)
        return False
    if not shelf.vectors(tenant_id, space).exists():
        # The tenant was deleted meanwhile.
        path.unlink(missing_ok=True)
        return False
    return until < len(rows)
