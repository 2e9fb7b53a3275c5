"""Files of a JSONL store: an append-only journal, the snapshot before the journal, and their lock.

Lines are bytes here; ``records`` decodes them. Every method but ``lock`` requires the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import (
    DiskFull,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreVanished,
)
from penstock.named_tuple import NamedTuple
from penstock.state_directory import make_private

_sync = getattr(os, "fdatasync", os.fsync)
_PRIVATE = 0o600
LOCK_FILE = ".queue.lock"
FIRST_RETRY_S, RETRY_S = 0.000_05, 0.002
"""First and longest time between two attempts to take the lock."""


class Tail(NamedTuple):
    """Complete lines after a position, and the number of the first; ``torn``: a partial line follows."""

    data: bytes
    first: int
    torn: bool


class Journal:
    """The open files of one store."""

    def __init__(self, directory: Path, busy_timeout_s: float = 60) -> None:
        self.directory = directory
        self._busy_timeout_s = busy_timeout_s
        self.path = directory / "index_queue.jsonl"
        self.snapshot = directory / "index_queue.snapshot"
        self._lock_path = directory / LOCK_FILE
        self.restoring = directory / ".restoring"
        """Mark of a restore that has not finished."""
        self._lock_fd = self._fd = -1
        self._names = os.fspath(self._lock_path), os.fspath(self.path)
        self._known = False
        """True if the journal existed. A missing journal was removed then, and is not created again."""
        self._inodes = 0, 0
        self._first_lock = 0
        self.writable = True
        self.base = 0
        """The last record in the snapshot, as far as known."""
        self._rewound = True
        self._snapshot_size = 0
        self._size = 0
        self._offset = 0
        self._line = 1

    # Lock.

    def lock(self, *, exclusive: bool) -> None:
        """Wait for the lock. Raises when the files cannot be opened for this access, or stay locked."""
        try:
            while True:
                self._open()
                if exclusive and not self.writable:
                    raise self.read_only()
                self._wait_for_lock(fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
                if self._files_unchanged():
                    return
                # The file was replaced: later processes lock the new one, so this lock protects nothing.
                self._open_again()
        except OSError as error:
            raise _refusal(self.directory, error) from error

    def _wait_for_lock(self, kind: int) -> None:
        """Take the lock, or give up after the timeout: a hung process must not stop all others."""
        pause, give_up_at = FIRST_RETRY_S, 0.0
        while True:
            try:
                return fcntl.flock(self._lock_fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                give_up_at = give_up_at or now + self._busy_timeout_s
                if now > give_up_at:
                    message = f"{self.directory} stayed busy for longer than the timeout"
                    raise StoreUnavailable(message) from None
            time.sleep(pause)
            pause = min(2 * pause, RETRY_S)

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; a later ``lock`` opens them again and reads from the start."""
        self.rewind()
        for fd in (self._lock_fd, self._fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self._fd = -1

    @property
    def replaced(self) -> bool:
        """True if the lock file, which is created with the store, is another one than at first."""
        return self._inodes[0] != self._first_lock

    def read_only(self) -> StoreReadOnly:
        return StoreReadOnly(f"{self.directory}: this user may read the queue but not write it")

    def create(self) -> None:
        """Create a missing directory for this user only: jobs may be private."""
        with self._refusals(self.directory):
            make_private(self.directory)

    def _open(self) -> None:
        if self._lock_fd >= 0:
            return
        try:
            self._open_both(os.O_RDWR | os.O_CREAT)
            self.writable = True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._open_both(os.O_RDONLY)
            self.writable = False

    def _open_again(self) -> None:
        """Open the present files. The old ones stay open until then, so no new file gets their inodes."""
        old = self._lock_fd, self._fd
        self._lock_fd = self._fd = -1
        try:
            self._open()
        except BaseException:
            self._lock_fd, self._fd = old
            raise
        self.rewind()
        for fd in old:
            os.close(fd)

    def _open_both(self, flags: int) -> None:
        # Checked first: a new store gets the journal before the snapshot.
        known = self._known or self.snapshot.exists()
        made = 0 if known else flags & os.O_CREAT
        try:
            fd = os.open(self.path, flags & ~os.O_CREAT | made | os.O_APPEND | os.O_CLOEXEC, _PRIVATE)
        except FileNotFoundError as error:
            if known and self.directory.exists():
                raise self._vanished() from error
            raise
        try:
            lock_fd = os.open(self._lock_path, flags | os.O_CLOEXEC, _PRIVATE)
        except OSError:
            os.close(fd)
            raise
        self._fd, self._lock_fd, self._known = fd, lock_fd, True
        journal = os.fstat(self._fd)
        self._inodes = os.fstat(lock_fd).st_ino, journal.st_ino
        self._first_lock = self._first_lock or self._inodes[0]
        if journal.st_size == 0 and flags & os.O_CREAT:
            # The file may be new; without a synced name its data would be lost in a power cut.
            _sync_directory(self.directory)

    def _vanished(self) -> StoreVanished:
        return StoreVanished(
            f"{self.path} was removed, with all changes since the last snapshot",
            remedy="Put the file back, or create an empty one to go on without these changes.",
        )

    def _files_unchanged(self) -> bool:
        """Check whether both descriptors still belong to the files at their paths."""
        try:
            lock, journal = os.stat(self._names[0]), os.stat(self._names[1])  # noqa: PTH116 - on every call
        except FileNotFoundError:
            return False
        self._size = journal.st_size
        return (lock.st_ino, journal.st_ino) == self._inodes

    # Reads.

    def rewind(self) -> None:
        """Read again from the snapshot."""
        self._rewound = True

    def needs_snapshot(self, n: int) -> bool:
        """Check whether a reader of the records up to ``n`` has to read the snapshot."""
        base = self._read_base()
        # A journal shorter than the position read was replaced by a user.
        replaced = self._rewound or (base == self.base and self._size < self._offset)
        if base == self.base and not replaced:
            return False
        # Compacted: the journal started again, and may have grown to any size since.
        self.base, self._rewound = base, False
        self._offset, self._line = 0, 1
        self._snapshot_size = self._size_of_snapshot()
        return replaced or n < base

    def _read_base(self) -> int:
        try:
            text = os.pread(self._lock_fd, 32, 0).strip()
        except OSError as error:
            raise _refusal(self._lock_path, error) from error
        return int(text) if text.isdigit() else 0

    def is_too_long(self, least: int) -> bool:
        return self._offset > max(least, 2 * self._snapshot_size)

    def _size_of_snapshot(self) -> int:
        try:
            return self.snapshot.stat().st_size
        except FileNotFoundError:
            return 0

    def tail(self) -> Tail:
        """Read the lines appended since the last call."""
        if self._size <= self._offset:
            return Tail(b"", self._line, False)
        with self._refusals(self.path):
            data = _read(self._fd, self._offset, self._size - self._offset)
        end = data.rfind(b"\n") + 1
        last = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
        if b"\0" in data[last:end]:
            # JSON has no zero bytes: a power cut left holes in a line that was never synced nor answered.
            end = last
        tail = Tail(data[:end], self._line, end < len(data))
        self._offset += end
        self._line += tail.data.count(b"\n")
        return tail

    def read_snapshot(self) -> list[bytes] | None:
        """Read the lines of the snapshot without line ends; None if there is no snapshot."""
        with self._refusals(self.snapshot):
            try:
                return self.snapshot.read_bytes().removesuffix(b"\n").split(b"\n")
            except FileNotFoundError:
                return None

    # Writes.

    def append(self, line: bytes) -> None:
        """Append a line durably. After an error the journal is unchanged."""
        try:
            _write(self._fd, line)
            _sync(self._fd)
        except OSError as error:
            with suppress(OSError):
                _truncate(self._fd, self._offset)
            raise _refusal(self.path, error) from error
        self._offset += len(line)
        self._line += 1

    def cut_torn(self) -> None:
        """Cut off a partial line of a killed process; the caller had no answer."""
        with self._refusals(self.path):
            _truncate(self._fd, self._offset)

    def compact(self, n: int, chunks: Iterable[bytes]) -> None:
        """Replace the lines of the journal by a snapshot of all records up to ``n``.

        After each step a crash leaves a store that loads: records up to ``n`` are skipped.
        """
        with self._refusals(self.directory):
            new = self.snapshot.with_name(self.snapshot.name + ".tmp")
            try:
                _write_file(new, chunks)
                new.rename(self.snapshot)
            except OSError:
                new.unlink(missing_ok=True)
                raise
            _sync_directory(self.directory)
            os.pwrite(self._lock_fd, b"%020d\n" % n, 0)
            self.base = n
            _truncate(self._fd, 0)
            self._offset, self._line = 0, 1
            self._snapshot_size = self._size_of_snapshot()

    def mark_restoring(self) -> None:
        """Write the mark of a restore, before its first change."""
        with self._refusals(self.directory):
            _write_file(self.restoring, ())
            _sync_directory(self.directory)

    def unmark_restoring(self) -> None:
        """Remove the mark of a restore, after its last change."""
        with self._refusals(self.directory):
            self.restoring.unlink(missing_ok=True)
            _sync_directory(self.directory)

    @contextmanager
    def _refusals(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _refusal(path, error) from error


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
        # A full disk accepts a part first; only the next call fails.
        written += os.write(fd, data[written:])


def _truncate(fd: int, size: int) -> None:
    """Cut a file, durably: after a power cut, no later line may follow remains of the cut bytes."""
    os.ftruncate(fd, size)
    _sync(fd)


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
