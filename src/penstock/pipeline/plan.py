"""What a pipeline is made of, and the fingerprints that follow from it."""

from __future__ import annotations

import msgspec

from penstock.pipeline.chunk import cutting
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract.opening import EXTRACTORS, extractor
from penstock.pipeline.phases import Fingerprints, fingerprint


def fingerprints(sizes: ChunkSizes, embedder: Embedder, *, graph: str = "") -> Fingerprints:
    """Of every extractor, the chunkers and their sizes, and the model. Loads no parser, but the model's files.

    One fingerprint for all types of file: which of them a new version of one extractor concerns is seen when
    the unchanged pages keep their chunks.
    """
    return Fingerprints(
        ocr=fingerprint(
            {
                "extract": {name: extractor(name).version for name in EXTRACTORS},
                "chunk": cutting.VERSION,
                "sizes": msgspec.to_builtins(sizes),
            }
        ),
        vector=embedder.fingerprint,
        graphrag=graph,
    )
