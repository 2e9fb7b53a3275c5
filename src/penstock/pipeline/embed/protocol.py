"""What an embedder takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Embedder(Protocol):
    """Turns texts into vectors of one space.

    Deterministic: the same text gives the same vector, alone or in a batch. A vector has length 1, or is all
    zeros when the text has nothing the model knows (empty, white space); such a vector is near nothing. A
    text longer than the model reads is embedded by its beginning. A lone surrogate counts as U+FFFD.
    """

    @property
    def name(self) -> str:
        """The word the settings use."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Of weights, pooling and dimension: vectors compare only within one fingerprint."""
        ...

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row a text, in order: an array of shape (len(texts), dimension)."""
        ...


def space_of(embedder: Embedder) -> str:
    """The vector space an embedder's vectors live in: part of every outside store's collection name."""
    return f"{embedder.name}-{embedder.dimension}-{embedder.fingerprint[:8]}"
