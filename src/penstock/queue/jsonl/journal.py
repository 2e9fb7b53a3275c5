"""Journal of a JSONL store: the append-only file, the snapshot before it, their lock and their lines.

The journal holds the changes of rows, not the requests: a later version with other rules replays the same
lines to the same rows. The snapshot holds the whole state: a header, a line per job, pause, worker, schedule
and limit, and a final line.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from penstock.errors import (
    DiskFull,
    SchemaMismatch,
    StateDamaged,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreVanished,
)
from penstock.queue.job import Changes, Job, Scope, WorkerReport
from penstock.queue.limits import Limit, gated
from penstock.queue.memory.table import Table
from penstock.queue.rules.rows import Pause
from penstock.queue.schedules import Key, Schedule, key_of
from penstock.state_directory import make_private
from penstock.store_url import StoreUrl

_sync = getattr(os, "fdatasync", os.fsync)
_PRIVATE = 0o600
_LOCK_FILE = ".queue.lock"
_FIRST_RETRY_S, _RETRY_S = 0.000_05, 0.002
"""First and longest time between two attempts to take the lock."""


class Tail(msgspec.Struct, frozen=True):
    """Complete lines after a position, and the number of the first; ``torn``: a partial line follows."""

    data: bytes
    first: int
    torn: bool


class Journal:
    """The open files of one store, as bytes. Every method but ``lock`` requires the lock."""

    def __init__(self, directory: Path, busy_timeout_s: float = 60) -> None:
        self.directory = directory
        self._busy_timeout_s = busy_timeout_s
        self.path = directory / "index_queue.jsonl"
        self.snapshot = directory / "index_queue.snapshot"
        self._lock_path = directory / _LOCK_FILE
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
        pause, give_up_at = _FIRST_RETRY_S, 0.0
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
            pause = min(2 * pause, _RETRY_S)

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


_Group: TypeAlias = tuple[list[str], Changes]
"""Rows that changed in the same way."""

_FIELD_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Job)}


class Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One transaction: new rows, then changes in order, then deleted rows."""

    n: int
    at: datetime
    do: str
    new: Sequence[Job] = []
    changed: list[_Group] = msgspec.field(name="set", default_factory=list)
    gone: list[str] = []
    paused: list[Pause] | None = None
    worker: WorkerReport | None = None
    forgotten: list[str] = []
    """Workers whose reports were removed."""
    schedules: list[Schedule] = []
    """Schedules that were added or replaced."""
    dropped: list[Key] = []
    """Schedules that were removed, by tenant and name."""
    limits: list[Limit] = []
    """Limits that were added or changed."""
    lifted: list[str] = []
    """Limits that were removed, by key."""


