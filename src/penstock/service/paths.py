"""What a person calls a path, as the catalog knows it."""

from __future__ import annotations

import os

from penstock.errors import PathNotFound


def real(path: str) -> str:
    """Where all links lead: a path that is indexed by its name is known by this one."""
    refuse_unusable(path)
    return _readable(os.path.realpath(path))


def shown(path: str) -> str:
    """As a walk reports it: a link by its own name, bytes that are no UTF-8 written out."""
    refuse_unusable(path)
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - a link is not followed
    return _readable(os.path.join(os.path.realpath(folder), name))  # noqa: PTH118 - as above


def _readable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def refuse_unusable(path: str) -> None:
    """Without a word it would be the current directory: a variable of a script that was never set."""
    if not path:
        raise PathNotFound("the path is empty")
    try:
        usable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise PathNotFound(f"{path[:200]!a} is no path a system could have")
