"""Vector caches, kept up to date with the catalog: in memory, or in files shared by all processes.

Before a cache answers, it is brought to the snapshot that the search reads. So a search shows exactly what
its snapshot has.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

import numpy as np

from penstock import clock
from penstock.catalog.values import SourceMark, VectorChanges
from penstock.pipeline.vectors.directory import CacheDirectory
from penstock.pipeline.vectors.footer import FileOwner, Stamp, stamp_of
from penstock.pipeline.vectors.nearest import (
    AnnIndex,
    Floats,
    MappedRows,
    Mask,
    Numbers,
    VectorRows,
    best,
    open_index,
    read_rows,
    write_rows,
)
from penstock.pipeline.vectors.protocol import NearVector, VectorSource

MAX_SPACES = 8
"""Caches kept in one process; the least recently used one is dropped."""
MAX_HOLES = 0.2
"""Share of holes in a file above which the rows behind them move up."""
STEPS_KEPT = 256

log = logging.getLogger("penstock.vectors")


class SpaceCache:
    """The published vectors of a tenant in one space: a file, if there is one, and the changes since."""

    def __init__(self, tenant_id: str, space: str, dimension: int, directory: CacheDirectory | None) -> None:
        self.sequence: int | None = None
        self._tenant_id = tenant_id
        self._space = space
        self._dimension = dimension
        self._directory = directory
        self._base: MappedRows | None = None
        self._alive: Mask | None = None
        self._ann_index: AnnIndex | None = None
        self._ann_index_stamp: Stamp | None = None
        self._rows: VectorRows = VectorRows.empty(dimension)
        # Changed sources per step: for snapshots older than this cache.
        self._steps: list[tuple[int, frozenset[int]]] = []
        self._steps_from = 0

    @property
    def base(self) -> MappedRows | None:
        return self._base

    def follow(self, snapshot: VectorSource, *, compact: bool = False) -> SpaceCache:
        """The cache as of a snapshot: this one, brought up to date, or a separate one for an older snapshot.

        ``compact``: rewrite the file even for few changes.
        """
        changes = snapshot.changes(self._tenant_id, self.sequence)
        if self.sequence is None or changes.reload:
            self._start(snapshot, changes.sequence)
        elif changes.sequence < self.sequence:
            return self._as_of(snapshot, changes.sequence)
        else:
            self._record_step(changes)
            if not self._reopen_rewritten(snapshot, changes):
                self._apply(snapshot, changes)
        self._refresh(snapshot, compact)
        self._refresh_index()
        return self

    def _start(self, snapshot: VectorSource, sequence: int) -> None:
        self.sequence = None
        if not self._open_file(snapshot):
            self._base, self._alive = None, None
            self._load(snapshot, sequence)
        self.sequence = sequence
        self._steps, self._steps_from = [], sequence

    def _open_file(self, snapshot: VectorSource) -> bool:
        """Start from an intact file of this catalog, not newer than the snapshot, if there is one."""
        if self._directory is None:
            return False
        path = self._directory.vectors(self._tenant_id, self._space)
        base = read_rows(path, self._owner(), self._dimension)
        if base is None:
            return False
        sequence = base.label.sequence
        changes = snapshot.changes(self._tenant_id, sequence)
        if changes.reload or changes.sequence < sequence:
            return False
        now = snapshot.witnesses(self._tenant_id, sequence)
        if not same_history(base.label.witnesses, now, frozenset(changes.stale)):
            return False
        self._base, self._alive, self._rows = base, None, VectorRows.empty(self._dimension)
        self._ann_index, self._ann_index_stamp = None, None
        # If the next step fails, the cache continues from here.
        self.sequence = sequence
        self._apply(snapshot, changes)
        return True

    def _load(self, snapshot: VectorSource, sequence: int) -> None:
        """Load all vectors from the catalog to memory, or into a file if there are many."""
        head, rest = _split(
            self._read(snapshot), self._directory.sizes.file_from if self._directory else None
        )
        if rest is not None:
            self._base = self._write_file(snapshot, chain(head, rest), sequence)
            if self._base is not None:
                self._rows = VectorRows.empty(self._dimension)
                return
            # The file could not be written, and the rows read for it are consumed: read again.
            head = list(self._read(snapshot))
        self._rows = VectorRows.concatenated([VectorRows.empty(self._dimension), *head])

    def _read(self, snapshot: VectorSource, keys: Collection[int] | None = None) -> Iterator[VectorRows]:
        for batch in snapshot.load(self._tenant_id, self._space, keys):
            yield VectorRows.from_batch(batch, self._dimension)

    def _record_step(self, changes: VectorChanges) -> None:
        if changes.stale or changes.fresh:
            self._steps.append((changes.sequence, frozenset(changes.stale) | frozenset(changes.fresh)))
        if len(self._steps) > STEPS_KEPT:
            self._steps_from = self._steps.pop(0)[0]

    def _apply(self, snapshot: VectorSource, changes: VectorChanges) -> None:
        if changes.stale or changes.fresh:
            self._hide(changes.stale)
            if changes.fresh:
                self._rows = VectorRows.concatenated([self._rows, *self._read(snapshot, changes.fresh)])
        self.sequence = changes.sequence

    def _hide(self, keys: Collection[int]) -> None:
        self._rows = self._rows.without(keys)
        if self._base is not None and keys:
            hidden = self._base.of_sources(keys)
            if hidden.any():
                self._alive = ~hidden if self._alive is None else self._alive & ~hidden

    def _reopen_rewritten(self, snapshot: VectorSource, changes: VectorChanges) -> bool:
        """Reopen a file rewritten by another process: fewer rows differ then."""
        if self._directory is None or not (self._drift() or changes.stale):
            return False
        stamp = stamp_of(self._directory.vectors(self._tenant_id, self._space))
        if stamp is None or (self._base is not None and stamp == self._base.stamp):
            return False
        return self._open_file(snapshot)

    def _drift(self) -> int:
        return len(self._rows) + self._hidden()

    def _hidden(self) -> int:
        return 0 if self._alive is None else len(self._alive) - int(self._alive.sum())

    def _as_of(self, snapshot: VectorSource, sequence: int) -> SpaceCache:
        """A cache for an older snapshot, of a search begun before this cache was advanced."""
        other = SpaceCache(self._tenant_id, self._space, self._dimension, None)
        if sequence < self._steps_from:
            other._start(snapshot, sequence)
            return other
        keys = frozenset[int]().union(*(keys for at, keys in self._steps if at > sequence))
        other._base, other._alive, other._rows = self._base, self._alive, self._rows
        other._ann_index = self._ann_index
        other._hide(keys)
        other._rows = VectorRows.concatenated([other._rows, *self._read(snapshot, keys)])
        return other

    # The cache file.

    def _owner(self) -> FileOwner:
        assert self._directory is not None
        return FileOwner(self._directory.catalog, self._tenant_id, self._space)

    def _refresh(self, snapshot: VectorSource, compact: bool) -> None:
        base = self._base
        if self._directory is None or base is None or self.sequence is None:
            return
        most = 0 if compact and self._hidden() else max(self._directory.sizes.max_drift, len(base) // 20)
        if self._drift() <= most:
            return
        if not len(self._rows) and self._alive is not None and not self._alive.any():
            # No row is left to write.
            self._base, self._alive, self._ann_index, self._ann_index_stamp = None, None, None, None
            return
        holes = base.label.holes + self._hidden()
        same = holes <= MAX_HOLES * len(base)
        pieces = chain(base.pieces(self._alive, holes=same), [self._rows])
        if base.intact():
            rewritten = self._write_file(snapshot, pieces, self.sequence, base if same else None)
        else:
            log.info("a vector cache file was damaged and is rebuilt from the catalog")
            rewritten = self._write_file(snapshot, self._read(snapshot), self.sequence)
        if rewritten is not None:
            self._base, self._alive, self._rows = rewritten, None, self._rows.empty(self._dimension)
            if rewritten.label.lineage != base.label.lineage:
                self._ann_index, self._ann_index_stamp = None, None

    def _write_file(
        self,
        snapshot: VectorSource,
        pieces: Iterable[VectorRows],
        sequence: int,
        after: MappedRows | None = None,
    ) -> MappedRows | None:
        """Write and open a file of these rows; None if writing failed.

        It is published for all processes unless another process holds the lock. ``after``: the file with the
        row numbers to keep.
        """
        assert self._directory is not None
        directory, tenant_id = self._directory, self._tenant_id
        path = directory.vectors(tenant_id, self._space)
        witnesses = tuple(snapshot.witnesses(tenant_id, sequence))
        try:
            with (
                directory.lock(tenant_id, self._space) as locked,
                directory.new_file(path) as (file, new_path),
            ):
                # Only one successor keeps the lineage of a file: the new rows of two would differ in order.
                continues = locked and after is not None and stamp_of(path) == after.stamp
                lineage = after.label.lineage if after is not None and continues else clock.new_task_id()
                owner, dimension = self._owner(), self._dimension
                write_rows(
                    file,
                    pieces,
                    owner=owner,
                    dimension=dimension,
                    lineage=lineage,
                    sequence=sequence,
                    witnesses=witnesses,
                )
                made = read_rows(new_path, owner, dimension)
                if locked and made is not None:
                    directory.publish(new_path, path)
                    if directory.removed_since(tenant_id, sequence):
                        directory.discard(path)
                return made
        except OSError as error:
            log.info("vectors stay in memory, no cache file was written: %s", error)
            return None

    def _refresh_index(self) -> None:
        if self._directory is None or self._base is None:
            return
        path = self._directory.index(self._tenant_id, self._space)
        stamp = stamp_of(path)
        if stamp == self._ann_index_stamp:
            return
        self._ann_index, self._ann_index_stamp = None, stamp
        if stamp is not None:
            self._ann_index = open_index(path, self._base)

    # Search.

    def nearest(self, query: Floats, limit: int, allowed: Collection[int] | None) -> list[NearVector]:
        ids, scores = self._rows.scored(query, allowed)
        if self._base is not None:
            base_ids, base_scores = self._score_base(self._base, query, limit, allowed)
            ids, scores = np.concatenate([ids, base_ids]), np.concatenate([scores, base_scores])
        ids, scores = best(ids, scores, limit)
        return list(map(NearVector, ids.tolist(), scores.tolist()))

    def _score_base(
        self, base: MappedRows, query: Floats, limit: int, allowed: Collection[int] | None
    ) -> tuple[Numbers, Floats]:
        # An index cannot be restricted: it finds rows of all sources.
        if allowed is None and self._ann_index is not None and 4 * limit <= self._ann_index.stamp.reach:
            found = self._search_index(base, self._ann_index, query, limit)
            if found is not None:
                return found
        chosen = self._alive
        if allowed is not None:
            chosen = base.of_sources(allowed)
            chosen = chosen if self._alive is None else chosen & self._alive
        return base.scored(query, chosen)

    def _search_index(
        self, base: MappedRows, index: AnnIndex, query: Floats, limit: int
    ) -> tuple[Numbers, Floats] | None:
        """Search through the index; None if too many of the candidates are deleted rows."""
        covered = index.stamp.covered
        rows = np.sort(index.search(query))
        behind = np.arange(covered, len(base))
        if self._alive is not None:
            rows, behind = rows[self._alive[rows]], behind[self._alive[covered:]]
        rows = rows[base.keys[rows] >= 0]
        if len(rows) < limit:
            return None
        return base.scored_at(np.concatenate([rows, behind]), query)


def _split(
    pieces: Iterator[VectorRows], enough: int | None
) -> tuple[list[VectorRows], Iterator[VectorRows] | None]:
    """Return the first ``enough`` rows and an iterator over further rows, or None at the end."""
    head: list[VectorRows] = []
    rows = 0
    for piece in pieces:
        head.append(piece)
        rows += len(piece)
        if enough is not None and rows >= enough:
            return head, pieces
    return head, None


def same_history(then: Collection[SourceMark], now: Collection[SourceMark], changed: Collection[int]) -> bool:
    """Check whether a file was made from the past of this very catalog, not of another or a restored one.

    The file's witnesses must be present or changed since, and no other source may have changed among them.
    """
    if not then:
        return False
    oldest = min(each.sequence for each in then)
    if any(each.sequence > oldest for each in set(now).difference(then)):
        return False
    return all(each.family_key in changed for each in set(then).difference(now))


class VectorCache:
    """The vector caches of one process, shared by all threads. Without a directory they use no files."""

    def __init__(self, directory: CacheDirectory | None = None) -> None:
        self._directory = directory
        self._caches: OrderedDict[tuple[str, str], SpaceCache] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self,
        snapshot: VectorSource,
        tenant_id: str,
        space: str,
        query: Floats,
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        with self._lock:
            cache = self._caches.get((tenant_id, space))
            if cache is None:
                cache = SpaceCache(tenant_id, space, len(query), self._directory)
                self._caches[tenant_id, space] = cache
            self._caches.move_to_end((tenant_id, space))
            while len(self._caches) > MAX_SPACES:
                self._caches.popitem(last=False)
            return cache.follow(snapshot).nearest(query, limit, allowed)

    def notice(self) -> str | None:
        return None
