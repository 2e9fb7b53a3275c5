"""Files and folders opened without following a link, name by name from the root of the file system.

Paths were checked when they were given, and a link may take the place of any folder in them later. The name
alone would then lead to files that nobody may have asked for.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

# Non-blocking: a path that was a file may be a pipe by now.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BehindLink(OSError):
    """The file or folder, or a folder above it, is a symbolic link."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "it is a link, or behind one", path)


def open_file(path: str) -> int:
    """Open a file for reading. Raises ``BehindLink``."""
    return _open_below(path, _READ)


def open_folder(path: str) -> int:
    """Open a folder for listing. Raises ``BehindLink``."""
    return _open_below(path, _FOLDER)


def open_inner(name: str, above: int, flags: int = _FOLDER) -> int:
    """Open a folder in an open folder. Raises ``BehindLink``."""
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        # Linux has the error of a file for a link in the place of a folder.
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(name, above)):
            raise BehindLink(name) from None
        raise


def _is_link(name: str, above: int) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    return False


def _open_below(path: str, flags: int) -> int:
    *folders, name = filter(None, path.split("/")) if path.strip("/") else ["."]
    folder = os.open("/" if path.startswith("/") else ".", _TRAVERSE)
    try:
        for each in folders:
            inner = open_inner(each, folder, _TRAVERSE)
            os.close(folder)
            folder = inner
        return open_inner(name, folder, flags)
    except BehindLink:
        raise BehindLink(path) from None
    finally:
        os.close(folder)