class RecordedTable(Table):
    """Table with a record of all changes since ``forget``."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        self.new: list[Job] = []
        self.changed: list[_Group] = []
        self.gone: list[str] = []
        self.changed_limits: dict[str, Limit | None] = {}
        self._pauses_before: list[Pause] | None = None
        self.limit_keys.clear()
        self.limited_locks.clear()

    def changed_pauses(self) -> list[Pause] | None:
        """Return all pauses if they have changed."""
        if self._pauses_before is None or self._pauses_before == self.pauses():
            return None
        return _sorted_pauses(self.pauses())

    def set_pause(self, pause: Pause) -> None:
        self._pauses_before = self.pauses() if self._pauses_before is None else self._pauses_before
        super().set_pause(pause)

    def drop_pause(self, scope: Scope) -> None:
        self._pauses_before = self.pauses() if self._pauses_before is None else self._pauses_before
        super().drop_pause(scope)

    def set_limit(self, limit: Limit) -> None:
        super().set_limit(limit)
        self.changed_limits[limit.key] = limit

    def drop_limit(self, key: str) -> bool:
        dropped = super().drop_limit(key)
        if dropped:
            self.changed_limits[key] = None
        return dropped

    def insert(self, job: Job) -> None:
        super().insert(job)
        self.new.append(job)

    def change(self, job: Job, changes: Changes) -> Job:
        if job.limit_key is not None:
            changes = gated(job, changes)
        self._record([job.queue_id], changes)
        return super().change(job, changes)

    def change_alike(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        self._record([job.queue_id for job in jobs], changes)
        return super().change_alike(jobs, changes)

    def _record(self, ids: list[str], changes: Changes) -> None:
        if self.changed and self.changed[-1][1] == changes:
            self.changed[-1][0].extend(ids)
        else:
            self.changed.append((ids, changes))

    def delete(self, ids: Sequence[str]) -> None:
        super().delete(ids)
        self.gone.extend(ids)

    def adopt_pauses(self, pauses: Iterable[Pause]) -> None:
        self.known_pauses = {pause.scope: pause for pause in pauses}
        self._pauses_before = None

    def restore(self, jobs: Iterable[Job]) -> None:
        """Insert rows of a snapshot or record. Raises ValueError if a row exists."""
        for job in jobs:
            if job.queue_id in self.rows:
                raise ValueError(f"job {job.queue_id} is there already")
            super().insert(job)

    def replay(self, record: Record) -> None:
        """Apply a record. Raises ValueError if a row is missing or exists already."""
        self.restore(record.new)
        for ids, plain in record.changed:
            changes = _typed(plain)
            for queue_id in ids:
                super().change(self._known(queue_id), changes)
        super().delete([self._known(queue_id).queue_id for queue_id in record.gone])
        for limit in record.limits:
            super().set_limit(limit)
        for key in record.lifted:
            super().drop_limit(key)

    def _known(self, queue_id: str) -> Job:
        job = self.rows.get(queue_id)
        if job is None:
            raise ValueError(f"there is no job {queue_id}")
        return job


def _typed(plain: Changes) -> Changes:
    unknown = plain.keys() - _FIELD_TYPES.keys()
    if unknown:
        raise ValueError(f"a job has no {', '.join(sorted(unknown))}")
    return {name: msgspec.convert(value, _FIELD_TYPES[name]) for name, value in plain.items()}


class _Row(Job, frozen=True, omit_defaults=True):
    """A job as written: without fields at their defaults."""


_encoder = msgspec.json.Encoder()
decode_record = msgspec.json.Decoder(Record).decode
_decode_job = msgspec.json.Decoder(Job).decode


def as_written(jobs: Sequence[Job]) -> Sequence[Job]:
    # payload_json stays a string: as raw JSON it is a little easier to read, but a row takes 3.1 µs to load
    # instead of 0.8, and a line break in it would break the line.
    return msgspec.convert(jobs, list[_Row], from_attributes=True) if jobs else []


def encode_line(value: Record | _Header | _Trailer) -> bytes:
    return _encoder.encode(value) + b"\n"


def _sorted_pauses(pauses: Iterable[Pause]) -> list[Pause]:
    return sorted(pauses, key=lambda pause: pause.order)


_VERSION = 1
_CHUNK = 1_000


class JournalState(msgspec.Struct, frozen=True):
    """The whole state up to record ``n``, as a snapshot holds it."""

    n: int
    table: RecordedTable
    workers: dict[str, WorkerReport]
    schedules: dict[Key, Schedule]

    def snapshot(self) -> Iterator[bytes]:
        """Yield a snapshot in pieces, so a large file is not in memory twice."""
        yield encode_line(_Header(self.n, len(self.table.rows), _VERSION))
        jobs = iter(self.table.rows.values())
        while part := list(islice(jobs, _CHUNK)):
            yield _encoder.encode_lines(as_written(part))
        for pause in _sorted_pauses(self.table.pauses()):
            yield encode_line(_Trailer(paused=pause))
        for worker in self.workers.values():
            yield encode_line(_Trailer(worker=worker))
        for schedule in self.schedules.values():
            yield encode_line(_Trailer(schedule=schedule))
        for limit in self.table.all_limits():
            yield encode_line(_Trailer(limit=limit))
        yield encode_line(_Trailer(end=self.n))

    def take(self, trailer: _Trailer) -> bool:
        """Take over a pause, worker, schedule or limit. False for the final line."""
        if trailer.paused is not None:
            self.table.set_pause(trailer.paused)
        elif trailer.worker is not None:
            self.workers[trailer.worker.worker_id] = trailer.worker
        elif trailer.schedule is not None:
            self.schedules[key_of(trailer.schedule)] = trailer.schedule
        elif trailer.limit is not None:
            self.table.set_limit(trailer.limit)
        else:
            return False
        return True


class _Header(msgspec.Struct):
    snapshot: int
    rows: int
    version: int


class _Trailer(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A line after the rows: one of the fields is set."""

    paused: Pause | None = None
    worker: WorkerReport | None = None
    schedule: Schedule | None = None
    limit: Limit | None = None
    end: int | None = None


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_trailer = msgspec.json.Decoder(_Trailer).decode


def empty_state(n: int = 0) -> JournalState:
    return JournalState(n, RecordedTable(), {}, {})


def parse_snapshot(path: Path, lines: Sequence[bytes] | None) -> JournalState:
    """Parse a snapshot. Raises ``StateDamaged`` with the line, or ``SchemaMismatch`` for a newer version."""
    if lines is None:
        return empty_state()
    number = 1
    try:
        header = _decode_header(lines[0] if lines else b"")
        if header.version > _VERSION:
            raise SchemaMismatch(
                f"{path} has version {header.version}; this Penstock reads up to version {_VERSION}"
            )
        if header.version != _VERSION:
            raise ValueError(f"there never was a version {header.version}")
        state = empty_state(header.snapshot)
        for number, line in enumerate(lines[1:], 2):
            if number <= header.rows + 1:
                state.table.restore([_decode_job(line)])
                continue
            trailer = _decode_trailer(line)
            if state.take(trailer):
                continue
            if trailer.end == header.snapshot and number == len(lines):
                return state
            raise ValueError("this is not the end the first line announces")
        number = len(lines) + 1
        raise ValueError("the closing line is missing")
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged(path, number, error) from error


def damaged(path: Path, line: int, reason: object) -> StateDamaged:
    return StateDamaged(f"{path}, line {line}: {reason}")


_LOCKS = Path("/proc/locks")
"""All locks, on Linux; missing elsewhere."""
_FLOCK = ("FLOCK", "0")
_SQLITE_WRITER = ("POSIX", "120")
"""Kind and first byte of SQLite's lock for the writer, in the index of the write-ahead log (``-shm``)."""


def lock_holder(store: StoreUrl) -> int | None:
    """Find the process with the lock for writing; None without one, or for a store on a server.

    The store is not opened: closing it would drop the POSIX locks that this process has on it.
    """
    if store.scheme == "sqlite":
        return _holder(f"{store.path}-shm", _SQLITE_WRITER)
    return _holder(str(store.path / "jobs" / _LOCK_FILE), _FLOCK) if store.scheme == "jsonl" else None


def _holder(path: str, kind: tuple[str, str]) -> int | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - text
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 4711 fe:00:2261844 120 120"; a waiting one has "->" after the number.
        match line.split():
            case [_, family, _, "WRITE", pid, where, first, _] if (family, first) == kind and where == place:
                return int(pid)
    return None
