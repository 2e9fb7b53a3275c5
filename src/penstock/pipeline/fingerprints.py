"""Fingerprints: names and versions of the parts behind a document. A new one means work to repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.catalog.values import Fingerprints
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.protocol import Embedder

OCR_OFF = "off"
"""In the place of the fingerprint of OCR: pages that are pictures were left unread."""
NO_PICTURES = "none"
"""In the same place: every page has a usable text layer, so that OCR makes no difference."""


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
    how pictures are read, or OCR_OFF, for extractors of files that may hold some.
    """
    # Imported here: a search needs only ``fingerprint``, and should start quickly.
    from penstock.pipeline.chunk import boundaries
    from penstock.pipeline.chunk.added_chunkers import added_chunker_versions
    from penstock.pipeline.extract.factory import extractor
    from penstock.pipeline.extract.file_types import EXTRACTORS

    names = EXTRACTORS if extractor_name is None else (extractor_name,)
    parts: dict[str, object] = {
        "extract": {name: extractor(name).version for name in names},
        "chunk": boundaries.VERSION,
    } | added_chunker_versions(names)
    text_fingerprint = fingerprint(parts | ({} if grammar is None else {"grammar": grammar}))
    if ocr is not None:
        text_fingerprint += f"+{ocr}"
    return Fingerprints(
        # The sizes are readable: a task that continues a document finds its chunk sizes here.
        ocr=with_reader(
            f"{text_fingerprint}:{sizes.size}:{sizes.overlap}", None if named else extractor_name
        ),
        vector=embedder.fingerprint,
    )


def with_reader(fingerprint: str, reader: str | None) -> str:
    """A fingerprint with the name of the extractor, for a misnamed file.

    The file can then be compared by its name alone: it is not read again in each run, but it is when the
    extractor that read it changes.
    """
    return fingerprint if reader is None else f"{fingerprint}:{reader}"


def reader_in(fingerprint: str | None) -> str | None:
    """The extractor named in a fingerprint by ``with_reader``."""
    parts = (fingerprint or "").split(":")
    # Of a failure: the digits alone. Of a document: the digits and two sizes.
    return parts[-1] if len(parts) in (2, 4) else None


def ocr_in(made: str) -> str | None:
    """OCR fingerprint of a document, or OCR_OFF, or NO_PICTURES; None for formats without pictures."""
    return made.partition(":")[0].partition("+")[2] or None


def without_pictures(made: Fingerprints) -> Fingerprints:
    """The fingerprints of a document found to have no picture pages."""
    return made if ocr_in(made.ocr) is None else _with_ocr(made, NO_PICTURES)


def _with_ocr(made: Fingerprints, ocr: str) -> Fingerprints:
    first, *rest = made.ocr.split(":")
    return msgspec.structs.replace(made, ocr=":".join((f"{first.partition('+')[0]}+{ocr}", *rest)))


def keep_reading(wanted: Fingerprints, made: Fingerprints) -> Fingerprints:
    """The wanted fingerprints, or those of the source if OCR alone does not justify reading again.

    Documents without pictures are the same with and without OCR. Recognized text stays where a request does
    not want OCR.
    """
    if "+" not in wanted.ocr or wanted.ocr == made.ocr:
        return wanted
    asked, found = ocr_in(wanted.ocr), ocr_in(made.ocr)
    if found is None or found == OCR_OFF or (found != NO_PICTURES and asked != OCR_OFF):
        return wanted
    kept = _with_ocr(wanted, found)
    return kept if kept.ocr == made.ocr else wanted


def same_reading(wanted: Fingerprints, made: Fingerprints) -> bool:
    """Check whether an unfinished generation fits a request and can be finished for the request."""
    return wanted == made or (ocr_in(made.ocr) == NO_PICTURES and keep_reading(wanted, made) == made)


def sizes_of(made_with: Fingerprints) -> ChunkSizes | None:
    """Chunk sizes of a document, from the fingerprints; None for another format."""
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
