"""The fingerprints of a pipeline, from what it is made of."""

from __future__ import annotations

import msgspec

from penstock.catalog.values import Fingerprints
from penstock.pipeline.chunk import cutting
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract.opening import EXTRACTORS, extractor
from penstock.pipeline.fingerprint import fingerprint


def fingerprints(
    sizes: ChunkSizes, embedder: Embedder, *, reader: str | None = None, graph: str = ""
) -> Fingerprints:
    """Of the extractors, the chunkers with their sizes, and the model, whose files this may load.

    ``reader`` is a ``Kind.extractor``: with it a new version of one extractor concerns only its documents.
    """
    readers = EXTRACTORS if reader is None else (reader,)
    return Fingerprints(
        ocr=fingerprint(
            {
                "extract": {name: extractor(name).version for name in readers},
                "chunk": cutting.VERSION,
                "sizes": msgspec.to_builtins(sizes),
            }
        ),
        vector=embedder.fingerprint,
        graphrag=graph,
    )
