"""Missing files: deleted, or only on an unmounted disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from penstock.catalog.protocol import Catalog
from penstock.catalog.views import Source
from penstock.handlers.container_paths import container_of

CAREFUL = "careful"
"""In a job's metadata: the file was not reported as deleted. Remove it only if it is certainly gone."""
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)


def maybe_unmounted(path: str, roots: Iterable[str]) -> str | None:
    """Reason why a missing file may be on an unmounted disk; None: the file is gone.

    ``roots``: the walked folders that contain the file.
    """
    folders = sorted(set(roots))
    for root in folders:
        try:
            with os.scandir(root) as entries:
                if not any(True for _ in entries):
                    return f"{root} is empty and may be the mount point of an unmounted disk"
        except (FileNotFoundError, NotADirectoryError):
            return f"{root} does not exist and may be on an unmounted disk"
        except OSError as error:
            return f"{root} cannot be read: {error.strerror}"
    if folders or gone_for_sure(path):
        return None
    return f"the folder of {path} is empty, unmounted or not readable"


def missing(path: str) -> bool:
    """Check whether the path does not exist. False if a folder above cannot be read.

    A file inside another is missing only if the other one is.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in _NOT_FOUND and container_of(path) is None
    return False


def unchanged_at(path: str, size: int, mtime_ns: int) -> bool:
    """Check whether the file at a path has this size and time; a file inside another has the other's time."""
    container = container_of(path, any_name=True)
    if container is not None:
        return container.mtime_ns == mtime_ns
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, mtime_ns)


def gone_for_sure(path: str) -> bool:
    """Check whether the path is missing and the first existing folder above is not empty.

    An empty folder may be the mount point of an unmounted disk.
    """
    if not missing(path):
        return False
    folder = path
    while folder not in ("", "/"):
        folder = folder.rpartition("/")[0] or "/"
        try:
            with os.scandir(folder) as entries:
                return any(True for _ in entries)
        except OSError as error:
            if error.errno not in _NOT_FOUND:
                return False
    return False


def awaits_move(catalog: Catalog, known: Source) -> bool:
    """Check whether a delivered file is still at the path of delivery, waiting to be moved."""
    with catalog.snapshot() as snapshot:
        read_from = snapshot.expected(known.place, known.path)
    return read_from is not None and unchanged_at(read_from, known.size, known.mtime_ns)


def unmounted_reason(catalog: Catalog, known: Source) -> str | None:
    """Reason why the missing file of a source may be on an unmounted disk; None: the file is gone."""
    with catalog.snapshot() as snapshot:
        return maybe_unmounted(known.path, [walk.root for walk in snapshot.walks(known.place, known.path)])
