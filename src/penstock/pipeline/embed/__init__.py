"""Embedding: from the text of a chunk to a vector.

``open_embedder`` and ``open_space`` below choose the implementation.

- ``protocol``: the interface of an embedder, and the name of its vector space
- ``static``: the default, a table of word pieces, which also count tokens; words hashed without a model
- ``minilm/``: a small language model, as an extra
- ``fastembed``: models of the library fastembed, as an extra
- ``endpoint``: an HTTP endpoint compatible with OpenAI's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import extensions
from penstock.errors import InvalidSetting
from penstock.extensions import ExtensionKind

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.pipeline.embed.endpoint import EmbedEndpointOptions
    from penstock.pipeline.embed.fastembed import FastembedOptions
    from penstock.pipeline.embed.protocol import Embedder

EMBEDDERS = ("static", "minilm", "fastembed", "endpoint", "hashing")


def open_embedder(
    name: str = "static",
    endpoint: EmbedEndpointOptions | None = None,
    models_dir: Path | None = None,
    fastembed: FastembedOptions | None = None,
) -> Embedder:
    """Open the embedder of this name. Weights are loaded at the first text, once in a process.

    ``endpoint``: where the embedder ``endpoint`` sends its texts; ``models_dir``: where models are installed;
    ``fastembed``: the model of the embedder ``fastembed``.
    """
    # Imported here: a process loads only the embedder in use.
    if name == "hashing":
        from penstock.pipeline.embed.static import HashingEmbedder

        return HashingEmbedder()
    if name == "static":
        from penstock.pipeline.embed.static import StaticEmbedder

        return StaticEmbedder()
    if name == "minilm" and models_dir is not None:
        from penstock.pipeline.embed.minilm.embedder import MiniLmEmbedder

        return MiniLmEmbedder(models_dir)
    if name == "fastembed" and models_dir is not None:
        from penstock.pipeline.embed.fastembed import FastembedEmbedder, FastembedOptions

        return FastembedEmbedder(fastembed or FastembedOptions(), models_dir)
    if name == "endpoint":
        from penstock.pipeline.embed.endpoint import EndpointEmbedder

        if endpoint is None:
            raise InvalidSetting(
                "embedder = 'endpoint': the URL of the endpoint is not set",
                remedy="Set PENSTOCK_EMBED_ENDPOINT_URL to a URL such as http://127.0.0.1:8000/v1.",
            )
        return EndpointEmbedder(endpoint)
    added = extensions.find(ExtensionKind.EMBEDDER, name)
    if added is not None:
        opened: Embedder = added.call(models_dir)
        return opened
    known = ", ".join([*EMBEDDERS, *extensions.names(ExtensionKind.EMBEDDER)])
    raise InvalidSetting(f"embedder = {name!r}: expected one of {known}")


def open_space(
    space: str,
    endpoint: EmbedEndpointOptions | None = None,
    models_dir: Path | None = None,
    fastembed: FastembedOptions | None = None,
) -> Embedder | None:
    """Open the embedder of a vector space, to embed queries.

    None if the name is unknown here, or if the weights installed here are different ones.
    """
    from penstock.pipeline.embed.static import HashingEmbedder

    name, _, rest = space.partition("-")
    dimension, _, _ = rest.partition("-")
    known = name in EMBEDDERS or extensions.find(ExtensionKind.EMBEDDER, name) is not None
    if not known or not dimension.isdecimal():
        return None
    try:
        embedder = (
            HashingEmbedder(int(dimension))
            if name == "hashing"
            else open_embedder(name, endpoint, models_dir, fastembed)
        )
        return embedder if space_of(embedder) == space else None
    except (InvalidSetting, ValueError):
        return None


def space_of(embedder: Embedder) -> str:
    """Vector space of an embedder: name, dimension and fingerprint."""
    return f"{embedder.name}-{embedder.dimension}-{embedder.fingerprint[:8]}"
