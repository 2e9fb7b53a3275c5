"""Pages of documents: their texts, shown or exported, their pictures, and frames of chunks on these."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Document, NewPage, PageState, Phase, Source, TaskStatus
from penstock.errors import JobError, OutputFailed, PageImageMissing, UnknownDocument
from penstock.handlers.members import container_of, read_file
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content, ExtractLimits, PageImage, PlacedWord
from penstock.state_directory import make_private, private_opener
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.pipeline.extract.sandbox.sandbox import Sandbox

_PAGES_AT_ONCE = 100
_LONGEST_NAME = 200
"""Bytes of a folder's name in an export; file systems allow 255."""


class ShownPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a document. ``text`` is Markdown where the source has structure.

    ``engine`` and ``confidence`` (0 to 100) are those of recognized text. ``exact``: the text is as it was
    read; otherwise it was put together from chunks, and white space between them may differ.
    """

    source_id: str
    path: str
    page: int
    page_count: int
    status: TaskStatus
    text: str
    exact: bool
    engine: str | None
    confidence: float | None
    warnings: tuple[str, ...]
    page_file_path: str | None
    error: str | None


class ExportedPages(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of an export, and the directory with the folders of the documents."""

    directory: str
    documents: int
    pages: int
    unread: int
    """Pages left out, because they failed or are not read yet."""


def shown_page(snapshot: CatalogSnapshot, source: Source, number: int) -> ShownPage:
    """Read one page of the version in search, else of the version being indexed."""
    document_id = source.published_id if source.published_id is not None else source.building_id
    found = snapshot.pages(document_id, after=number - 1, limit=1) if document_id is not None else []
    if document_id is None or not found or found[0].number != number:
        document = snapshot.document(document_id) if document_id is not None else None
        count = how_many(document.page_count if document else 0, "page")
        raise UnknownDocument(
            f"{source.path} has no page {number:,}: it has {count}",
            remedy="`penstock documents tree` lists the pages.",
        )
    content = snapshot.content(document_id, number)
    document = snapshot.document(document_id)
    return _shown(source, found[0], content[0], document.page_count if document else number)


def _shown(source: Source, state: PageState, page: NewPage, page_count: int) -> ShownPage:
    return ShownPage(
        source_id=source.source_id,
        path=source.path,
        page=state.number,
        page_count=page_count,
        status=state.phases[Phase.OCR].status,
        text=_text_of(page),
        exact=page.text is not None,
        engine=state.engine or None,
        confidence=state.confidence,
        warnings=state.warnings,
        page_file_path=state.file_path,
        error=state.error,
    )


def _text_of(page: NewPage) -> str:
    """The text of a page: as kept, or joined from the chunks."""
    return page.text if page.text is not None else joined(page.chunks or ())


