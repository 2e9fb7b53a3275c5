"""Files with the Markdown of recognized pages, below a directory of the user.

The file of a page is ``SOURCE_ID/CONTENT/NUMBER_nohf.md``, where CONTENT begins the hash of the source's
bytes: pages of the version in search are not replaced while the next one is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.values import GenerationState, NewPage
from penstock.lazy_pattern import lazy_pattern
from penstock.state_directory import make_private

SUFFIX = "_nohf.md"
LONGEST_PATH = 1_000
"""Characters of a path that the catalog keeps."""
_HASH_CHARS = 16
_UNSAFE = lazy_pattern(r"[^A-Za-z0-9-]")


class PageFiles:
    """The files of one directory. Without a directory nothing is written."""

    def __init__(self, directory: str | None) -> None:
        self._directory = Path(directory) if directory else None

    def keep(self, source_id: str, content_hash: str, page: NewPage) -> NewPage:
        """Write the text of a recognized page; returns the page with the path of the file.

        A file that cannot be written costs a warning, not the page.
        """
        if self._directory is None or page.text is None or not page.engine:
            return page
        path = self._folder(source_id) / content_hash[:_HASH_CHARS] / f"{page.number:04}{SUFFIX}"
        try:
            if len(str(path)) > LONGEST_PATH:
                raise OSError(0, f"the path has more than {LONGEST_PATH:,} characters")
            write_atomically(path, page.text)
        except OSError as error:
            warning = f"its Markdown could not be written below {self._directory}: {error.strerror}"
            return msgspec.structs.replace(page, warnings=(*page.warnings, warning))
        return msgspec.structs.replace(page, file_path=str(path))

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove the files of versions neither in search nor being read."""
        if self._directory is None:
            return
        import shutil  # takes a while to load

        for source_id in filter(None, source_ids):
            folder = self._folder(source_id)
            if not folder.is_dir():
                continue
            used = {
                document.content_hash[:_HASH_CHARS]
                for document in snapshot.generations(source_id)
                if document.current or document.state is GenerationState.BUILDING
            }
            for version in folder.iterdir():
                if version.name not in used:
                    shutil.rmtree(version, ignore_errors=True)
            with suppress(OSError):  # another version is still there
                folder.rmdir()

    def _folder(self, source_id: str) -> Path:
        assert self._directory is not None
        return self._directory / _UNSAFE.sub("_", source_id)


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: a reader, also after a crash, sees the old or the new content."""
    make_private(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text if text.endswith("\n") else text + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
