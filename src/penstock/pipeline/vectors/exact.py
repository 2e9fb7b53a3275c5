"""The nearest vectors by looking at all of them: exact, and quick up to some hundred thousand a tenant.

The rows in the catalog are the truth; this is a copy in memory, brought up to the snapshot a search reads
before it answers, so that a search never shows what its snapshot does not have.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.catalog.answers import VectorBatch, VectorChanges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_TENANTS = 8
"""Copies kept in one process; the one not asked for longest goes."""


class Snapshot(Protocol):
    """The two questions asked of a catalog's snapshot."""

    def changes(self, tenant_id: str, since: int | None = None) -> VectorChanges: ...

    def load(
        self, tenant_id: str, space: str, source_keys: Collection[int] | None = None
    ) -> Iterator[VectorBatch]: ...


class Near(NamedTuple):
    content_id: int
    score: float


class _Copy:
    """All published vectors of a tenant in one space."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self.sequence: int | None = None
        self._dimension = dimension
        self._content_ids: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._source_keys: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._vectors: npt.NDArray[np.float32] = np.empty((0, dimension), np.float32)

    def follow(self, snapshot: Snapshot, tenant_id: str, space: str) -> None:
        """Become what the snapshot shows."""
        changes = snapshot.changes(tenant_id, self.sequence)
        if changes.reload:
            self._forget(None)
            self._take(list(snapshot.load(tenant_id, space)))
        elif changes.stale or changes.fresh:
            self._forget(changes.stale)
            if changes.fresh:
                self._take(list(snapshot.load(tenant_id, space, changes.fresh)))
        self.sequence = changes.sequence

    def _forget(self, source_keys: Collection[int] | None) -> None:
        import numpy as np

        if source_keys is None:
            kept = np.zeros(len(self._source_keys), bool)
        else:
            kept = ~np.isin(self._source_keys, np.fromiter(source_keys, np.int64, len(source_keys)))
        self._content_ids, self._source_keys = self._content_ids[kept], self._source_keys[kept]
        self._vectors = self._vectors[kept]

    def _take(self, batches: list[VectorBatch]) -> None:
        import numpy as np

        ids = [np.frombuffer(batch.content_ids, np.int64) for batch in batches]
        keys = [np.frombuffer(batch.source_keys, np.int64) for batch in batches]
        rows = [np.frombuffer(batch.vectors, "<f4").reshape(-1, self._dimension) for batch in batches]
        self._content_ids = np.concatenate([self._content_ids, *ids])
        self._source_keys = np.concatenate([self._source_keys, *keys])
        self._vectors = np.concatenate([self._vectors, *rows])

    def nearest(
        self, query: npt.NDArray[np.float32], limit: int, allowed: Collection[int] | None
    ) -> list[Near]:
        import numpy as np

        ids, vectors = self._content_ids, self._vectors
        if allowed is not None:
            chosen = np.isin(self._source_keys, np.fromiter(allowed, np.int64, len(allowed)))
            ids, vectors = ids[chosen], vectors[chosen]
        if not len(ids):
            return []
        scores = vectors @ query
        limit = min(limit, len(ids))
        best = np.argpartition(scores, -limit)[-limit:]
        # Equal scores in the order of their ids, so that the same question has the same answer.
        best = best[np.lexsort((ids[best], -scores[best]))]
        return [Near(int(ids[at]), float(scores[at])) for at in best if scores[at] > 0]


class ExactVectors:
    """The copies of one process, for all its threads."""

    def __init__(self) -> None:
        self._copies: OrderedDict[tuple[str, str], _Copy] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self,
        snapshot: Snapshot,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[Near]:
        """Best first; ``allowed`` narrows to some sources. Vectors that point away are left out."""
        with self._lock:
            copy = self._copies.get((tenant_id, space))
            if copy is None:
                copy = self._copies[tenant_id, space] = _Copy(len(query))
            self._copies.move_to_end((tenant_id, space))
            while len(self._copies) > MOST_TENANTS:
                self._copies.popitem(last=False)
            copy.follow(snapshot, tenant_id, space)
            return copy.nearest(query, limit, allowed)
