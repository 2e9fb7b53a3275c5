"""The files of a JSONL store: a journal that only grows, the snapshot it starts from, and the lock for both.

Lines are bytes here; ``records`` knows what they say. Every method but ``lock`` wants the lock held.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from penstock.errors import (
    DiskFull,
    StateDamaged,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)

_sync = getattr(os, "fdatasync", os.fsync)
_PRIVATE = 0o600


class Tail(NamedTuple):
    """Whole lines after the position, and the line number of the first; ``torn``: half a line follows."""

    data: bytes
    first: int
    torn: bool


class Journal:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "index_queue.jsonl"
        self.snapshot = directory / "index_queue.snapshot"
        self._lock_path = directory / ".queue.lock"
        self._lock_fd = self._fd = -1
        self._inode = 0
        self._writable = True
        self._fresh = True
        self._base = 0
        self._offset = 0
        self._line = 1

    # The lock.

    def lock(self, *, exclusive: bool) -> None:
        """Wait for it; ``unlock`` gives it back. Raises when the files cannot be opened, or not for writing."""
        with self._refusals(self.directory):
            while True:
                self._open()
                if exclusive and not self._writable:
                    raise StoreReadOnly(f"{self.directory}: this user may read the queue but not write it")
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
                if self._still_there():
                    return
                # Whoever came later locked another file: this lock keeps nobody out.
                self.close()

    def unlock(self) -> None:
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """A later ``lock`` opens again and starts from the snapshot."""
        for fd in (self._lock_fd, self._fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self._fd = -1
        self._fresh = True

    def create(self) -> None:
        """Make the directory, for this user alone: what is queued may be private."""
        with self._refusals(self.directory):
            self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)

    def _open(self) -> None:
        if self._lock_fd >= 0:
            return
        try:
            self._open_both(os.O_RDWR | os.O_CREAT)
            self._writable = True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._open_both(os.O_RDONLY)
            self._writable = False

    def _open_both(self, flags: int) -> None:
        lock_fd = os.open(self._lock_path, flags | os.O_CLOEXEC, _PRIVATE)
        try:
            self._fd = os.open(self.path, flags | os.O_APPEND | os.O_CLOEXEC, _PRIVATE)
        except OSError:
            os.close(lock_fd)
            raise
        self._lock_fd = lock_fd
        self._inode = os.fstat(self._fd).st_ino

    def _still_there(self) -> bool:
        """Whether both descriptors are of the files at their paths, which a person may have replaced."""
        try:
            lock, journal = os.stat(self._lock_path), os.stat(self.path)  # noqa: PTH116 - on every call
        except FileNotFoundError:
            return False
        self._size = journal.st_size
        return lock.st_ino == os.fstat(self._lock_fd).st_ino and journal.st_ino == self._inode

    # Reading.

    def overtaken(self, n: int) -> bool:
        """Whether the snapshot has to be read by somebody who has seen the records up to ``n``."""
        text = os.pread(self._lock_fd, 32, 0).strip()
        base = int(text) if text.isdigit() else 0
        if self._fresh or self._size < self._offset and base == self._base:
            overtaken = True
        elif base == self._base:
            return False
        else:
            overtaken = n < base
        # Compacted: what is in the journal now begins anew, and may have grown to any size since.
        self._base, self._fresh = base, False
        self._offset, self._line = 0, 1
        return overtaken

    def tail(self) -> Tail:
        """What was appended since the last call, by others or before this process."""
        if self._size <= self._offset:
            return Tail(b"", self._line, False)
        with self._refusals(self.path):
            data = _read(self._fd, self._offset, self._size - self._offset)
        end = data.rfind(b"\n") + 1
        tail = Tail(data[:end], self._line, end < len(data))
        self._offset += end
        self._line += tail.data.count(b"\n")
        return tail

    def read_snapshot(self) -> list[bytes] | None:
        """Its lines, without their ends; None when there is none."""
        with self._refusals(self.snapshot):
            try:
                data = self.snapshot.read_bytes()
            except FileNotFoundError:
                return None
        lines = data.split(b"\n")
        if lines.pop() != b"":
            raise damaged(self.snapshot, len(lines) + 1, "it breaks off")
        return lines

    # Writing.

    def append(self, line: bytes) -> None:
        """Durable when it returns. When it raises, the journal is as it was."""
        with self._refusals(self.path):
            try:
                _write(self._fd, line)
                _sync(self._fd)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._offset)
                raise
        self._offset += len(line)
        self._line += 1

    def cut_torn(self) -> None:
        """Cut off half a line that a process left when it was killed; its caller had no answer."""
        with self._refusals(self.path):
            os.ftruncate(self._fd, self._offset)

    def compact(self, n: int, chunks: Iterable[bytes]) -> None:
        """Put a snapshot of everything up to record ``n`` in the place of the journal's lines.

        After each step a crash leaves a store that loads: records up to ``n`` are skipped.
        """
        with self._refusals(self.directory):
            new = self.snapshot.with_name(self.snapshot.name + ".tmp")
            _write_file(new, chunks)
            new.rename(self.snapshot)
            _sync_directory(self.directory)
            os.pwrite(self._lock_fd, b"%020d\n" % n, 0)
            self._base = n
            os.ftruncate(self._fd, 0)
            self._offset, self._line = 0, 1

    @contextmanager
    def _refusals(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _refusal(path, error) from error


def damaged(path: Path, line: int, reason: object) -> StateDamaged:
    return StateDamaged(f"{path}, line {line}: {reason}")


def _refusal(path: Path, error: OSError) -> StoreError:
    message = f"{path}: {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return DiskFull(message)
        case errno.EROFS:
            return StoreReadOnly(message)
        case errno.EACCES | errno.EPERM:
            return StoreDenied(message)
        case errno.ENOENT:
            return StoreUnavailable(message, remedy="Run `penstock` once with the right URL, or restore it.")
        case _:
            return StoreUnavailable(message)


def _read(fd: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(fd, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def _write(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        # A full disk takes a part first; only the next call says why.
        written += os.write(fd, data[written:])


def _write_file(path: Path, chunks: Iterable[bytes]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
    try:
        for chunk in chunks:
            _write(fd, chunk)
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
