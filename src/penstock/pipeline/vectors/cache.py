"""Copies of published vectors that follow the catalog: in memory, or in files that all processes share.

A copy is brought up to the snapshot a search reads before it answers, so that a search never shows what its
snapshot does not have, and misses nothing of what it has.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from penstock import clock
from penstock.catalog.views import SourceMark, VectorChanges
from penstock.pipeline.vectors.cache_directory import CacheDirectory
from penstock.pipeline.vectors.footer import Stamp, stamp_of
from penstock.pipeline.vectors.protocol import NearVector, VectorSource

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock.pipeline.vectors.ann_index import AnnIndex
    from penstock.pipeline.vectors.memory_rows import Floats, Mask, Numbers, VectorRows
    from penstock.pipeline.vectors.mmap_rows import FileOwner, MappedRows

MOST_TENANTS = 8
"""Copies kept in one process; the one not asked for longest goes."""
MOST_HOLES = 0.2
"""Of a file's rows, before those behind move up."""
STEPS_KEPT = 256

log = logging.getLogger("penstock.vectors")


class SpaceCache:
    """The published vectors of a tenant in one space: a file, if there is one, and what changed since."""

    def __init__(self, tenant_id: str, space: str, dimension: int, shelf: CacheDirectory | None) -> None:
        from penstock.pipeline.vectors.memory_rows import VectorRows

        self.sequence: int | None = None
        self._tenant_id = tenant_id
        self._space = space
        self._dimension = dimension
        self._shelf = shelf
        self._base: MappedRows | None = None
        self._alive: Mask | None = None
        self._graph: AnnIndex | None = None
        self._graph_stamp: Stamp | None = None
        self._rows: VectorRows = VectorRows.none(dimension)
        # What changed when: for snapshots older than what is followed already.
        self._steps: list[tuple[int, frozenset[int]]] = []
        self._steps_from = 0

    @property
    def base(self) -> MappedRows | None:
        return self._base

    def follow(self, snapshot: VectorSource, *, tidy: bool = False) -> SpaceCache:
        """Become what the snapshot shows, and answer itself; an older snapshot gets a copy of its own.
        ``tidy``: write the file anew also for little."""
        changes = snapshot.changes(self._tenant_id, self.sequence)
        if self.sequence is None or changes.reload:
            self._begin(snapshot, changes.sequence)
        elif changes.sequence < self.sequence:
            return self._as_of(snapshot, changes.sequence)
        else:
            self._remember(changes)
            if not self._renewed(snapshot, changes):
                self._apply(snapshot, changes)
        self._refresh(snapshot, tidy)
        self._look_for_graph()
        return self

    def _begin(self, snapshot: VectorSource, sequence: int) -> None:
        self.sequence = None
        if not self._open(snapshot):
            self._base, self._alive = None, None
            self._load(snapshot, sequence)
        self.sequence = sequence
        self._steps, self._steps_from = [], sequence

    def _open(self, snapshot: VectorSource) -> bool:
        """Begin with the file, if it was made from this catalog, not after this snapshot, and is whole."""
        if self._shelf is None:
            return False
        from penstock.pipeline.vectors.memory_rows import VectorRows
        from penstock.pipeline.vectors.mmap_rows import read_rows

        path = self._shelf.vectors(self._tenant_id, self._space)
        base = read_rows(path, self._owner(), self._dimension)
        if base is None:
            return False
        sequence = base.label.sequence
        changes = snapshot.changes(self._tenant_id, sequence)
        if changes.reload or changes.sequence < sequence:
            return False
        now = snapshot.witnesses(self._tenant_id, sequence)
        if not trusted(base.label.witnesses, now, frozenset(changes.stale)):
            return False
        self._base, self._alive, self._rows = base, None, VectorRows.none(self._dimension)
        self._graph, self._graph_stamp = None, None
        # Also should what follows fail: from here it goes on.
        self.sequence = sequence
        self._apply(snapshot, changes)
        return True

    def _load(self, snapshot: VectorSource, sequence: int) -> None:
        """Everything, from the catalog: to memory, or where it is much through memory to a file."""
        from penstock.pipeline.vectors.memory_rows import VectorRows

        head, rest = _split(self._read(snapshot), self._shelf.sizes.worth_a_file if self._shelf else None)
        if rest is not None:
            self._base = self._written(snapshot, chain(head, rest), sequence)
            if self._base is not None:
                self._rows = VectorRows.none(self._dimension)
                return
            # The file could not be written to its end: what was read for it is gone.
            head = list(self._read(snapshot))
        self._rows = VectorRows.joined([VectorRows.none(self._dimension), *head])

    def _read(self, snapshot: VectorSource, keys: Collection[int] | None = None) -> Iterator[VectorRows]:
        from penstock.pipeline.vectors.memory_rows import VectorRows

        for batch in snapshot.load(self._tenant_id, self._space, keys):
            yield VectorRows.of(batch, self._dimension)

    def _remember(self, changes: VectorChanges) -> None:
        if changes.stale or changes.fresh:
            self._steps.append((changes.sequence, frozenset(changes.stale) | frozenset(changes.fresh)))
        if len(self._steps) > STEPS_KEPT:
            self._steps_from = self._steps.pop(0)[0]

    def _apply(self, snapshot: VectorSource, changes: VectorChanges) -> None:
        from penstock.pipeline.vectors.memory_rows import VectorRows

        if changes.stale or changes.fresh:
            self._hide(changes.stale)
            if changes.fresh:
                self._rows = VectorRows.joined([self._rows, *self._read(snapshot, changes.fresh)])
        self.sequence = changes.sequence

    def _hide(self, keys: Collection[int]) -> None:
        self._rows = self._rows.without(keys)
        if self._base is not None and keys:
            hidden = self._base.of_sources(keys)
            if hidden.any():
                self._alive = ~hidden if self._alive is None else self._alive & ~hidden

    def _renewed(self, snapshot: VectorSource, changes: VectorChanges) -> bool:
        """Whether somebody wrote the file anew since: then less is different."""
        if self._shelf is None or not (self._drift() or changes.stale):
            return False
        stamp = stamp_of(self._shelf.vectors(self._tenant_id, self._space))
        if stamp is None or (self._base is not None and stamp == self._base.stamp):
            return False
        return self._open(snapshot)

    def _drift(self) -> int:
        return len(self._rows) + self._hidden()

    def _hidden(self) -> int:
        return 0 if self._alive is None else len(self._alive) - int(self._alive.sum())

    def _as_of(self, snapshot: VectorSource, sequence: int) -> SpaceCache:
        """For a search that began before another one brought this copy further."""
        from penstock.pipeline.vectors.memory_rows import VectorRows

        other = SpaceCache(self._tenant_id, self._space, self._dimension, None)
        if sequence < self._steps_from:
            other._begin(snapshot, sequence)
            return other
        keys = frozenset[int]().union(*(keys for at, keys in self._steps if at > sequence))
        other._base, other._alive, other._rows = self._base, self._alive, self._rows
        other._graph = self._graph
        other._hide(keys)
        other._rows = VectorRows.joined([other._rows, *self._read(snapshot, keys)])
        return other

    # The file.

    def _owner(self) -> FileOwner:
        from penstock.pipeline.vectors.mmap_rows import FileOwner

        assert self._shelf is not None
        return FileOwner(self._shelf.catalog, self._tenant_id, self._space)

    def _refresh(self, snapshot: VectorSource, tidy: bool) -> None:
        base = self._base
        if self._shelf is None or base is None or self.sequence is None:
            return
        most = 0 if tidy and self._hidden() else max(self._shelf.sizes.most_drift, len(base) // 20)
        if self._drift() <= most:
            return
        if not len(self._rows) and self._alive is not None and not self._alive.any():
            # All of it is gone: there is nothing to write.
            self._base, self._alive, self._graph, self._graph_stamp = None, None, None, None
            return
        holes = base.label.holes + self._hidden()
        same = holes <= MOST_HOLES * len(base)
        pieces = chain(base.pieces(self._alive, holes=same), [self._rows])
        if base.sound():
            written = self._written(snapshot, pieces, self.sequence, base if same else None)
        else:
            log.info("a file of vectors was damaged; it is made anew from the catalog")
            written = self._written(snapshot, self._read(snapshot), self.sequence)
        if written is not None:
            self._base, self._alive, self._rows = written, None, self._rows.none(self._dimension)
            if written.label.lineage != base.label.lineage:
                self._graph, self._graph_stamp = None, None

    def _written(
        self,
        snapshot: VectorSource,
        pieces: Iterable[VectorRows],
        sequence: int,
        after: MappedRows | None = None,
    ) -> MappedRows | None:
        """A file of these rows, for all processes if nobody else writes it now; None: there is no room.
        ``after``: the file whose rows keep their numbers."""
        from penstock.pipeline.vectors.mmap_rows import Origin, read_rows, write_rows

        assert self._shelf is not None
        shelf, tenant_id = self._shelf, self._tenant_id
        path = shelf.vectors(tenant_id, self._space)
        witnesses = tuple(snapshot.witnesses(tenant_id, sequence))
        try:
            with shelf.building(tenant_id, self._space) as alone, shelf.young(path) as (file, young):
                # Of two that follow the same file only one has its lineage: their new rows differ in order.
                goes_on = alone and after is not None and stamp_of(path) == after.stamp
                lineage = after.label.lineage if after is not None and goes_on else clock.new_task_id()
                origin = Origin(self._owner(), self._dimension, lineage, sequence, witnesses)
                write_rows(file, origin, pieces)
                made = read_rows(young, origin.owner, self._dimension)
                if alone and made is not None:
                    shelf.publish(young, path)
                    if shelf.forgotten_since(tenant_id, sequence):
                        shelf.discard(path)
                return made
        except OSError as error:
            log.info("vectors are read from the catalog: %s", error)
            return None

    def _look_for_graph(self) -> None:
        if self._shelf is None or self._base is None:
            return
        path = self._shelf.graph(self._tenant_id, self._space)
        stamp = stamp_of(path)
        if stamp == self._graph_stamp:
            return
        from penstock.pipeline.vectors.ann_index import read_graph

        self._graph, self._graph_stamp = None, stamp
        if stamp is not None:
            self._graph = read_graph(path, self._base)

    # Questions.

    def nearest(self, query: Floats, limit: int, allowed: Collection[int] | None) -> list[NearVector]:
        import numpy as np

        from penstock.pipeline.vectors.memory_rows import best

        ids, scores = self._rows.scored(query, allowed)
        if self._base is not None:
            base_ids, base_scores = self._in_base(self._base, query, limit, allowed)
            ids, scores = np.concatenate([ids, base_ids]), np.concatenate([scores, base_scores])
        ids, scores = best(ids, scores, limit)
        return [NearVector(int(number), float(score)) for number, score in zip(ids, scores, strict=True)]

    def _in_base(
        self, base: MappedRows, query: Floats, limit: int, allowed: Collection[int] | None
    ) -> tuple[Numbers, Floats]:
        # A graph cannot be narrowed: what it finds is of all sources.
        if allowed is None and self._graph is not None and 4 * limit <= self._graph.drawn.reach:
            found = self._by_graph(base, self._graph, query, limit)
            if found is not None:
                return found
        chosen = self._alive
        if allowed is not None:
            chosen = base.of_sources(allowed)
            chosen = chosen if self._alive is None else chosen & self._alive
        return base.scored(query, chosen)

    def _by_graph(
        self, base: MappedRows, graph: AnnIndex, query: Floats, limit: int
    ) -> tuple[Numbers, Floats] | None:
        """None: too many of those found are no more."""
        import numpy as np

        covered = graph.drawn.covered
        rows = np.sort(graph.near(query))
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
    """The first rows; and the others, if these are enough."""
    head: list[VectorRows] = []
    rows = 0
    for piece in pieces:
        head.append(piece)
        rows += len(piece)
        if enough is not None and rows >= enough:
            return head, pieces
    return head, None


def trusted(then: Collection[SourceMark], now: Collection[SourceMark], changed: Collection[int]) -> bool:
    """Whether a file was made from the catalog's own past, not from another one's, nor from before it was
    restored. Its witnesses are still there or changed after it, and no other source says that it changed
    among them."""
    if not then:
        return False
    oldest = min(each.sequence for each in then)
    if any(each.sequence > oldest for each in set(now).difference(then)):
        return False
    return all(each.source_key in changed for each in set(then).difference(now))


class VectorCache:
    """The copies of one process, for all its threads. Without a shelf they are in its memory alone."""

    def __init__(self, shelf: CacheDirectory | None = None) -> None:
        self._shelf = shelf
        self._copies: OrderedDict[tuple[str, str], SpaceCache] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self,
        snapshot: VectorSource,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        with self._lock:
            copy = self._copies.get((tenant_id, space))
            if copy is None:
                copy = SpaceCache(tenant_id, space, len(query), self._shelf)
                self._copies[tenant_id, space] = copy
            self._copies.move_to_end((tenant_id, space))
            while len(self._copies) > MOST_TENANTS:
                self._copies.popitem(last=False)
            return copy.follow(snapshot).nearest(query, limit, allowed)
