"""Interfaces of vector search: the snapshot to read, the search itself, and copies outside the catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.catalog.values import Filters, SourceMark, VectorBatch, VectorChanges

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt


class VectorSource(Protocol):
    """Methods of a catalog snapshot used by vector search."""

    def changes(self, tenant_id: str, since: int | None = None) -> VectorChanges: ...

    def witnesses(self, tenant_id: str, until: int, *, limit: int = 32) -> list[SourceMark]: ...

    def load(
        self, tenant_id: str, space: str, family_keys: Collection[int] | None = None
    ) -> Iterator[VectorBatch]: ...


class PublishedChunks(VectorSource, Protocol):
    """Methods of a catalog snapshot used by a search in a store outside the catalog."""

    def visible(self, filters: Filters, content_ids: Sequence[int]) -> set[int]: ...


class NearVector(msgspec.Struct, frozen=True):
    content_id: int
    score: float


class NearestVectors(Protocol):
    """Search over the published vectors of all tenants.

    The rows in the catalog are the truth; everything else is a cache that can be rebuilt.
    """

    def nearest(
        self,
        snapshot: PublishedChunks,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        """The nearest vectors in this snapshot, best first; with ``allowed`` only chunks of these sources.

        Vectors with a score of exactly zero are dropped. Scores are exact. An approximate index may miss some
        of the nearest, but never those of sources that changed last.
        """
        ...

    def notice(self) -> str | None:
        """Return the shortfall of the last search, such as an unreachable store; None without one."""
        ...


class VectorCopies(Protocol):
    """Copies of vectors outside the catalog, which jobs and commands remove."""

    def remove_tenant(self, tenant_id: str, sequence: int) -> None:
        """Remove all copies of a tenant, also one made before ``sequence`` and still being written."""

    def damaged(self) -> list[Path]:
        """Read all copies and list the damaged ones."""

    def discard(self, path: Path) -> None:
        """Remove one copy."""
