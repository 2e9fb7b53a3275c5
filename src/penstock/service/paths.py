"""Paths from users: brought to the form of the catalog, and checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from penstock.errors import PathNotFound
from penstock.pipeline.web import urls


class Disk(Protocol):
    """Questions to a file system."""

    def same(self, first: str, second: str) -> bool:
        """Tell whether both paths exist and lead to the same file or folder."""

    def names(self, folder: str) -> Sequence[str]:
        """The names in a folder as stored on the disk; none for an unreadable folder."""


class _LocalDisk:
    def same(self, first: str, second: str) -> bool:
        try:
            return os.path.samestat(os.lstat(first), os.lstat(second))
        except (OSError, ValueError):
            return False

    def names(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(folder)  # noqa: PTH208 - names alone, many in a large folder
        except OSError:
            return ()


_LOCAL = _LocalDisk()


def real_path(path: str, disk: Disk = _LOCAL) -> str:
    """The absolute path with links followed and names in the case of the disk.

    A folder that ignores case (macOS, FAT, network shares, ext4 with ``casefold``) takes ``Docs`` and
    ``docs`` for the same name. A document must not be indexed once for each spelling, so that a path is
    stored as the disk writes it. Folders are asked one by one: a case-sensitive disk may be mounted below one
    that ignores case. Parts that do not exist stay as they are given.
    """
    return in_disk_case(os.path.realpath(path), disk)


def real(path: str) -> str:
    """The path with all links followed, in the case of the disk: as the catalog stores an indexed path."""
    refuse_unusable(path)
    if (known := off_disk(path)) is not None:
        return known
    return readable(real_path(path))


def shown(path: str) -> str:
    """The path as a walk reports it: the last part is not followed, invalid UTF-8 is escaped."""
    refuse_unusable(path)
    if (known := off_disk(path)) is not None:
        return known
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - a link is not followed
    return readable(os.path.join(real_path(folder), name))  # noqa: PTH118 - as above


def readable(path: str) -> str:
    """The path with invalid UTF-8 escaped, as stores keep it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def off_disk(path: str) -> str | None:
    """The path of a web page or of a library in the form of the catalog; None: a path of the disk."""
    if urls.is_web_url(path):
        return urls.canonical(path)
    # Imported here: the help of all commands loads this module.
    from penstock.queue.payloads import LIBRARIES, library_path

    if not path.startswith(LIBRARIES):
        return None
    name, slash, inside = path[len(LIBRARIES) :].partition("/")
    return library_path(name) + (f"/{inside}".rstrip("/") if slash else "")


def refuse_unusable(path: str) -> None:
    """Refuse an empty path, which would mean the working directory, and paths with NUL bytes."""
    if not path:
        raise PathNotFound("the path is empty")
    try:
        usable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise PathNotFound(f"{path[:200]!a} is not a valid path")


def in_disk_case(path: str, disk: Disk) -> str:
    """Replace each name of an absolute path by the entry on the disk, in folders that ignore case."""
    folder = "/"
    for name in filter(None, path.split("/")):
        other = _other_case(name)
        here = os.path.join(folder, name)  # noqa: PTH118 - a Path object costs more than the question
        # A hard link may have the name in the other case: then the list below has both.
        if other != name and disk.same(here, os.path.join(folder, other)):  # noqa: PTH118
            here = os.path.join(folder, _entry(name, disk.names(folder)))  # noqa: PTH118
        folder = here
    return folder


def _entry(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    folded = _folded(name)
    alike = [one for one in names if _folded(one) == folded]
    return alike[0] if len(alike) == 1 else name


def _folded(name: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _other_case(name: str) -> str:
    """The name with small and capital letters exchanged, except letters with a longer counterpart."""
    return "".join(one if len(one.swapcase()) != 1 else one.swapcase() for one in name)
