"""Pictures of pages, drawn in the sandbox from the file of a document and kept in a bounded cache."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import LifoQueue

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Document, Source
from penstock.errors import JobError, PageImageMissing, UnknownDocument
from penstock.handlers.members import container_of, read_file
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content, ExtractLimits, PageImage, PlacedWord
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from penstock.service.chunk_frames import PageFrames, frames_of
from penstock.state_directory import make_private, private_opener
from penstock.vocabulary import how_many

DRAWN = frozenset(["pdf", "image"])
"""Extractors of files whose pages can be drawn."""
WIDTHS = (400, 900, 2_000)
"""Widths of pictures: of a preview, of a page beside its text, and to read small print. A request for another
width gets the next one, so that a page is drawn and kept three times at most."""
MAX_WIDTH = WIDTHS[-1]
DRAWN_AT_ONCE = 3
"""Pages drawn at the same time, each in a process that may use the memory of a parser."""
DRAWN_PER_KEY = 1
"""Pages that one key may have drawn at the same time: there is always a place for another one, and a core."""
NICENESS = 5
"""The processes give way to the server, whose answers take a millisecond."""
CACHE_BYTES = 256 * 1024 * 1024
_USUAL_INCHES = 8.0
_LEAST_DPI, _MOST_DPI = 36, 300
_UNSAFE = re.compile(r"[^A-Za-z0-9-]")
_HASH_CHARS = 16


class PageImages:
    """Pictures of the pages of documents, a few drawn at a time. Threads may share one.

    A picture is ``SOURCE_ID/CONTENT/NUMBER-WIDTH.png`` below the directory, as ``PageFiles`` names its files:
    those of removed versions are removed in the same way.
    """

    def __init__(
        self, catalog: Catalog, limits: ExtractLimits, directory: Path, *, most_bytes: int = CACHE_BYTES
    ) -> None:
        self._catalog = catalog
        self._limits = limits
        self._directory = directory
        self._most_bytes = most_bytes
        self._kept_bytes: int | None = None
        self._sandboxes = [Sandbox(limits, niceness=NICENESS) for _ in range(DRAWN_AT_ONCE)]
        # The one used last comes first: the processes of the others are not started before they are needed.
        self._free = LifoQueue[Sandbox]()
        for sandbox in reversed(self._sandboxes):
            self._free.put(sandbox)
        self._cache_lock = threading.Lock()

    def kept(self, source: Source, number: int, width: int) -> bytes | None:
        """A picture that was drawn before; else None. Raises ``UnknownDocument``."""
        kept = self._place(source, self._document(source, number), number, width)
        try:
            drawn = kept.read_bytes()
            os.utime(kept)
        except OSError:
            return None
        return drawn

    def png(self, source: Source, number: int, width: int) -> bytes:
        """A page of the version in search, of the next of ``WIDTHS``. Raises ``PageImageMissing``."""
        if (drawn := self.kept(source, number, width)) is not None:
            return drawn
        document = self._document(source, number)
        drawn = _png(self._draw(source, document, number, _next_width(width)), _next_width(width))
        with suppress(OSError):  # the picture is shown all the same
            self._keep(self._place(source, document, number, width), drawn)
        return drawn

    def _place(self, source: Source, document: Document, number: int, width: int) -> Path:
        folder = self._directory / _UNSAFE.sub("_", source.source_id) / document.content_hash[:_HASH_CHARS]
        return folder / f"{number:04}-{_next_width(width)}.png"

    def frames(self, source: Source, number: int) -> PageFrames:
        """Places of the page's chunks on its picture. None of them where the text layer is not known."""
        document = self._document(source, number)
        with self._catalog.snapshot() as snapshot:
            pages = snapshot.pages(document.document_id, after=number - 1, limit=1)
            own = snapshot.chunks(pages[0].page_id) if pages and pages[0].number == number else []
            texts = snapshot.hydrate([chunk.content_id for chunk in own])
        words: tuple[PlacedWord, ...] = ()
        with suppress(PageImageMissing):
            words = self._words(source, document, number)
        known = [(chunk.chunk_id, view.text) for chunk, view in zip(own, texts, strict=True) if view]
        return PageFrames(source_id=source.source_id, page=number, frames=frames_of(words, known))

    def close(self) -> None:
        """End the processes of the sandboxes."""
        for sandbox in self._sandboxes:
            sandbox.close()

    @contextmanager
    def _sandbox(self) -> Iterator[Sandbox]:
        sandbox = self._free.get()
        try:
            yield sandbox
        finally:
            self._free.put(sandbox)

    def _document(self, source: Source, number: int) -> Document:
        document_id = source.published_id if source.published_id is not None else source.building_id
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(document_id) if document_id is not None else None
        if document is None or not 1 <= number <= document.page_count:
            count = how_many(document.page_count if document else 0, "page")
            raise UnknownDocument(f"{source.path} has no page {number:,}: it has {count}")
        return document

    def _draw(self, source: Source, document: Document, number: int, width: int) -> PageImage:
        content = self._content(source, document)
        dpi = min(max(round(width / _USUAL_INCHES), _LEAST_DPI), _MOST_DPI)
        try:
            with self._sandbox() as sandbox:
                return sandbox.image(content, number, dpi, memory_bytes=self._limits.parser_memory_bytes)
        except JobError as error:
            raise PageImageMissing(f"page {number:,} cannot be drawn: {error.message}") from None

    def _words(self, source: Source, document: Document, number: int) -> tuple[PlacedWord, ...]:
        content = self._content(source, document)
        try:
            with self._sandbox() as sandbox:
                return sandbox.words(content, number)
        except JobError as error:
            raise PageImageMissing(f"page {number:,} cannot be read: {error.message}") from None

    def _content(self, source: Source, document: Document) -> Content:
        """The indexed bytes of a document with drawable pages; refused if the file has changed since."""
        if container_of(source.path) is not None or not source.path.startswith("/"):
            raise PageImageMissing("pages of notes and of files inside others are not drawn")
        try:
            read = read_file(source.path, self._limits, lambda _: False)
        except OSError as error:
            raise PageImageMissing(f"the file cannot be read: {error.strerror}") from None
        except JobError as error:
            raise PageImageMissing(f"the file cannot be read: {error.message}") from None
        if read is None or hashlib.sha256(read.data).hexdigest() != document.content_hash:
            raise PageImageMissing("the file has changed since it was indexed", remedy="Index it again.")
        if file_types.detect(source.path, read.data).extractor not in DRAWN:
            raise PageImageMissing(
                f"pages of {source.file_type} files are not drawn", remedy="Read the text of the page."
            )
        return Content(source.path, read.data)

    def _keep(self, path: Path, drawn: bytes) -> None:
        make_private(path.parent)
        unfinished = path.with_name(f".{path.name}.{threading.get_ident()}")
        with open(unfinished, "wb", opener=private_opener) as file:
            file.write(drawn)
        unfinished.replace(path)
        with self._cache_lock:
            if self._kept_bytes is None:
                self._kept_bytes = sum(size for _, size, _ in self._pictures())
            else:
                self._kept_bytes += len(drawn)
            if self._kept_bytes > self._most_bytes:
                self._evict()

    def _evict(self) -> None:
        """Remove the least recently shown pictures, a quarter of the cache."""
        found = sorted(self._pictures())
        left = sum(size for _, size, _ in found)
        for _, size, path in found:
            if left <= self._most_bytes * 3 // 4:
                break
            path.unlink(missing_ok=True)
            left -= size
            for folder in (path.parent, path.parent.parent):
                with suppress(OSError):  # another picture is in it
                    folder.rmdir()
        self._kept_bytes = left

    def _pictures(self) -> list[tuple[int, int, Path]]:
        found = []
        for path in self._directory.glob("*/*/*"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        return found


def _next_width(width: int) -> int:
    """The least of the widths that is not below this one."""
    return next((one for one in WIDTHS if one >= width), MAX_WIDTH)


def _png(drawn: PageImage, width: int) -> bytes:
    import numpy as np
    from PIL import Image

    pixels = drawn.pixels
    if pixels.shape[1] > width:
        size = (width, max(1, round(pixels.shape[0] * width / pixels.shape[1])))
        pixels = np.asarray(Image.fromarray(pixels).resize(size))
    height, columns = pixels.shape[:2]
    # Each row begins with its filter: none. Pillow compresses a whole page without letting other threads run,
    # which holds up all requests for 30 ms and more; zlib does not.
    rows = np.zeros((height, 1 + pixels[0].size), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    colours = 0 if pixels.ndim == 2 else 2
    header = struct.pack(">IIBBBBB", columns, height, 8, colours, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_part(name, data) for name, data in parts)


def _png_part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
