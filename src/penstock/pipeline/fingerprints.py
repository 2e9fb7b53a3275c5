"""Fingerprints: names and versions of the parts behind a document. A new one means work to repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.catalog.values import Fingerprints
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.protocol import Embedder


def fingerprint(parts: Mapping[str, object]) -> str:
    """16 hex digits of the names and values given, in any order."""
    canonical = msgspec.json.encode(dict(sorted(parts.items())))
    return hashlib.sha256(canonical).hexdigest()[:16]


def fingerprints(
    sizes: ChunkSizes,
    embedder: Embedder,
    *,
    extractor_name: str | None = None,
    named: bool = True,
    grammar: str | None = None,
    ocr: str | None = None,
) -> Fingerprints:
    """Fingerprints of the extractors, the chunkers with their sizes, and the model. May load model files.

    With ``extractor_name`` (see ``FileType.extractor``) only this extractor counts. A new version of it then
    concerns only its own documents. Not ``named``: the name of the file stands for another extractor.
    ``grammar``: language of an optional grammar that is installed, and cuts the file. ``ocr``: fingerprint of
    how pictures are read, for extractors of files that may hold some.
    """
    # Imported here: a search needs only ``fingerprint``, and should start quickly.
    from penstock.pipeline.chunk import boundaries
    from penstock.pipeline.extract.factory import EXTRACTORS, extractor

    names = EXTRACTORS if extractor_name is None else (extractor_name,)
    parts: dict[str, object] = {
        "extract": {name: extractor(name).version for name in names},
        "chunk": boundaries.VERSION,
    }
    options = {"grammar": grammar, "ocr": ocr}
    text_fingerprint = fingerprint(
        parts | {name: value for name, value in options.items() if value is not None}
    )
    return Fingerprints(
        # The sizes are readable: a task that continues a document finds its chunk sizes here.
        ocr=with_reader(
            f"{text_fingerprint}:{sizes.size}:{sizes.overlap}", None if named else extractor_name
        ),
        vector=embedder.fingerprint,
    )


def with_reader(fingerprint: str, reader: str | None) -> str:
    """A fingerprint that names the extractor, for a file whose name stands for another one.

    The file can then be compared by its name alone: it is not read again in each run, but it is when the
    extractor that read it changes.
    """
    return fingerprint if reader is None else f"{fingerprint}:{reader}"


def reader_in(fingerprint: str | None) -> str | None:
    """The extractor named in a fingerprint by ``with_reader``."""
    parts = (fingerprint or "").split(":")
    # Of a failure: the digits alone. Of a document: the digits and two sizes.
    return parts[-1] if len(parts) in (2, 4) else None


def sizes_of(made_with: Fingerprints) -> ChunkSizes | None:
    """Chunk sizes of a document, from its fingerprints; None for another format."""
    _, *numbers = made_with.ocr.split(":")[:3]
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    return ChunkSizes(int(numbers[0]), int(numbers[1]))


def outdated(made: Fingerprints, wanted: Fingerprints) -> Literal["reading", "model", "graph"] | None:
    """First stage to repeat: reading and cutting, vectors, or entities; None if all is current."""
    if made.ocr != wanted.ocr:
        return "reading"
    if made.vector != wanted.vector:
        return "model"
    return "graph" if made != wanted else None
