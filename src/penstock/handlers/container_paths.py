"""Paths of files inside files: a file inside ``/inbox/mail.eml`` has a path below it.

No folder can lie below a file. So the disk alone says whether a path is one of a file or of a member.
"""

from __future__ import annotations

import os
import stat
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.named_tuple import NamedTuple
from penstock.payloads import is_off_disk

if TYPE_CHECKING:
    from penstock.catalog.protocol import CatalogSnapshot
    from penstock.catalog.values import Place
    from penstock.catalog.views import PublishedPath

MAX_DEPTH = 4
"""Containers around a file: an archive in a mail in an archive has two."""

NOT_READ = "ERR_NOT_READ"
FAILURE_CODES = {NOT_READ: "Wait for the job; if it was cancelled, run `penstock index` again."}


class ContainerFile(NamedTuple):
    """The file on the disk above a path."""

    path: str
    size: int
    mtime_ns: int


_CONTAINERS = frozenset(["mail", "mailbox", "outlook", "archive", "pdf"])


def may_hold_members(name: str) -> bool:
    """Check whether a file of this name may be a container: a mail, an archive or a PDF."""
    # Late: commands that explain a path need it for few of them.
    from penstock.pipeline.extract import file_types

    if file_types.is_compressed_name(name):
        name = file_types.uncompressed_name(name)
    file_type = file_types.by_name(name)
    return file_type is not None and file_type.extractor in _CONTAINERS


def container_of(path: str, *, any_name: bool = False) -> ContainerFile | None:
    """The file which contains the member with this path; None if no container is above the path.

    A file that took the place of a folder is no container, unless its name is one of a container.
    ``any_name``: for a delivered file, which has another name where it is read.
    """
    if is_off_disk(path):
        return None
    try:
        os.lstat(path)
    except NotADirectoryError:
        found = _first_above(path)
        return found if found is not None and (any_name or may_hold_members(found.path)) else None
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


def published_members(
    snapshot: CatalogSnapshot, place: Place, path: str, since: datetime
) -> list[PublishedPath]:
    """Members at or below a path published at this time or later."""
    found = snapshot.published_below_dots(place, path, since)
    return [one for one in found if container_of(one.path) is not None]


def on_disk(path: str) -> bool:
    """Check whether a file, or the container of a member, exists."""
    return os.path.lexists(path) or container_of(path) is not None
