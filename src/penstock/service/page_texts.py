"""Texts of pages as they were read: shown one at a time, or written to files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import NewPage, PageState, Phase, Source, TaskStatus
from penstock.errors import OutputFailed, UnknownDocument
from penstock.vocabulary import how_many

PAGES_AT_ONCE = 100
LONGEST_NAME = 200
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
        text=text_of(page),
        exact=page.text is not None,
        engine=state.engine or None,
        confidence=state.confidence,
        warnings=state.warnings,
        page_file_path=state.file_path,
        error=state.error,
    )


def text_of(page: NewPage) -> str:
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
            states = snapshot.pages(source.published_id or 0, after=after, limit=PAGES_AT_ONCE)
            for state in states:
                done = state.phases[Phase.OCR].status is TaskStatus.COMPLETED
                found = snapshot.content(source.published_id or 0, state.number) if done else ()
                yield state.number, text_of(found[0]) if found else None
        if len(states) < PAGES_AT_ONCE:
            return
        after = states[-1].number


def _common_folder(paths: Sequence[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else "/"  # noqa: PTH120


def _safe_parts(path: str, base: str) -> list[str]:
    """Names of folders for a source's path: none leads out of the directory, none is too long."""
    below = os.path.relpath(path, base) if path.startswith("/") else path
    parts = [part for part in below.split("/") if part not in ("", ".", "..")]
    return [part.encode()[:LONGEST_NAME].decode(errors="ignore").replace("\0", "_") for part in parts]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") or not text else text + "\n", encoding="utf-8", newline="\n")