class Stretch(Protocol):
    """A chunk with its place on a page."""

    @property
    def text(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def first_line(self) -> int | None: ...

    @property
    def last_line(self) -> int | None: ...


def joined(chunks: Sequence[Stretch]) -> str:
    """The stretch of a page covered by chunks, without overlaps.

    Only white space lies between chunks. Its length is known, and its lines where chunks have lines.
    """
    parts: list[str] = []
    reached, line = 0, None
    for chunk in sorted(chunks, key=lambda each: each.start):
        gap = chunk.start - reached
        if parts and gap > 0:
            lines = chunk.first_line - line if chunk.first_line is not None and line is not None else 0
            parts.append("\n" * min(gap, lines) if lines > 0 else "\n" * min(gap, 2))
        parts.append(chunk.text[max(reached - chunk.start, 0) :])
        reached, line = max(reached, chunk.end), chunk.last_line
    return "".join(parts)


def export_pages(catalog: Catalog, sources: Iterable[Source], directory: Path) -> ExportedPages:
    """Write a file for each page, ``PATH/0001.md``, with the documents' paths below their common folder."""
    chosen = [source for source in sources if source.published_id is not None]
    base = _common_folder([source.path for source in chosen if source.path.startswith("/")])
    pages = unread = 0
    for source in chosen:
        folder = directory.joinpath(*_safe_parts(source.path, base))
        try:
            for number, text in _texts(catalog, source):
                if text is None:
                    unread += 1
                    continue
                _write(folder / f"{number:04}.md", text)
                pages += 1
        except OSError as error:
            raise OutputFailed(f"{error.filename or folder} cannot be written ({error.strerror})") from None
    return ExportedPages(directory=str(directory), documents=len(chosen), pages=pages, unread=unread)


def _texts(catalog: Catalog, source: Source) -> Iterator[tuple[int, str | None]]:
    """Number and text of each page; None for an unread page."""
    after = -1
    while True:
        with catalog.snapshot() as snapshot:
            states = snapshot.pages(source.published_id or 0, after=after, limit=_PAGES_AT_ONCE)
            for state in states:
                done = state.phases[Phase.OCR].status is TaskStatus.COMPLETED
                found = snapshot.content(source.published_id or 0, state.number) if done else ()
                yield state.number, _text_of(found[0]) if found else None
        if len(states) < _PAGES_AT_ONCE:
            return
        after = states[-1].number


def _common_folder(paths: Sequence[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else "/"  # noqa: PTH120


def _safe_parts(path: str, base: str) -> list[str]:
    """Names of folders for a source's path: none leads out of the directory, none is too long."""
    below = os.path.relpath(path, base) if path.startswith("/") else path
    parts = [part for part in below.split("/") if part not in ("", ".", "..")]
    return [part.encode()[:_LONGEST_NAME].decode(errors="ignore").replace("\0", "_") for part in parts]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") or not text else text + "\n", encoding="utf-8", newline="\n")


_FEWEST = 4
"""Letters of a line that is looked for alone; shorter ones are found everywhere."""
_MOST_COLUMNS = 50
"""Boxes of a chunk above which it gets one around all of them."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class ChunkFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk on the picture of its page.

    ``boxes``: left, top, right and bottom as parts of the picture's width and height, one box for each column
    that the text runs through.
    """

    chunk_id: str
    boxes: list[Box]


class PageFrames(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks of a page whose place on its picture is known."""

    source_id: str
    page: int
    frames: list[ChunkFrame]


class _Layer(msgspec.Struct, frozen=True):
    """The letters of a page, and the word that each of them belongs to."""

    letters: str
    words: list[PlacedWord]
    owners: list[int]


def frames_of(words: Sequence[PlacedWord], chunks: Sequence[tuple[str, str]]) -> list[ChunkFrame]:
    """Frames of chunks, given by id and text in the order of the page; without those that are not found.

    Only letters and digits are compared. Marks of Markdown, hyphens at line ends and white space differ
    between a chunk and the page.
    """
    layer, found, begun = _layer(words), [], 0
    for chunk_id, text in chunks:
        spans = list(_spans(layer.letters, text, begun))
        if spans:
            # Chunks repeat the end of the one before, but not its start.
            begun = spans[0][0]
            found.append(ChunkFrame(chunk_id=chunk_id, boxes=_boxes(layer, spans)))
    return found


def _letters(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, folded))


def _layer(words: Sequence[PlacedWord]) -> _Layer:
    spelled = [_letters(word.text) for word in words]
    owners = [number for number, letters in enumerate(spelled) for _ in letters]
    return _Layer("".join(spelled), list(words), owners)


def _spans(letters: str, text: str, begun: int) -> Iterator[tuple[int, int]]:
    """Ranges of letters with the text: as a whole, else by its lines."""
    whole = _letters(text)
    at = letters.find(whole, begun) if whole else -1
    if at >= 0:
        yield at, at + len(whole)
        return
    for line in map(_letters, text.splitlines()):
        at = letters.find(line, begun) if len(line) >= _FEWEST else -1
        if at >= 0:
            begun = at + len(line)
            yield at, begun


def _boxes(layer: _Layer, spans: Sequence[tuple[int, int]]) -> list[Box]:
    numbers = dict.fromkeys(owner for first, last in spans for owner in layer.owners[first:last])
    boxes: list[Box] = []
    before: PlacedWord | None = None
    for word in map(layer.words.__getitem__, numbers):
        own = (word.left, word.top, word.right, word.bottom)
        # A word that is wholly above the one before is in the next column.
        if before is not None and word.bottom >= before.top:
            own = _around(boxes.pop(), own)
        boxes.append(own)
        before = word
    columns = _apart(boxes) if len(boxes) <= _MOST_COLUMNS else [reduce(_around, boxes)]
    return [(round(a, 4), round(b, 4), round(c, 4), round(d, 4)) for a, b, c, d in columns]


def _apart(boxes: Sequence[Box]) -> list[Box]:
    """The boxes with those joined that overlap: labels of a drawing are not columns."""
    found: list[Box] = []
    for box in boxes:
        joined = box
        while touching := [one for one in found if _overlap(one, joined)]:
            found = [one for one in found if one not in touching]
            joined = reduce(_around, touching, joined)
        found.append(joined)
    return found


def _around(one: Box, other: Box) -> Box:
    return (*map(min, one[:2], other[:2]), *map(max, one[2:], other[2:]))  # type: ignore[return-value]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


_DRAWN = frozenset(["pdf", "image"])
"""Extractors of files whose pages can be drawn."""
WIDTHS = (400, 900, 2_000)
"""Widths of pictures: of a preview, of a page beside its text, and to read small print. A request for another
width gets the next one, so that a page is drawn and kept three times at most."""
MAX_WIDTH = WIDTHS[-1]
DRAWN_AT_ONCE = 3
"""Pages drawn at the same time, each in a process that may use the memory of a parser."""
DRAWN_PER_KEY = 1
"""Pages that one key may have drawn at the same time: there is always a place for another one, and a core."""
_NICENESS = 5
"""The processes give way to the server, whose answers take a millisecond."""
_CACHE_BYTES = 256 * 1024 * 1024
_USUAL_INCHES = 8.0
_LEAST_DPI, _MOST_DPI = 36, 300
_UNSAFE = re.compile(r"[^A-Za-z0-9-]")
_HASH_CHARS = 16


class PageImages:
    """Pictures of the pages of documents, a few drawn at a time in the sandbox. Threads may share one.

    A picture is ``SOURCE_ID/CONTENT/NUMBER-WIDTH.png`` below the directory, as ``PageFiles`` names its files:
    those of removed versions are removed in the same way.
    """

    def __init__(
        self, catalog: Catalog, limits: ExtractLimits, directory: Path, *, most_bytes: int = _CACHE_BYTES
    ) -> None:
        # Imported here: search loads this module for the texts of pages.
        from queue import LifoQueue

        from penstock.pipeline.extract.sandbox.sandbox import Sandbox

        self._catalog = catalog
        self._limits = limits
        self._directory = directory
        self._most_bytes = most_bytes
        self._kept_bytes: int | None = None
        self._sandboxes = [Sandbox(limits, niceness=_NICENESS) for _ in range(DRAWN_AT_ONCE)]
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
        if file_types.detect(source.path, read.data).extractor not in _DRAWN:
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
