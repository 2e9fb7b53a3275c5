"""Interface of an embedder: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.pipeline.endpoint import TokenMeter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Embedder(Protocol):
    """Turns texts into vectors of one space.

    Deterministic: the same text gives the same vector, alone or in a batch. A vector has length 1. It is all
    zeros if the model knows nothing in the text (empty, white space); such a vector is near nothing. Of a
    text that is too long for the model, the beginning is embedded. A lone surrogate counts as U+FFFD.
    """

    @property
    def name(self) -> str:
        """Name of the embedder in the settings."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Fingerprint of weights, pooling and dimension. Vectors compare only within one fingerprint."""
        ...

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts: an array of shape (len(texts), dimension), one row per text, in order."""
        ...


@runtime_checkable
class MeteredEmbedder(TokenMeter, Protocol):
    """An embedder billed by the token."""

    batch: int
    """Texts of one call."""
