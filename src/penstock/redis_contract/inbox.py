"""File moves in the managed inbox: ``incoming`` → ``processed`` or ``failed``. Nothing is overwritten.

Every operation can be repeated: after a kill, another gateway starts again from the beginning.
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
from typing import Any

import msgspec

from penstock.named_tuple import NamedTuple

log = logging.getLogger("penstock.gateway")

ERROR_SUFFIX = ".error.json"
MAX_RECORD = 1 << 20
FileTest = Callable[[os.stat_result], bool]


class Moved(NamedTuple):
    """The current path of a file, and why the move failed, if so."""

    path: str
    error: str = ""


def move(source: Path, target: Path, *, part: str, is_same_file: FileTest) -> Moved:
    """Move ``source``, a path without links, to ``target``.

    ``is_same_file`` recognizes the file that was indexed: a newer file is left to its own message. An older
    file at the target is renamed, see ``find_free_name``. ``part`` names an unfinished copy.
    """
    try:
        try:
            found = source.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Moved(str(target if target.exists() else source))
        if not stat.S_ISREG(found.st_mode):
            return Moved(str(source), "it is not a regular file")
        if source.parent.resolve() != source.parent:
            return Moved(str(source), "its folder has become a link")
        if not is_same_file(found):
            return Moved(str(source), "it was changed since; a later message has to bring it")
        target.parent.mkdir(parents=True, exist_ok=True)
        _make_room(source, target)
        if not _rename(source, target):
            _copy(source, target, found, part)
        return _check_moved(source, target, found)
    except OSError as error:
        log.warning("%s could not be moved to %s: %s", source, target, error.strerror or error)
        return Moved(str(source), f"it could not be moved: {error.strerror or error}")


def _make_room(source: Path, target: Path) -> None:
    """Rename an older file at the target, unless the content is equal."""
    if target.exists() and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
        target.rename(find_free_name(target))


def find_free_name(path: Path) -> Path:
    """Find the first free name such as ``report.1.pdf``."""
    for number in range(1, 1_000_000):
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not os.path.lexists(free):
            return free
    raise OSError(errno.EEXIST, "too many files of this name")


def _rename(source: Path, target: Path) -> bool:
    """Rename a file. False: source and target are on different file systems."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy(source: Path, target: Path, found: os.stat_result, part: str) -> None:
    """Copy under a temporary name, then rename; the source is removed once the copy is on disk."""
    copy = target.with_name(f".{part}.part")
    try:
        shutil.copy2(source, copy)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
    except OSError:
        # Nothing else would remove a partial copy from a full disk.
        copy.unlink(missing_ok=True)
        raise
    if _same(source.lstat(), found):
        copy.replace(target)
        source.unlink()
    else:
        copy.unlink()


def _check_moved(source: Path, target: Path, found: os.stat_result) -> Moved:
    """Check which file was moved. A newer file, come in during the move, is moved back."""
    now = target.lstat() if target.exists() else None
    if now is not None and now.st_size == found.st_size and now.st_mtime_ns == found.st_mtime_ns:
        return Moved(str(target))
    if now is not None and not source.exists():
        target.rename(source)
    return Moved(str(source), "it was changed while it was moved; a later message has to bring it")


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


def write_error_file(folder: Path, filename: str, record: Mapping[str, Any]) -> str:
    """Write ``<filename>.error.json``. The file and record of an earlier job are renamed first."""
    path = folder / f"{filename}{ERROR_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and not _is_of(path, record["job_id"]):
            free = find_free_name(folder / filename)
            if (folder / filename).exists():
                (folder / filename).rename(free)
            path.rename(free.with_name(free.name + ERROR_SUFFIX))
        draft = path.with_name(f".{record['job_id']}{ERROR_SUFFIX}")
        draft.write_bytes(_encode(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)
        return f"{path.name} could not be written: {error.strerror or error}"
    return ""


def write_record_beside(file: Path, record: Mapping[str, Any]) -> None:
    """Write ``<file>.error.json`` for a refused message; the file stays.

    Only a record that a gateway wrote before is replaced.
    """
    path = file.with_name(file.name + ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and not _record_at(path):
            log.warning("%s is not an error record, and is left unchanged", path)
            return
        draft = path.with_name(f".{record['job_id'] or 'refused'}{ERROR_SUFFIX}")
        draft.write_bytes(_encode(record))
        draft.replace(path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error.strerror or error)


def remove_record_beside(file: Path, filename: str) -> None:
    """Remove the record of an earlier refused message, after the file was indexed."""
    path = file.with_name(file.name + ERROR_SUFFIX)
    try:
        if os.path.lexists(path) and _record_at(path).get("filename") in (filename, file.name):
            path.unlink()
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error.strerror or error)


def _encode(record: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def _is_of(path: Path, job_id: str) -> bool:
    return _record_at(path).get("job_id") == job_id


def _record_at(path: Path) -> dict[str, Any]:
    """Read the error record in a file; empty if the file holds something else."""
    try:
        found = msgspec.json.decode(path.read_bytes()) if path.stat().st_size <= MAX_RECORD else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) and "job_id" in found else {}
