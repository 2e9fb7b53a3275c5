"""Files kept for documents besides the catalog: Markdown and pictures of pages, and uploads.

They are removed with their document: the code that clears leftovers calls ``remove_unused``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.views import Source
from penstock.config import Settings
from penstock.handlers.fetched_files import FetchedFiles
from penstock.handlers.page_files import PageFiles
from penstock.named_tuple import NamedTuple
from penstock.pipeline.web.urls import FetchLimits

IMAGES = "page_images"
"""Folder of the state directory with pictures of pages."""
UPLOADS = "uploads"
"""Folder of the state directory with uploaded files, unless the settings name another."""
FETCHED = "web"
"""Folder of the state directory with contents of web pages."""
LOCK = ".lock"


class UnusedFiles(Protocol):
    """Files belonging to documents, and removed with them."""

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove files of versions neither in search nor being read."""


class SourceFiles(NamedTuple):
    """Directories with files of documents; None: there are none."""

    pages: str | None = None
    images: str | None = None
    uploads: str | None = None
    fetched: FetchedFiles | None = None

    @classmethod
    def of(cls, settings: Settings) -> SourceFiles:
        """The directories of the settings."""
        return cls(
            settings.pages_dir,
            str(settings.state_dir / IMAGES),
            os.path.realpath(uploads_directory(settings)),
            fetched_files(settings),
        )

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove files of versions neither in search nor being read."""
        PageFiles(self.pages).remove_unused(snapshot, source_ids)
        PageFiles(self.images).remove_unused(snapshot, source_ids)
        if self.fetched is not None:
            self.fetched.remove_unused(snapshot, source_ids)
        if self.uploads is None or not Path(self.uploads).is_dir():
            return
        for source_id in filter(None, source_ids):
            source = snapshot.get(source_id)
            if source is not None and not source.live and source.path.startswith(self.uploads + "/"):
                _remove_upload(Path(self.uploads), source)


NO_FILES = SourceFiles()


def uploads_directory(settings: Settings) -> Path:
    """The directory with uploaded files."""
    return Path(settings.uploads_dir) if settings.uploads_dir else settings.state_dir / UPLOADS


def fetched_files(settings: Settings) -> FetchedFiles:
    """The files fetched from the web, with the limits of the settings."""
    limits = FetchLimits(
        max_bytes=settings.max_file_mb << 20, timeout_s=settings.web_timeout_s, private=settings.web_private
    )
    return FetchedFiles(str(settings.state_dir / FETCHED), limits, delay_s=settings.web_delay_s)


class UploadsLock:
    """The lock under which uploaded files are put in place or removed, while it is held.

    The file has the name of the server that changed the files last; empty, after a removal by a worker. So a
    server knows when the sizes that it has counted are not those of the files any more.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def changed_by(self) -> str:
        """Who changed the files last."""
        return os.pread(self._descriptor, 256, 0).decode("ascii", "replace")

    def note_change(self, name: str = "") -> None:
        """Note who changes the files."""
        if name != self.changed_by:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, name.encode("ascii"), 0)


@contextmanager
def uploads_lock(directory: Path) -> Iterator[UploadsLock]:
    """Hold the lock under which uploaded files are put in place or removed."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield UploadsLock(descriptor)
    finally:
        os.close(descriptor)


def _remove_upload(directory: Path, source: Source) -> None:
    """Remove the file of a removed document, unless replaced by a later upload."""
    path = Path(source.path)
    with uploads_lock(directory) as lock, suppress(OSError):
        status = path.stat(follow_symlinks=False)
        known = ((source.size, source.mtime_ns), (source.failure.size, source.failure.mtime_ns))
        if (status.st_size, status.st_mtime_ns) not in known:
            return
        # Before: a crash in between makes servers count again, and never leaves bytes that are not there.
        lock.note_change()
        path.unlink()
        for folder in path.parents:
            if folder == directory:
                break
            folder.rmdir()  # ends at a folder with other files
