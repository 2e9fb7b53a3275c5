"""Which embedder a name means."""

from __future__ import annotations

from penstock.errors import InvalidSetting
from penstock.pipeline.embed.hashing import HashingEmbedder
from penstock.pipeline.embed.protocol import Embedder

EMBEDDERS = ("static", "hashing")


def open_embedder(name: str = "static") -> Embedder:
    """Nothing is loaded before the first text. One process shares one set of weights."""
    if name == "hashing":
        return HashingEmbedder()
    if name == "static":
        from penstock.pipeline.embed.static import StaticEmbedder

        return StaticEmbedder()
    raise InvalidSetting(f"embedder = {name!r}: expected one of {', '.join(EMBEDDERS)}")
