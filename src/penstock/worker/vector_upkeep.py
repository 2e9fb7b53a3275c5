"""Upkeep for search: merges the keyword index, compacts the vector cache files and indexes large ones.

The work runs in a process of its own, with the lowest priority as long as it holds no lock of the catalog.
"""

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
from penstock.pipeline.vectors.directory import CacheDirectory
from penstock.worker.pool import start_context

if TYPE_CHECKING:
    from penstock.pipeline.vectors.cache import SpaceCache

EVERY_ROUNDS = 10
"""Rounds of upkeep between two checks of a catalog that changes all the time."""
_COMPACT_AFTER = timedelta(hours=1)
"""Longest time, roughly, that a removed vector stays in a file while a worker runs."""
_SLICE = 50_000
"""Rows indexed before the index is written, or half of the indexed rows if that is more: a process that is
stopped loses no more than this work."""
_NICENESS = 19

log = logging.getLogger("penstock.upkeep")


class VectorKeeper:
    """The supervisor's side: sweeps the cache directory and runs at most one process for the files."""

    def __init__(
        self,
        catalog: Catalog,
        open_catalog: Callable[[], Catalog],
        directory: CacheDirectory,
        start_method: str,
    ) -> None:
        self._catalog = catalog
        self._open_catalog = open_catalog
        self._directory = directory
        self._context = start_context(start_method)
        self._process: BaseProcess | None = None
        self._sequence: int | None = None
        self._compact_at = math.inf
        self._rounds = 0

    def run(self) -> bool:
        """Check the catalog. Not in the first round: a short command has other work."""
        self._rounds += 1
        if self._rounds % EVERY_ROUNDS != 2 or self._busy():
            return False
        now = time.monotonic()
        with self._catalog.snapshot() as snapshot:
            sequence = snapshot.changes("").sequence
            if sequence == self._sequence and now < self._compact_at:
                return False
            with suppress(OSError):  # a file that cannot be removed must not end the worker
                self._directory.sweep(lambda tenant_id: {space.name for space in snapshot.spaces(tenant_id)})
            large = any(True for _ in _worth_a_file(snapshot, self._directory))
        if large:
            self._start()
        # Once more when the files of now are old enough to be compacted, even if nothing changes.
        self._compact_at = now + _COMPACT_AFTER.total_seconds() if sequence != self._sequence else math.inf
        self._sequence = sequence
        return False

    def _busy(self) -> bool:
        if self._process is None:
            return False
        if self._process.is_alive():
            return True
        if self._process.exitcode:
            # Start again in a while, even if nothing changes until then.
            log.warning("the process for vector upkeep ended with exit code %s", self._process.exitcode)
            self._sequence = None
        self._process.close()
        self._process = None
        return False

    def _start(self) -> None:
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=keep, args=(self._open_catalog, self._directory, os.getpid()), daemon=True
        )
        try:
            process.start()
        except OSError as error:
            log.warning("the process for vector upkeep could not be started: %s", error)
            return
        self._process = process

    def close(self) -> None:
        """Kill the process at any point: files under temporary names are unused and swept later."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None


def _worth_a_file(snapshot: CatalogSnapshot, directory: CacheDirectory) -> Iterator[tuple[str, str, int]]:
    """List tenant, space and dimension of each space large enough for a file."""
    for tenant_id in sorted({each.tenant_id for each in snapshot.tenants()}):
        for space in snapshot.spaces(tenant_id):
            if space.chunks >= directory.sizes.file_from and space.dimension:
                yield tenant_id, space.name, space.dimension


def keep(open_catalog: Callable[[], Catalog], directory: CacheDirectory, parent_pid: int) -> None:
    """Run the process until all files are up to date or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    catalog = open_catalog()

    def stop() -> bool:
        return os.getppid() != parent_pid

    try:
        # Before it gives way to others: on a busy machine they would wait for its transaction.
        catalog.merge_words(stop)
        os.nice(_NICENESS)
        keep_all(catalog, directory, stop)
    finally:
        catalog.close()


def keep_all(catalog: Catalog, directory: CacheDirectory, stop: Callable[[], bool] = lambda: False) -> None:
    from penstock.pipeline.vectors.cache import SpaceCache
    from penstock.pipeline.vectors.nearest import usearch_installed

    with catalog.snapshot() as snapshot:
        large = list(_worth_a_file(snapshot, directory))
    for tenant_id, space, dimension in large:
        if stop():
            return
        cache = SpaceCache(tenant_id, space, dimension, directory)
        with catalog.snapshot() as snapshot:
            cache.follow(snapshot, compact=_old(directory, tenant_id, space))
        rows = cache.base.label.rows if cache.base is not None else 0
        if rows < directory.sizes.index_from:
            continue
        if usearch_installed():
            while _extend_index(cache, directory, tenant_id, space, stop):
                continue
        else:
            log.info("%d vectors of a tenant; the extra `usearch` would make searching them faster", rows)


def _old(directory: CacheDirectory, tenant_id: str, space: str) -> bool:
    try:
        written = directory.vectors(tenant_id, space).stat().st_mtime
    except OSError:
        return False
    return clock.now().timestamp() - written > _COMPACT_AFTER.total_seconds() / 2


def _extend_index(
    cache: SpaceCache, directory: CacheDirectory, tenant_id: str, space: str, stop: Callable[[], bool]
) -> bool:
    """Index one slice of rows; return whether more are left."""
    from penstock.pipeline.vectors.nearest import build_index, read_stamp

    rows, path = cache.base, directory.index(tenant_id, space)
    if rows is None or stop():
        return False
    stamp = read_stamp(path, rows)
    covered = stamp.covered if stamp is not None else 0
    if len(rows) - covered <= max(directory.sizes.max_drift, covered // 20):
        return False
    until = min(len(rows), covered + max(_SLICE, covered // 2))
    try:
        with directory.lock(tenant_id, space) as alone, directory.new_file(path) as (file, new_path):
            if not alone or not build_index(file, new_path, rows, path, until, stop):
                return False
            directory.publish(new_path, path)
    except OSError as error:
        log.warning("the vector index could not be written: %s", error)
        return False
    if not directory.vectors(tenant_id, space).exists():
        # The tenant was deleted meanwhile.
        path.unlink(missing_ok=True)
        return False
    return until < len(rows)
