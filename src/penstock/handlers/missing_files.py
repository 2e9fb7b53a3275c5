"""What is not on the disk any more: gone, or only away with its disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

CAREFUL = "careful"
"""In a job's metadata: nobody said that the file is gone; it is removed only if it is for sure."""
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)


def maybe_unmounted(path: str, roots: Iterable[str]) -> str | None:
    """Why a file that cannot be found need not be gone, as a walk of the folders it was found in (``roots``)
    would see it; None: it is gone."""
    folders = sorted(set(roots))
    for root in folders:
        try:
            with os.scandir(root) as entries:
                if not any(True for _ in entries):
                    return f"{root} is empty, like the place of a disk that is not mounted"
        except (FileNotFoundError, NotADirectoryError):
            return f"{root} is not there, and may be on a disk that is not mounted"
        except OSError as error:
            return f"{root} cannot be looked into: {error.strerror}"
    if folders or gone_for_sure(path):
        return None
    return f"the folder of {path} is empty, away or closed to this user"


def missing(path: str) -> bool:
    """Nothing is there. A folder that may not be looked into says nothing of what is in it."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in _NOT_FOUND
    return False


def gone_for_sure(path: str) -> bool:
    """As before, and the first folder above it that is there holds something: an empty one may be the place
    of a disk that is not mounted."""
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
