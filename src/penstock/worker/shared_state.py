"""Memory shared by a child and the supervisor: jobs being executed, results, heartbeat, requests.

The memory is a mapped file, so that it outlives both: another supervisor can read which jobs the children of
a dead one were executing. Every field has one writer. A word is written at once; longer values are a
``SharedRecord``.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.catalog.values import Phase
from penstock.errors import DiskFull
from penstock.pipeline.budget import FileMark
from penstock.queue.job import Settlement

_TRIES = 1_000


class SharedRecord:
    """A value of some bytes with one writer and many readers: a sequence number, two words and the bytes.

    The number is odd while the rest is being written.

    A number that stays odd means that the writer died: there is nothing to read, and no handler was running.
    """

    def __init__(self, view: memoryview, at: int) -> None:
        self._words = view.cast("Q")
        self._times = view.cast("d")
        self._bytes = view
        self._at = at
        self._word = at // 8
        self._sequence = 0

    def write(self, number: int, time: float, body: bytes) -> None:
        words, word = self._words, self._word
        words[word] = self._sequence + 1
        words[word + 1] = number
        self._times[word + 2] = time
        words[word + 3] = len(body)
        self._bytes[self._at + 32 : self._at + 32 + len(body)] = body
        self._sequence += 2
        words[word] = self._sequence

    def read(self) -> tuple[int, float, bytes] | None:
        words, word = self._words, self._word
        for _ in range(_TRIES):
            before = words[word]
            number, time, length = words[word + 1], self._times[word + 2], words[word + 3]
            body = bytes(self._bytes[self._at + 32 : self._at + 32 + length])
            if before % 2 == 0 and words[word] == before:
                return number, time, body
        return None

    def release(self) -> None:
        self._words.release()
        self._times.release()


MOST_MEMBERS = 100
"""Most jobs in one call of a batch handler."""
TASKS = "tasks"
"""Prefix of the only member of an execution that runs tasks of a lane."""
_PROGRESS_LIMIT = 4_000
_MESSAGE_LIMIT = 4_000
_PAGE = 4096

# Word numbers (8 bytes each). The child writes the first group, the supervisor the second.
_READY, _EXECUTED, _REFUSED, _HEARTBEAT_AT, _IDLE, _RESULTS, _LEAVING_SINCE, _IN_STORE = range(8)
_EXECUTED_BESIDE = 8
_EXIT, _JOBS_RELEASED, _BEING_KILLED, _TASKS_RELEASED, _RESERVED_FOR_JOBS = range(16, 21)
_RENEWED_AT, _RENEWED_LATE_AT = range(21, 23)
_COUNTERS_AT = 32
_COUNTED = ("jobs", *map(str, Phase))
"""Jobs, and the tasks of each lane."""
_COUNTERS = (
    "claims",
    "claim_us",
    "retries",
    *(f"{kind}_{what}" for kind in _COUNTED for what in ("done", "failed", "us")),
)
"""Counters of a child: claims and their duration, retries; ends, failures and duration by kind."""
_LAYOUT = 63
LAYOUT = 4
"""Version of the layout: a worker may read the file of a dead worker of another version."""
_STOPS = 64
"""One word for each member: the number of the execution it is asked to stop."""

_FILE_AT = _PAGE // 2
_MESSAGE_AT = _PAGE
_MEMBERS_AT = 2 * _PAGE
_MEMBERS_LIMIT = 6 * _PAGE - 64
_PROGRESS_AT = 8 * _PAGE
_RESULTS_AT = _PROGRESS_AT + MOST_MEMBERS * _PAGE
RESULTS_LIMIT = 64 * _PAGE
_BESIDE_AT = _RESULTS_AT + RESULTS_LIMIT
SIZE = _BESIDE_AT + 2 * _PAGE

_START_AT, _END = 32, (1 << 32) - 1
"""One word has the start and the end of the saved results, so that both change at once."""

log = logging.getLogger("penstock.worker")


class ExecutingJob(msgspec.Struct, frozen=True, array_like=True):
    """One of the jobs in an execution."""

    queue_id: str
    claim_number: int
    timeout_s: int

    @property
    def name(self) -> tuple[str, int]:
        """Id and claim number."""
        return self.queue_id, self.claim_number


class Execution(msgspec.Struct, frozen=True):
    """One call of a handler. ``number`` is unique in the child; claim numbers repeat from job to job."""

    number: int
    started: float
    members: tuple[ExecutingJob, ...]

    @property
    def runs_tasks(self) -> bool:
        """True for tasks of a lane, False for jobs."""
        return self.members[0].queue_id.startswith(TASKS)


class FileRun(msgspec.Struct, frozen=True):
    """The file being parsed in a batch, if any, and since when."""

    mark: FileMark | None
    since: float
    """Start of the file; without a file, the end of the last one."""


_encode = msgspec.msgpack.Encoder().encode
_decode_members = msgspec.msgpack.Decoder(tuple[ExecutingJob, ...]).decode
_decode_mark = msgspec.msgpack.Decoder(FileMark).decode
_LENGTH = struct.Struct("<I")
_TORN = msgspec.DecodeError, UnicodeDecodeError
"""Errors of a decoder on torn bytes: text may end within a character."""


def _with_length(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class SharedState:
    """The shared memory of one child."""

    def __init__(self, path: Path, page: mmap.mmap | None = None) -> None:
        self.path = path
        self._page = _mapped(path) if page is None else page
        self._view = memoryview(self._page)
        self._words = self._view.cast("Q")
        self._times = self._view.cast("d")
        self._members = SharedRecord(self._view, _MEMBERS_AT)
        self._message = SharedRecord(self._view, _MESSAGE_AT)
        self._file = SharedRecord(self._view, _FILE_AT)
        self._beside = SharedRecord(self._view, _BESIDE_AT)
        self._beside_lock = threading.Lock()
        self._progress_records: dict[int, SharedRecord] = {}
        self._progress_lock = threading.Lock()
        self._number = 0
        self._started = 0.0

    @classmethod
    def in_memory(cls) -> SharedState:
        """Memory of this process alone, for a worker in a thread."""
        return cls(Path("memory"), mmap.mmap(-1, SIZE))

    @classmethod
    def create(cls, path: Path) -> SharedState:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # A hole would be filled by the first write, which is a SIGBUS on a full disk.
            os.posix_fallocate(fd, 0, SIZE)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise DiskFull(f"{path}: no room for the memory shared with a child ({error})") from error
        finally:
            os.close(fd)
        state = cls(path)
        state._words[_LAYOUT] = LAYOUT
        return state

    def _progress(self, index: int) -> SharedRecord:
        record = self._progress_records.get(index)
        if record is None:
            record = self._progress_records[index] = SharedRecord(self._view, _PROGRESS_AT + index * _PAGE)
        return record

    # Written by the child.

    def set_ready(self) -> None:
        self._words[_READY] = 1

    def begin(self, members: tuple[ExecutingJob, ...], started: float) -> int:
        """SharedRecord the jobs about to run; return the number of this execution."""
        self._number += 1
        self._started = started
        self._members.write(self._number, started, _encode(members))
        return self._number

    def end(self, executed: int) -> None:
        self._members.write(0, 0.0, b"")
        self._words[_EXECUTED] += executed
        if executed:
            self.count("jobs_us", round((time.monotonic() - self._started) * 1_000_000))

    def record_beside(self, members: tuple[ExecutingJob, ...]) -> None:
        """Record the jobs that run in threads. Calls must not overlap."""
        self._beside.write(0, 0.0, _encode(members))

    def count_beside(self) -> None:
        """Count a job that ran in a thread."""
        with self._beside_lock:
            self._words[_EXECUTED_BESIDE] += 1

    def count(self, counter: str, number: int = 1) -> None:
        """Add to one of ``_COUNTERS``."""
        self._words[_COUNTERS_AT + _COUNTERS.index(counter)] += number

    def mark_file(self, number: int, mark: FileMark | None, now: float) -> None:
        """SharedRecord the file being parsed from now on; None: parsing has ended."""
        self._file.write(number, now, _encode(mark) if mark is not None else b"")

    def write_progress(self, number: int, index: int, progress_json: str) -> None:
        # A thread that outlived its job must not write the progress of the next one.
        if number == self._number:
            # Several threads of one handler may write at once.
            with self._progress_lock:
                self._progress(index).write(number, 0.0, progress_json.encode()[:_PROGRESS_LIMIT])

    def save_results(self, results: Sequence[Settlement]) -> bool:
        """Copy unsent results to memory outliving this process. False: no room."""
        # The end is written last: after a death in between nothing counts as saved.
        word = self._words[_RESULTS]
        end = word & _END
        body = b"".join(_with_length(_encode(result)) for result in results)
        if end + len(body) > RESULTS_LIMIT:
            return False
        self._view[_RESULTS_AT + end : _RESULTS_AT + end + len(body)] = body
        self._words[_RESULTS] = word + len(body)
        return True

    @property
    def results_end(self) -> int:
        """Place behind the last saved result, for ``drop_results``."""
        return self._words[_RESULTS] & _END

    def drop_results(self, until: int) -> None:
        """Drop the results before this place. Those behind it stay, also if this process dies meanwhile."""
        end = self.results_end
        self._words[_RESULTS] = until << _START_AT | end
        if end - until <= until:
            # There is room before them, where nothing is needed any more.
            moved = bytes(self._view[_RESULTS_AT + until : _RESULTS_AT + end])
            self._view[_RESULTS_AT : _RESULTS_AT + len(moved)] = moved
            self._words[_RESULTS] = len(moved)

    def clear_results(self) -> None:
        self._words[_RESULTS] = 0

    def write_message(self, text: str) -> None:
        """Write a message for the supervisor: states of services, or the reason of death."""
        self._message.write(0, 0.0, text.encode(errors="replace")[:_MESSAGE_LIMIT])

    def count_refused(self, number: int) -> None:
        self._words[_REFUSED] += number

    def heartbeat(self, now: float) -> None:
        self._times[_HEARTBEAT_AT] = now

    def set_idle(self, idle: bool) -> None:
        self._words[_IDLE] = idle

    def set_in_store(self, in_store: bool) -> None:
        """Record that a thread of the child sends to the store, perhaps in a transaction."""
        self._words[_IN_STORE] = in_store

    def set_leaving(self, now: float) -> None:
        """SharedRecord the begin of the exit: everything is settled, only the process has to end."""
        self._times[_LEAVING_SINCE] = now

    def stop_requested(self, number: int, index: int) -> bool:
        return self._words[_STOPS + index] == number

    def exit_requested(self) -> bool:
        return self._words[_EXIT] == 1

    def jobs_released(self, number: int) -> bool:
        return self._words[_JOBS_RELEASED] == number

    def reserved_for_jobs(self) -> bool:
        return self._words[_RESERVED_FOR_JOBS] == 1

    def tasks_released(self, number: int) -> bool:
        return self._words[_TASKS_RELEASED] == number

    def being_killed(self, number: int) -> bool:
        return self._words[_BEING_KILLED] == number

    @property
    def renewed_at(self) -> float:
        """Start of the last renewal of the leases; 0 before the first."""
        return self._times[_RENEWED_AT]

    @property
    def renewed_late_at(self) -> float:
        """End of the last renewal that came late: leases of claims from before it may have ended."""
        return self._times[_RENEWED_LATE_AT]

    # Written or read by the supervisor.

    @property
    def same_layout(self) -> bool:
        """True if the file has the layout of this version."""
        return self._words[_LAYOUT] == LAYOUT

    @property
    def ready(self) -> bool:
        return self._words[_READY] == 1

    @property
    def executed(self) -> int:
        return self._words[_EXECUTED] + self._words[_EXECUTED_BESIDE]

    @property
    def refused(self) -> int:
        return self._words[_REFUSED]

    def counters(self) -> dict[str, int]:
        return {name: self._words[_COUNTERS_AT + place] for place, name in enumerate(_COUNTERS)}

    @property
    def idle(self) -> bool:
        return self._words[_IDLE] == 1

    @property
    def heartbeat_at(self) -> float:
        return self._times[_HEARTBEAT_AT]

    @property
    def in_store(self) -> bool:
        return self._words[_IN_STORE] == 1

    @property
    def leaving_since(self) -> float:
        """Time when the child began to exit; 0 before."""
        return self._times[_LEAVING_SINCE]

    def executing(self) -> Execution | None:
        record = self._members.read()
        if record is None or not record[2]:
            return None
        try:
            return Execution(record[0], record[1], _decode_members(record[2]))
        except _TORN as error:
            log.warning("%s: the jobs being executed cannot be read (%s)", self.path, error)
            return None

    def beside(self) -> tuple[ExecutingJob, ...]:
        """The jobs that run in threads, beside the execution."""
        record = self._beside.read()
        try:
            return _decode_members(record[2]) if record and record[2] else ()
        except _TORN as error:
            log.warning("%s: the jobs in threads cannot be read (%s)", self.path, error)
            return ()

    def file_run(self, number: int) -> FileRun | None:
        """Read the file being parsed; None: this execution has not marked any file."""
        record = self._file.read()
        if record is None or record[0] != number:
            return None
        try:
            return FileRun(_decode_mark(record[2]) if record[2] else None, record[1])
        except _TORN as error:
            log.warning("%s: the file being parsed cannot be read (%s)", self.path, error)
            return None

    def results(self) -> list[Settlement]:
        """Read the results possibly not sent by the child. A result settled twice is refused.

        After a power cut the file may be torn: complete results count, the other jobs run again.
        """
        word = self._words[_RESULTS]
        start, end = word >> _START_AT, min(word & _END, RESULTS_LIMIT)
        saved = bytes(self._view[_RESULTS_AT + start : _RESULTS_AT + end])
        results_found: list[Settlement] = []
        at = 0
        while at < len(saved):
            try:
                (length,) = _LENGTH.unpack_from(saved, at)
                at += _LENGTH.size + length
                results_found.append(msgspec.msgpack.decode(saved[at - length : at], type=Settlement))
            except (struct.error, *_TORN) as error:
                log.warning(
                    "%s: results after the first %d cannot be read (%s)", self.path, len(results_found), error
                )
                break
        return results_found

    def progress(self, number: int, index: int) -> str | None:
        record = self._progress(index).read()
        if record is None or record[0] != number:
            return None
        return record[2].decode(errors="replace") or None

    def message(self) -> str:
        record = self._message.read()
        return record[2].decode(errors="replace") if record else ""

    def request_stop(self, number: int, index: int) -> None:
        self._words[_STOPS + index] = number

    def request_exit(self) -> None:
        self._words[_EXIT] = 1

    def set_jobs_released(self, number: int) -> None:
        """Tell the child: the jobs waiting behind this execution were released."""
        self._words[_JOBS_RELEASED] = number

    def reserve_for_jobs(self, reserved: bool) -> None:
        """Make the child leave tasks to the others while small jobs come one by one."""
        self._words[_RESERVED_FOR_JOBS] = reserved

    def record_renewal(self, start: float) -> None:
        self._times[_RENEWED_AT] = start

    def record_late_renewal(self, end: float) -> None:
        self._times[_RENEWED_LATE_AT] = end

    def set_tasks_released(self, number: int) -> None:
        """Tell the child: all its tasks were released during this execution."""
        self._words[_TASKS_RELEASED] = number

    def kill_execution(self, number: int) -> None:
        self._words[_BEING_KILLED] = number

    def close(self, *, remove: bool = False) -> None:
        for record in (
            self._members,
            self._message,
            self._file,
            self._beside,
            *self._progress_records.values(),
        ):
            record.release()
        self._words.release()
        self._times.release()
        self._view.release()
        self._page.close()
        if remove:
            with suppress(OSError):  # its directory may be gone
                self.path.unlink()


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), SIZE)
