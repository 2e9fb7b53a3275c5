"""What finding the nearest vectors takes and gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.catalog.views import SourceMark, VectorBatch, VectorChanges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class VectorSource(Protocol):
    """What is asked of a catalog's snapshot."""

    def changes(self, tenant_id: str, since: int | None = None) -> VectorChanges: ...

    def witnesses(self, tenant_id: str, until: int, *, limit: int = 32) -> list[SourceMark]: ...

    def load(
        self, tenant_id: str, space: str, source_keys: Collection[int] | None = None
    ) -> Iterator[VectorBatch]: ...


class NearVector(NamedTuple):
    content_id: int
    score: float


class NearestVectors(Protocol):
    """The published vectors of every tenant. The rows in the catalog are the truth; whatever else an
    implementation keeps is a copy that can be made again."""

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
        """Best first, as the snapshot has them: nothing of another moment, and with ``allowed`` only chunks
        of these sources. Vectors that point away are left out. Scores are exact; an approximate index may
        miss some of the nearest, never those of the sources that changed last."""
        ...
