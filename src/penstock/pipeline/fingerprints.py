"""The fingerprints of a pipeline, from what it is made of."""

from __future__ import annotations

from typing import Literal

from penstock.catalog.values import Fingerprints
from penstock.pipeline.chunk import boundaries
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract.factory import EXTRACTORS, extractor
from penstock.pipeline.fingerprint import fingerprint


def fingerprints(
    sizes: ChunkSizes, embedder: Embedder, *, reader: str | None = None, graph: str = ""
) -> Fingerprints:
    """Of the extractors, the chunkers with their sizes, and the model, whose files this may load.

    ``reader`` is a ``Kind.extractor``: with it a new version of one extractor concerns only its documents.
    """
    readers = EXTRACTORS if reader is None else (reader,)
    read_by = fingerprint(
        {"extract": {name: extractor(name).version for name in readers}, "chunk": boundaries.VERSION}
    )
    return Fingerprints(
        # The sizes in clear: whoever goes on with a document finds here how it is cut.
        ocr=f"{read_by}:{sizes.size}:{sizes.overlap}",
        vector=embedder.fingerprint,
        graphrag=graph,
    )


def sizes_of(made_with: Fingerprints) -> ChunkSizes | None:
    """How a document is cut, from its fingerprints; None for those of another version."""
    _, *numbers = made_with.ocr.split(":")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    return ChunkSizes(int(numbers[0]), int(numbers[1]))


def outdated(made: Fingerprints, wanted: Fingerprints) -> Literal["reading", "model"] | None:
    """What has to be done again, and all after it: reading and cutting, or only the vectors."""
    if made.ocr != wanted.ocr:
        return "reading"
    return "model" if made.vector != wanted.vector else None
