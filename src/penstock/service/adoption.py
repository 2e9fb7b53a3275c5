"""Adoption of documents that another system has read: its text is published, and the file is not read again.

The texts of the pages are cut here and published without vectors, so that they are found by their words at
once. An ordinary job of the file finds it unchanged and embeds the stored texts, as after a change of model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import Portions
from penstock.catalog.values import Fingerprints, NewGeneration, Outcome, Place, StoreResult
from penstock.errors import InvalidText
from penstock.handlers.members import hash_of
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import build_draft, without_pictures
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import ExtractedText, Page, Recognition, Shape
from penstock.pipeline.pipeline import Pipeline

_CHANGED = "its file changed after it was read there"
_ENGINE = "import"
"""Engine of the pages, as shown with recognized ones."""
_CLOCKS_DIFFER = timedelta(seconds=2)
"""Tolerance between the clock of the other system and that of the file system."""


class AdoptedPage(msgspec.Struct, frozen=True):
    """A page that was read: its text, or the path of a file with it."""

    number: int
    file_path: str | None = None
    text: str | None = None


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read completely. ``read_at`` None: unknown; ``sha256``: of the file, if known."""

    path: str
    pages: tuple[AdoptedPage, ...]
    read_at: datetime | None = None
    sha256: str | None = None


def flaw(document: ReadDocument) -> str | None:
    """The reason why a document has to be read here; None if it can be adopted. Reads no contents."""
    numbers = sorted(page.number for page in document.pages)
    if not numbers:
        return "no text of its pages is in the tables"
    if numbers != list(range(1, len(numbers) + 1)):
        return "the text of some pages is missing"
    try:
        found = Path(document.path).lstat()
    except (OSError, ValueError):
        return "its file cannot be read"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    read_at = _read_at(document)
    changed = datetime.fromtimestamp(found.st_mtime, tz=UTC)
    if read_at is not None and document.sha256 is None and changed > read_at + _CLOCKS_DIFFER:
        return _CHANGED
    if not all(page.text is not None or _is_file(page.file_path) for page in document.pages):
        return "the Markdown file of a page is missing"
    return None


def _read_at(document: ReadDocument) -> datetime | None:
    """When the document was read. Old tables do not say so; then the last file of a page was written then."""
    if document.read_at is not None:
        return document.read_at
    written = []
    for page in document.pages:
        with suppress(OSError, ValueError):
            if page.text is None and page.file_path is not None:
                written.append(Path(page.file_path).stat().st_mtime)
    return datetime.fromtimestamp(max(written), tz=UTC) if written else None


def _is_file(path: str | None) -> bool:
    with suppress(OSError, ValueError):
        return path is not None and path.startswith("/") and stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    return False


class Adopter:
    """Publishes texts that were read elsewhere. ``make_pipeline`` is called with the first document."""

    def __init__(self, catalog: Catalog, make_pipeline: Callable[[], Pipeline]) -> None:
        self._catalog = catalog
        self._make_pipeline = make_pipeline
        self._made: Pipeline | None = None

    @property
    def _pipeline(self) -> Pipeline:
        if self._made is None:
            self._made = self._make_pipeline()
        return self._made

    def adopt(self, documents: Sequence[tuple[Place, ReadDocument]]) -> list[str | None]:
        """Adopt documents that have no ``flaw``. Returns for each None, or why it has to be read here.

        A document that is in the index here already stays as it is, and counts as adopted.
        """
        answers: list[str | None] = [None] * len(documents)
        ready: list[tuple[int, NewGeneration]] = []
        for index, (place, document) in enumerate(documents):
            if self._is_known(place, document.path):
                continue
            found = self._generation(place, document)
            if isinstance(found, str):
                answers[index] = found
            else:
                ready.append((index, found))
        waiting = iter([index for index, _ in ready])
        for group in Portions().groups([new for _, new in ready]):
            for reason in self._store(group):
                answers[next(waiting)] = reason
        return answers

    def _is_known(self, place: Place, path: str) -> bool:
        with self._catalog.snapshot() as snapshot:
            source = snapshot.find(place, path)
        return source is not None and (source.published_id is not None or source.building_id is not None)

    def _generation(self, place: Place, document: ReadDocument) -> NewGeneration | str:
        path, limits = document.path, self._pipeline.limits
        try:
            found = Path(path).lstat()
            content_hash = hash_of(path, limits)
            # The times of one version with the hash of another would hide the change from every later walk.
            if _version(Path(path).lstat()) != _version(found):
                return _CHANGED
            pages = [self._page(page, limits.text_bytes) for page in document.pages]
        except (OSError, ValueError) as error:
            return f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        if document.sha256 is not None and document.sha256 != content_hash:
            return _CHANGED
        file_type = file_types.by_name(path) or file_types.TEXT
        extracted = ExtractedText(
            pages=tuple(pages), file_type=file_type, shape=Shape.MARKDOWN, page_count=len(pages)
        )
        sizes, now = ChunkSizes(), clock.now()
        draft = build_draft(extracted, sizes, complete=True)
        wanted = self._pipeline.fingerprints(path, sizes)
        wanted = without_pictures(self._pipeline.of_size(wanted, path, found.st_size))
        return NewGeneration(
            place=place,
            path=path,
            content_hash=content_hash,
            asked_at=now,
            read_at=min(document.read_at or now, now),
            pages=draft.pages,
            # Without a model: the job of the file finds that vectors, and entities if wanted, are to be made.
            fingerprints=Fingerprints(ocr=wanted.ocr),
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
            file_type=draft.suffix(path),
            title=draft.title,
            properties=draft.stored_properties,
        )

    def _page(self, page: AdoptedPage, most_bytes: int) -> Page:
        text = page.text if page.text is not None else _text(page.file_path or "", most_bytes)
        return Page(page.number, clean(text), recognition=Recognition(_ENGINE))

    def _store(self, group: Sequence[NewGeneration]) -> list[str | None]:
        try:
            return [_reason(stored) for stored in self._catalog.store(group)]
        except InvalidText as error:
            if len(group) == 1:
                return [error.message]
        return [reason for one in group for reason in self._store([one])]


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _text(path: str, most_bytes: int) -> str:
    with open(path, "rb", opener=_open_file) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is not a file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"{path} has more than {most_bytes:,} bytes")
    return data.decode("utf-8-sig", "replace")


def _open_file(path: str, flags: int) -> int:
    # A pipe in the place of the file must not make the import wait.
    return os.open(path, flags | os.O_NONBLOCK)


def _reason(stored: StoreResult) -> str | None:
    if stored.outcome is Outcome.PUBLISHED:
        return None
    return f"its text was not published ({str(stored.outcome).replace('_', ' ')})"
