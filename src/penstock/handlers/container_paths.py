"""Paths of files inside files: a file inside ``/inbox/mail.eml`` has a path below it.

No folder can lie below a file. So the disk alone says whether a path is one of a file or of a member.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

MAX_DEPTH = 4
"""Containers around a file: an archive in a mail in an archive has two."""

NOT_READ = "ERR_NOT_READ"
FAILURE_CODES = {NOT_READ: "Wait for the job; if it was cancelled, run `penstock index` again."}


class ContainerFile(NamedTuple):
    """The file on the disk that a path lies below."""

    path: str
    size: int
    mtime_ns: int


def container_of(path: str) -> ContainerFile | None:
    """The file which contains the member with this path; None if there is no file above the path."""
    try:
        os.lstat(path)
    except NotADirectoryError:
        return _first_above(path)
    except OSError:
        return None
    return None


def _first_above(path: str) -> ContainerFile | None:
    above = path.rpartition("/")[0]
    while above:
        try:
            found = os.lstat(above)
        except NotADirectoryError:
            above = above.rpartition("/")[0]
            continue
        except OSError:
            return None
        regular = stat.S_ISREG(found.st_mode)
        return ContainerFile(above, found.st_size, found.st_mtime_ns) if regular else None
    return None


def on_disk(path: str) -> bool:
    """Check whether a file, or the container of a member, exists."""
    return os.path.lexists(path) or container_of(path) is not None
