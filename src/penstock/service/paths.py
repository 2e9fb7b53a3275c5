"""Paths from users: brought to the form of the catalog, and checked."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import PathNotFound
from penstock.pipeline.web import urls
from penstock.service.real_path import real_path

HEAD = 4_096
"""Bytes read to tell the type of a file."""


def off_disk(path: str) -> str | None:
    """The path of a web page or of a library in the form of the catalog; None: a path of the disk."""
    if urls.is_web_url(path):
        return urls.canonical(path)
    # Imported here: the help of all commands loads this module.
    from penstock.payloads import LIBRARIES, library_path

    if not path.startswith(LIBRARIES):
        return None
    name, slash, inside = path[len(LIBRARIES) :].partition("/")
    return library_path(name) + (f"/{inside}".rstrip("/") if slash else "")


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


def refuse_other_content(path: str, source_type: str) -> None:
    """Raise ``UnsupportedType`` when the start of the file does not match the declared type."""
    # Late: the command line imports this module for every command.
    from penstock.pipeline.extract import file_types

    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise PathNotFound(f"{path}: {error.strerror}") from None
    file_types.refuse_other_than(source_type, path, head)
