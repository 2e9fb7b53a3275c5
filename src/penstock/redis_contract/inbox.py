"""The managed inbox: ``incoming`` → ``processed`` or ``failed``. Nothing is overwritten.

Doing it twice does no harm: whoever was killed in between is followed by somebody who begins again.
"""

from __future__ import annotations

import errno
import filecmp
import logging
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

log = logging.getLogger("penstock.gateway")

ERROR_SUFFIX = ".error.json"
MAX_RECORD = 1 << 20
IsIt = Callable[[os.stat_result], bool]


class Moved(NamedTuple):
    """Where the file is now, and why it is not where it should be, if so."""

    path: str
    trouble: str = ""


def move(source: Path, target: Path, *, part: str, is_it: IsIt) -> Moved:
    """``source`` is a path without links.

    ``is_it`` says whether this is the file that was worked on: a newer one is left to its own message.
    An older file of that name at the target makes room, see ``aside``. ``part`` names a copy under way.
    """
    try:
        try:
            found = source.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Moved(str(target if target.exists() else source))
        if not stat.S_ISREG(found.st_mode):
            return Moved(str(source), "it is no regular file")
        if source.parent.resolve() != source.parent:
            return Moved(str(source), "its folder has become a link")
        if not is_it(found):
            return Moved(str(source), "it was changed since; a later message has to bring it")
        target.parent.mkdir(parents=True, exist_ok=True)
        _make_room(source, target)
        if not _renamed(source, target):
            _copied(source, target, found, part)
        return _checked(source, target, found)
    except OSError as error:
        log.warning("%s could not be moved to %s: %s", source, target, error.strerror or error)
        return Moved(str(source), f"it could not be moved: {error.strerror or error}")


def _make_room(source: Path, target: Path) -> None:
    """An older file of the same name is kept under a number, unless it holds the same."""
    if target.exists() and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
        target.rename(aside(target))


def aside(path: Path) -> Path:
    """The first free name such as ``report.1.pdf``."""
    for number in range(1, 1_000_000):
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not os.path.lexists(free):
            return free
    raise OSError(errno.EEXIST, "too many files of this name")


def _renamed(source: Path, target: Path) -> bool:
    """False: they are on different file systems."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copied(source: Path, target: Path, found: os.stat_result, part: str) -> None:
    """Whole or not at all: under another name first, and the source goes only when the copy is on disk."""
    copy = target.with_name(f".{part}.part")
    try:
        shutil.copy2(source, copy)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
    except OSError:
        # Half a file on a disk that is full helps nobody, and nobody would remove it.
        copy.unlink(missing_ok=True)
        raise
    if _same(source.lstat(), found):
        copy.replace(target)
        source.unlink()
    else:
        copy.unlink()


def _checked(source: Path, target: Path, found: os.stat_result) -> Moved:
    """A file put in its place at the very moment of the move goes back to where its message looks for it."""
    now = target.lstat() if target.exists() else None
    if now is not None and now.st_size == found.st_size and now.st_mtime_ns == found.st_mtime_ns:
        return Moved(str(target))
    if now is not None and not source.exists():
        target.rename(source)
    return Moved(str(source), "it was changed while it was moved; a later message has to bring it")


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


def write_error(folder: Path, filename: str, record: Mapping[str, Any]) -> str:
    """``<filename>.error.json``; that of an earlier job makes room, together with its file."""
    path = folder / f"{filename}{ERROR_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and not _is_of(path, record["job_id"]):
            free = aside(folder / filename)
            if (folder / filename).exists():
                (folder / filename).rename(free)
            path.rename(free.with_name(free.name + ERROR_SUFFIX))
        draft = path.with_name(f".{record['job_id']}{ERROR_SUFFIX}")
        draft.write_bytes(_written(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)
        return f"{path.name} could not be written: {error.strerror or error}"
    return ""


def write_beside(file: Path, record: Mapping[str, Any]) -> None:
    """Write ``<file>.error.json`` for a message that was refused; the file stays. Only a record that a
    gateway wrote before is replaced."""
    path = file.with_name(file.name + ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and not _record_at(path):
            log.warning("%s is no error record and was left as it is", path)
            return
        draft = path.with_name(f".{record['job_id'] or 'refused'}{ERROR_SUFFIX}")
        draft.write_bytes(_written(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)


def remove_beside(file: Path, filename: str) -> None:
    """Remove the record of a message that was refused before another one brought the file to its end."""
    path = file.with_name(file.name + ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and _record_at(path).get("filename") in (filename, file.name):
            path.unlink()
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error.strerror or error)


def _written(record: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def _is_of(path: Path, job_id: str) -> bool:
    return _record_at(path).get("job_id") == job_id


def _record_at(path: Path) -> dict[str, Any]:
    """The error record in a file; empty when it holds something else."""
    try:
        found = msgspec.json.decode(path.read_bytes()) if path.stat().st_size <= MAX_RECORD else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) and "job_id" in found else {}
