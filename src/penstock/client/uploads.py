"""Files that a client sends: opened, named and read in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.errors import InvalidRequest, PathNotFound


class FileBody(msgspec.Struct, frozen=True):
    """The body of a request, read from a file in pieces."""

    file: BinaryIO
    size: int

    def pieces(self, size: int) -> Iterator[bytes]:
        left = self.size
        while left:
            piece = self.file.read(min(size, left))
            if not piece:
                raise InvalidRequest("the file became shorter while it was sent", remedy="Send it again.")
            left -= len(piece)
            yield piece


class opened:  # noqa: N801 - used like a function
    """A file opened for reading; a file that is open already stays so."""

    def __init__(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        self._own: BinaryIO | None = None
        self._file = file

    def __enter__(self) -> BinaryIO:
        if isinstance(self._file, str | os.PathLike):
            try:
                self._own = Path(self._file).open("rb")
            except OSError as error:
                raise PathNotFound(f"{os.fspath(self._file)}: {error.strerror}") from None
            return self._own
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()


def file_name(file: BinaryIO) -> str:
    """The last part of the path of an open file."""
    name = getattr(file, "name", None)
    if not isinstance(name, str):
        raise InvalidRequest("the file has no name", remedy="Give a name, with the suffix of its type.")
    return Path(name).name
