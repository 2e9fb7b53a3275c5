"""Length-prefixed messages between the sandbox, the zygote and the parser child."""

from __future__ import annotations

import sys
from io import BufferedReader
from typing import IO, TypeAlias

import msgspec

from penstock.catalog.values import NewPage
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import Draft
from penstock.pipeline.extract.protocol import ExtractedText, ExtractLimits, FileType, Page, PlacedWord
from penstock.pipeline.ocr.protocol import OcrOptions

OUT_OF_MEMORY = "OutOfMemory"
"""Name of the error of a file or page that exceeded the memory limit."""


class Fork(msgspec.Struct, array_like=True, tag=True):
    """Order to the zygote: fork a child for the file descriptor sent along. Answered with its process id."""

    extractor: str
    """Extractor to load before, so that later children have it as well."""
    ocr_paths: tuple[str, ...] = ()
    """Folders that OCR reads. If there are some, its libraries are loaded as well."""
    memory_bytes: int = 0
    """Upper limit of memory for every file of this child; 0: the limits of the zygote."""


class Collect(msgspec.Struct, array_like=True, tag=True):
    """Order to the zygote: end the child. Answered with its exit status."""


class ParseRequest(msgspec.Struct, array_like=True):
    """A request to the child. Unless ``resumed``, the file's bytes follow, as a message of their own."""

    name: str
    file_type: FileType
    limits: ExtractLimits
    pages: tuple[int, int] | None
    """First page, and the one after the last; None: all."""
    batch_seconds: float | None
    """CPU time after which the child ends with the pages read so far."""
    seconds: float
    """CPU time to open the document, or to read a file without pages."""
    memory_bytes: int
    sizes: ChunkSizes | None = None
    """Chunk sizes, if the text is to be cut into chunks as well."""
    ocr: OcrOptions | None = None
    """Options of OCR for pages without a usable text layer; None: no OCR."""
    image_dpi: int = 0
    """Resolution at which the pages are drawn, instead of being read; 0: they are read."""
    places: bool = False
    """The words of the pages are placed, instead of being read."""
    page_seconds: float = 0
    """CPU time for each page."""
    resumed: bool = False
    """The child has this document open, from the request before."""


class Whole(msgspec.Struct, array_like=True, tag=True):
    """Answer for a file without pages."""

    extracted: ExtractedText | None = None
    draft: Draft | None = None


class Opened(msgspec.Struct, array_like=True, tag=True):
    """First answer for a document with pages: all but the pages, which follow as separate answers."""

    head: ExtractedText


class PageRead(msgspec.Struct, array_like=True, tag=True):
    """Answer for one page: its text, or its chunks if sizes were given."""

    number: int
    page: Page | None = None
    new_page: NewPage | None = None
    warnings: tuple[str, ...] = ()


class Drawn(msgspec.Struct, array_like=True, tag=True):
    """Answer for a drawn page: the shape and the bytes of the picture."""

    shape: tuple[int, ...]
    pixels: bytes


class WordsPlaced(msgspec.Struct, array_like=True, tag=True):
    """Answer for one page whose words are placed."""

    words: tuple[PlacedWord, ...]


class PagesEnded(msgspec.Struct, array_like=True, tag=True):
    """Last answer for a document with pages."""

    kept: bool
    """The document stays open, for a request that is ``resumed``."""


class Refusal(msgspec.Struct, array_like=True, tag=True):
    """Answer for an unreadable file or page. ``error``: name of a class, of ``errors`` or another."""

    error: str
    message: str = ""
    remedy: str | None = None


Order: TypeAlias = Fork | Collect
Answer: TypeAlias = Whole | Opened | PageRead | Drawn | WordsPlaced | PagesEnded | Refusal

encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_request = msgspec.msgpack.Decoder(ParseRequest).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "big"))
    pipe.write(message)
    pipe.flush()


class MessageTooLarge(Exception):
    """A message exceeds the limit of the sender's messages."""


def receive(pipe: IO[bytes] | BufferedReader, limit: int = sys.maxsize) -> bytes | None:
    """Read one message; None at the end of the stream, even in the middle of a message.

    Raises ``MessageTooLarge`` for one of more than ``limit`` bytes.
    """
    head = pipe.read(8)
    length = int.from_bytes(head, "big")
    if length > limit:
        raise MessageTooLarge
    body = pipe.read(length) if len(head) == 8 else b""
    return body if len(head) == 8 and len(body) == length else None
