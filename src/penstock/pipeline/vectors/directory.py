"""Directory of vector cache files: one per catalog, in the state directory, which is never indexed.

The catalog has all of this data. Any file may be deleted at any time, even while it is in use.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock import clock
from penstock.config import Settings
from penstock.pipeline.vectors.footer import FileOwner, read_footer
from penstock.state_directory import make_private, private_opener

REMOVED_KEPT_S = 86_400
"""Time to keep the mark of a removed tenant. No older snapshot is still in use after that."""
VECTORS, INDEX, REMOVED, LOCK, UNFINISHED = ".vectors", ".graph", ".gone", ".lock", ".young"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of vectors from which files and indexes are used."""

    file_from: int = 5_000
    """Vectors of a tenant from which a file is faster than reading the catalog."""
    max_drift: int = 2_000
    """Changed rows after which a file is rewritten, or a twentieth of its rows if that is more."""
    index_from: int = 200_000
    """Vectors of a tenant from which an index is faster than an exact scan."""


class _Label(msgspec.Struct):
    """The fields of a file's label needed to decide whether the file is still wanted."""

    owner: FileOwner


class CacheDirectory:
    """Cache files of one catalog. File names do not reveal tenants; only the owner may read the files."""

    def __init__(self, directory: Path, catalog: str, sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
        self.catalog = catalog
        self.sizes = sizes
        self._directory = directory / catalog

    def vectors(self, tenant_id: str, space: str) -> Path:
        return self._directory / f"{_name(tenant_id)}-{_name(space)}{VECTORS}"

    def index(self, tenant_id: str, space: str) -> Path:
        return self.vectors(tenant_id, space).with_suffix(INDEX)

    @contextmanager
    def lock(self, tenant_id: str, space: str) -> Iterator[bool]:
        """Lock these files for writing; False if another process holds the lock. Removes unfinished files."""
        make_private(self._directory)
        lock_path = self.vectors(tenant_id, space).with_suffix(LOCK)
        fd = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            yield False
            return
        try:
            for leftover in self._directory.glob(f"{lock_path.stem}.*{UNFINISHED}"):
                leftover.unlink(missing_ok=True)
            yield True
        finally:
            os.close(fd)

    @contextmanager
    def new_file(self, path: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """A temporary file to write, removed at the end unless renamed by ``publish``."""
        make_private(self._directory)
        new_path = path.with_suffix(f".{os.getpid()}-{clock.new_task_id()[:8]}{UNFINISHED}")
        fd = os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w+b") as file:
                yield file, new_path
        finally:
            new_path.unlink(missing_ok=True)

    def publish(self, new_path: Path, path: Path) -> None:
        new_path.replace(path)
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove_tenant(self, tenant_id: str, sequence: int) -> None:
        """Remove all files of a tenant, also an older one (before ``sequence``) still being written.

        That process checks the mark written here after it has published the file.
        """
        make_private(self._directory)
        # First, to make room for the mark on a full disk.
        self._remove_files(tenant_id)
        with open(self._removal_mark(tenant_id), "w", encoding="ascii", opener=private_opener) as mark:
            mark.write(str(sequence))
        self._remove_files(tenant_id)

    def _remove_files(self, tenant_id: str) -> None:
        for suffix in (VECTORS, INDEX, UNFINISHED, LOCK):
            for path in self._directory.glob(f"{_name(tenant_id)}-*{suffix}"):
                path.unlink(missing_ok=True)

    def removed_since(self, tenant_id: str, sequence: int) -> bool:
        with suppress(OSError, ValueError):
            return int(self._removal_mark(tenant_id).read_text(encoding="ascii")) > sequence
        return False

    def _removal_mark(self, tenant_id: str) -> Path:
        return self._directory / f"{_name(tenant_id)}{REMOVED}"

    def sweep(self, wanted: Callable[[str], Collection[str]]) -> int:
        """Remove files of spaces not in ``wanted(tenant_id)``; returns their number."""
        removed = 0
        for path in self._directory.glob(f"*{VECTORS}"):
            footer = read_footer(path, _Label)
            owner = footer.meta.owner if footer is not None else None
            if owner is None or owner.space not in wanted(owner.tenant_id):
                self.discard(path)
                removed += 1
        for path in self._directory.glob(f"*{INDEX}"):
            if not path.with_suffix(VECTORS).exists():
                path.unlink(missing_ok=True)
        long_ago = clock.now().timestamp() - REMOVED_KEPT_S
        for path in self._directory.glob(f"*{REMOVED}"):
            with suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        return removed

    def files(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{VECTORS}"))

    def damaged(self) -> list[Path]:
        """Damaged vector files, and files with a damaged index. Reads all files completely."""
        # Imported here: only this needs numpy.
        from penstock.pipeline.vectors.nearest import damaged

        return [path for path in self.files() if damaged(path, path.with_suffix(INDEX))]

    def discard(self, path: Path) -> None:
        """Remove a vector file and the index."""
        for each in (path, path.with_suffix(INDEX)):
            with suppress(OSError):
                each.unlink(missing_ok=True)


@functools.lru_cache(1_024)
def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def open_cache_directory(settings: Settings) -> CacheDirectory:
    """Open the directory of a catalog, named by the catalog's URL without the password."""
    url = settings.catalog_store
    name = _name(url.resolved if url.is_file else url.masked)
    return CacheDirectory(settings.state_dir / "vectors", name, Sizes(index_from=settings.usearch_from))
