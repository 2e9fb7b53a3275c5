"""Contracts of the parts that other packages can add, as test classes for pytest.

A subclass gives the part in a fixture; its inherited tests check every promise of the protocol. Penstock's
own parts pass the same classes. They need the extra ``testing``.

- ``formats``: an extractor with its file type
- ``chunkers``: a chunker
- ``embedders``: an embedder
- ``vector_stores``: a vector store outside the catalog
- ``graph_stores``: a copy of the graph outside the catalog
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.chunkers import ChunkerContract
    from penstock.testing.embedders import EmbedderContract
    from penstock.testing.formats import FormatContract, FormatSample
    from penstock.testing.graph_stores import GraphStoreContract
    from penstock.testing.vector_stores import VectorStoreContract

__all__ = [
    "FormatContract",
    "FormatSample",
    "ChunkerContract",
    "EmbedderContract",
    "VectorStoreContract",
    "GraphStoreContract",
]
_MODULES = {
    "FormatContract": "formats",
    "FormatSample": "formats",
    "ChunkerContract": "chunkers",
    "EmbedderContract": "embedders",
    "VectorStoreContract": "vector_stores",
    "GraphStoreContract": "graph_stores",
}


def __getattr__(name: str) -> Any:
    """Load a contract at its first use: the package itself needs no pytest."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    module = f"{__name__}.{_MODULES[name]}"
    # Before the module is loaded: its assertions then show the values that differ.
    pytest.register_assert_rewrite(module)
    return getattr(importlib.import_module(module), name)
