"""Which embedder a name means."""

from __future__ import annotations

from penstock.errors import InvalidSetting
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from penstock.pipeline.embed.protocol import Embedder, space_of

EMBEDDERS = ("static", "hashing")


def open_embedder(name: str = "static") -> Embedder:
    """Nothing is loaded before the first text. One process shares one set of weights."""
    if name == "hashing":
        return HashingEmbedder()
    if name == "static":
        from penstock.pipeline.embed.static_embedder import StaticEmbedder

        return StaticEmbedder()
    raise InvalidSetting(f"embedder = {name!r}: expected one of {', '.join(EMBEDDERS)}")


def open_space(space: str) -> Embedder | None:
    """The embedder whose vectors a space holds, so that a query can be asked of it; None when it is none of
    those here, or the weights here are others."""
    name, _, rest = space.partition("-")
    dimension, _, _ = rest.partition("-")
    if name not in EMBEDDERS or not dimension.isdecimal():
        return None
    try:
        embedder = HashingEmbedder(int(dimension)) if name == "hashing" else open_embedder(name)
        return embedder if space_of(embedder) == space else None
    except (InvalidSetting, ValueError):
        return None
