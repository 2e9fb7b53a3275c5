"""Where the files of vectors stand: one directory a catalog, in the state directory, which is never indexed.

Everything here is a copy. Any of it may be deleted at any time, also while it is in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock import clock
from penstock.config import Settings
from penstock.pipeline.vectors.footer import unseal

GONE_FOR_S = 86_400
"""No snapshot from before a removal is still read after so long."""
VECTORS, GRAPH, GONE, LOCK, YOUNG = ".vectors", ".graph", ".gone", ".lock", ".young"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """From how many vectors of a tenant on something is worth its while."""

    worth_a_file: int = 5_000
    """Fewer are read from the catalog sooner than a file is opened and followed."""
    most_drift: int = 2_000
    """Rows that differ from the file before it is written anew, or a twentieth of it if that is more."""
    worth_a_graph: int = 200_000
    """Fewer are looked at one by one sooner than usearch is loaded."""


class _Told(msgspec.Struct):
    tenant_id: str
    space: str


class _Label(msgspec.Struct):
    """As much of a file's label as says whether it is still wanted."""

    owner: _Told


class CacheDirectory:
    """Names say nothing of tenants; the files are for nobody else to read."""

    def __init__(self, directory: Path, catalog: str, sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
        self.catalog = catalog
        self.sizes = sizes
        self._directory = directory / catalog

    def vectors(self, tenant_id: str, space: str) -> Path:
        return self._directory / f"{_name(tenant_id)}-{_name(space)}{VECTORS}"

    def graph(self, tenant_id: str, space: str) -> Path:
        return self.vectors(tenant_id, space).with_suffix(GRAPH)

    @contextmanager
    def building(self, tenant_id: str, space: str) -> Iterator[bool]:
        """Whether this process is the one to write these files now. What a dead one left half made goes."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self.vectors(tenant_id, space).with_suffix(LOCK)
        fd = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            yield False
            return
        try:
            for left in self._directory.glob(f"{lock.stem}.*{YOUNG}"):
                left.unlink(missing_ok=True)
            yield True
        finally:
            os.close(fd)

    @contextmanager
    def young(self, path: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """A file to be written, which gets its name by ``publish`` or goes."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        young = path.with_suffix(f".{os.getpid()}-{clock.new_task_id()[:8]}{YOUNG}")
        fd = os.open(young, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w+b") as file:
                yield file, young
        finally:
            young.unlink(missing_ok=True)

    def publish(self, young: Path, path: Path) -> None:
        young.replace(path)
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def forget(self, tenant_id: str, sequence: int) -> None:
        """Remove all files of a tenant. One that is made at this moment from before ``sequence`` goes, too:
        whoever makes it looks at what is written here after it got its name."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # At once: where the disk is full, that makes the room for the note.
        self._remove(tenant_id)
        self._gone(tenant_id).write_text(str(sequence), encoding="ascii")
        self._remove(tenant_id)

    def _remove(self, tenant_id: str) -> None:
        for suffix in (VECTORS, GRAPH, YOUNG, LOCK):
            for path in self._directory.glob(f"{_name(tenant_id)}-*{suffix}"):
                path.unlink(missing_ok=True)

    def forgotten_since(self, tenant_id: str, sequence: int) -> bool:
        with suppress(OSError, ValueError):
            return int(self._gone(tenant_id).read_text(encoding="ascii")) > sequence
        return False

    def _gone(self, tenant_id: str) -> Path:
        return self._directory / f"{_name(tenant_id)}{GONE}"

    def sweep(self, wanted: Callable[[str], Collection[str]]) -> int:
        """Remove files of spaces their tenant (``wanted`` of it) has nothing in any more; how many."""
        removed = 0
        for path in self._directory.glob(f"*{VECTORS}"):
            sealed = unseal(path, _Label)
            owner = sealed.meta.owner if sealed is not None else None
            if owner is None or owner.space not in wanted(owner.tenant_id):
                self.discard(path)
                removed += 1
        for path in self._directory.glob(f"*{GRAPH}"):
            if not path.with_suffix(VECTORS).exists():
                path.unlink(missing_ok=True)
        long_ago = clock.now().timestamp() - GONE_FOR_S
        for path in self._directory.glob(f"*{GONE}"):
            with suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        return removed

    def files(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{VECTORS}"))

    def discard(self, path: Path) -> None:
        """A file that is of no use, and what was made from it."""
        for each in (path, path.with_suffix(GRAPH)):
            with suppress(OSError):
                each.unlink(missing_ok=True)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def open_shelf(settings: Settings) -> CacheDirectory:
    """By the catalog's URL without its password; which catalog it is, the files themselves remember."""
    url = settings.catalog_store
    name = _name(url.resolved if url.is_file else url.masked)
    return CacheDirectory(settings.state_dir / "vectors", name, Sizes(worth_a_graph=settings.usearch_from))
