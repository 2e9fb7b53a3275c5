"""The state directory of a project or user, with the default queue and other files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

from penstock import trust
from penstock.errors import DiskFull, InvalidSetting, StoreDenied, StoreError, StoreReadOnly, StoreUnavailable

PROJECT_STATE = ".penstock"


def default_state(environ: Mapping[str, str]) -> str:
    """The project's own directory, else ``$XDG_STATE_HOME/penstock``, else one in the home directory.

    That of a project has to be known as the user's; see ``penstock.trust``.
    """
    own = _project_state()
    if own is not None:
        trust.require_state(own, environ)
        return str(own)
    return trust.user_state(environ)


def default_models(environ: Mapping[str, str]) -> str:
    """The directory of models, shared by all projects of a user: they are large and never change."""
    xdg = environ.get("XDG_DATA_HOME", "")
    return f"{xdg}/penstock/models" if xdg.startswith("/") else "~/.local/share/penstock/models"


def _project_state() -> Path | None:
    """The nearest ``.penstock`` upwards owned by this user; another user's, as in /tmp, is not trusted."""
    try:
        here = Path.cwd()
        for directory in (here, *here.parents):
            found = directory / PROJECT_STATE
            if found.is_dir() and found.stat().st_uid == os.geteuid():
                return found
    except OSError:
        # The working directory was removed, or may not be read.
        return None
    return None


def absolute(path: str, environ: Mapping[str, str]) -> Path:
    """The absolute directory with ``~`` expanded, fixed before the working directory can change."""
    if re.match(r"~(/|$)", path) and environ.get("HOME"):
        path = environ["HOME"] + path[1:]
    try:
        found = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - resolve() would follow links
        str(found).encode()
    except RuntimeError:
        raise InvalidSetting(f"PENSTOCK_STATE = {path!r}: there is no such home directory") from None
    except UnicodeEncodeError:
        # Stores are named by URLs, and rows name files: both are text.
        raise InvalidSetting(f"{path!r} in the settings: the name of a directory must be UTF-8") from None
    return found


def make_private(directory: Path) -> None:
    """Make a directory and the missing ones above it, for this account only.

    ``mkdir(mode=0o700, parents=True)`` makes those above with the mode of the process.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileNotFoundError:
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not directory.is_dir():
            raise


def private_opener(path: str, flags: int) -> int:
    """The ``opener`` of a file that only this account may read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_refusal(path: Path, error: OSError) -> StoreError:
    """The error for a file or directory that the system refuses to write."""
    message = f"{path} cannot be written ({error.strerror or error})"
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return StoreDenied(message)
        case errno.EROFS:
            return StoreReadOnly(message)
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(message)
        case _:
            return StoreUnavailable(message, remedy="Choose a directory that can be used.")
