"""Budgets: CPU time and memory for parsing and chunking one file, and calls to an endpoint.

Time and memory are enforced from inside, without a process for each file. A timer on this process's CPU
time interrupts Python code; CPU time, so that a busy machine fails no file. A limit on its data makes
allocations fail. Only the main thread of a process can be interrupted, so a worker in a thread enforces
neither. Native code that does not return is the supervisor's business: it reads from shared memory which
file is being parsed.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import threading
import time
from _signal import getsignal, setitimer  # type: ignore[import-not-found]  # without the enums of signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from penstock import clock
from penstock.errors import DocumentTooLarge, MemoryBudgetExceeded, TimeBudgetExceeded, TransientFailure
from penstock.state_directory import make_private

_PIECE_BYTES = 32 << 20
WAIT_S = 3.0
"""Longest wait for pieces. A file or page that does not get them is released, so others can be read."""
POLL_S = 0.02


class MemoryInUse(Exception):
    """Raised while other processes of this worker use the memory; a later attempt may succeed."""


class _MemoryPool:
    """Memory for large files and for OCR, shared by the processes of a worker through file locks.

    It is divided into equal pieces, each with a lock of its own; this has those held by one process. A large
    file takes all pieces; a page to be recognized takes as many as it needs. The system releases the locks of
    a process that dies.

    A process that waits for pieces holds a further lock, the turn, and no other takes pieces meanwhile. So
    many small requests cannot starve a large one, nor the other way round.
    """

    def __init__(self, path: str, total_bytes: int) -> None:
        self._path = path
        self.pieces = max(total_bytes // _PIECE_BYTES, 1)
        self._turn = self._pages = -1
        self._locks: list[int] = []
        self._held: list[int] = []
        self._on_release: Callable[[], None] | None = None

    def take(self, pieces: int | None = None, on_release: Callable[[], None] | None = None) -> None:
        """Take pieces, all of them by default. Raises ``MemoryInUse`` after some seconds.

        ``on_release``: frees the memory in use. With it, the pieces stay with this process after
        ``pause``, for the next request of the same kind.
        """
        wanted = self.pieces if pieces is None else min(pieces, self.pieces)
        if self._keeps(wanted, on_release):
            return
        self.release()
        self._open()
        self._wait_for(wanted, on_release)

    def take_for_pages(self, on_release: Callable[[], None]) -> None:
        """Take all pieces as ``take`` does, for pages of a large document, which stays open.

        Raises ``MemoryInUse`` at once if another process reads such pages. If both waited for each other,
        each would open its document again for every few pages.
        """
        if self._keeps(self.pieces, on_release):
            return
        self.release()
        self._open()
        if not _acquired([self._pages], 1, 0.0):
            raise MemoryInUse("another process of this worker reads pages of a large document")
        try:
            self._wait_for(self.pieces, on_release)
        except BaseException:
            fcntl.flock(self._pages, fcntl.LOCK_UN)
            raise

    def _keeps(self, wanted: int, on_release: Callable[[], None] | None) -> bool:
        return bool(self._held) and on_release is not None and len(self._held) >= wanted

    def _wait_for(self, wanted: int, on_release: Callable[[], None] | None) -> None:
        until = clock.elapsed_s() + WAIT_S
        if not _acquired([self._turn], 1, until):
            raise MemoryInUse("another file waits for memory of this worker")
        try:
            self._held = _acquired(self._locks, wanted, until)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        if not self._held:
            raise MemoryInUse("another process of this worker is parsing a large file")
        self._on_release = on_release

    def pause(self) -> None:
        """Release the pieces, if another process waits for some."""
        if self._held:
            if _acquired([self._turn], 1, 0.0):
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            else:
                self.release()

    def release(self) -> None:
        """Release the pieces, after the memory was freed."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()
        if self._held:
            for lock in (*self._held, self._pages):
                fcntl.flock(lock, fcntl.LOCK_UN)
        self._held = []

    def _open(self) -> None:
        # Not before they are needed: a forked process must not share the locks of its parent.
        if self._turn < 0:
            self._turn = _lock_file(f"{self._path}.turn")
            self._pages = _lock_file(f"{self._path}.pages")
            self._locks = [_lock_file(self._path)]
            self._locks += [_lock_file(f"{self._path}.{number}") for number in range(1, self.pieces)]

    def close(self) -> None:
        """Release the pieces and close the lock files."""
        self.release()
        for lock in (self._turn, self._pages, *self._locks):
            if lock >= 0:
                os.close(lock)
        self._turn, self._pages, self._locks = -1, -1, []


def _lock_file(path: str | Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _acquired(locks: list[int], wanted: int, until: float) -> list[int]:
    """Acquire this many of the locks; none if not possible in time."""
    held: list[int] = []
    while True:
        for lock in locks:
            if lock not in held and len(held) < wanted:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.append(lock)
        if len(held) == wanted:
            return held
        if clock.elapsed_s() >= until:
            for lock in held:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return []
        time.sleep(POLL_S)


INTERRUPT_EVERY_S = 0.25
"""CPU time between two interrupts. They repeat because a parser may catch one."""
SMALL_BYTES = 64 << 20
EXPANSION = 24
"""Memory per byte of a file, for its text, lines and chunks. A first guess: a file that needs more gets a
second attempt with the large share."""

_PAGE = resource.getpagesize()
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_Result = TypeVar("_Result")


class FileMark(msgspec.Struct, frozen=True):
    """The file now being parsed by a job of a batch, as shown to the supervisor."""

    member: int
    """Index of the job in the batch."""
    cpu_started: float
    """CPU time of the process when parsing began."""
    seconds: float
    size: int
    mtime_ns: int
    made_with: str
    """Fingerprint of the parser and its limits; see ``Pipeline.failure_fingerprint``."""


class MemoryShare(msgspec.Struct, frozen=True):
    """Share of one process in the worker's memory for files.

    Every file may use ``small_bytes`` in the process itself. A file that needs more may use ``large_bytes``
    in a sandbox, one process at a time. A page to be recognized uses a part of ``large_bytes`` besides the
    small share of its process. So all processes together stay within the total.
    """

    small_bytes: int
    large_bytes: int
    lock_path: str

    @classmethod
    def of(cls, total_mb: int, processes: int, directory: Path) -> MemoryShare:
        total, processes = total_mb << 20, max(processes, 1)
        small = min(SMALL_BYTES, total // (2 * processes))
        return cls(small, total - processes * small, str(directory / "large-file.lock"))


class Work(msgspec.Struct, Generic[_Result], frozen=True):
    """Two ways to process one file. Both get the file's memory limit in bytes."""

    in_process: Callable[[int | None], _Result]
    """In this process, or in the sandbox's child for further files. None: without a limit on memory."""
    in_sandbox: Callable[[int], _Result]
    """In a process that ends afterwards, or with the memory kept for further pages, so that memory left
    behind by a large file is returned."""


class FileLimiter:
    """Runs the work on one file within a budget. Each process has one, used by the main thread."""

    def __init__(self, share: MemoryShare | None = None) -> None:
        self._share = share
        self._pool = _MemoryPool(share.lock_path, share.large_bytes) if share is not None else None
        self._own: OwnMemory | None = None
        self._large_document: int | None = None
        """Hash of the latest document whose pages needed the large share."""

    def run(self, seconds: float, size: int, work: Work[_Result]) -> _Result:
        """Process a small file here, and a large or memory-hungry one in the sandbox.

        Raises ``TimeBudgetExceeded``, ``MemoryBudgetExceeded``, or ``MemoryInUse`` while another
        process has the large share.
        """
        self.rest()
        if threading.get_ident() != threading.main_thread().ident:
            return work.in_process(None)
        if self._share is None:
            with _Timer(seconds):
                return work.in_process(None)
        if size * EXPANSION <= self._share.small_bytes:
            with suppress(MemoryBudgetExceeded):
                return self._run_limited(seconds, self._share.small_bytes, work.in_process)
        return self._run_large(work)

    def run_pages(
        self, seconds: float, document: int, work: Work[_Result], free: Callable[[], None]
    ) -> _Result:
        """Read some pages of the document with this hash. Raises errors as ``run`` does.

        Where they need the large share, this process keeps the share and the open document for the pages
        after them, until other work needs the memory. ``free``: ends the sandbox.
        """
        if self._share is None or threading.get_ident() != threading.main_thread().ident:
            return self.run(seconds, 0, work)
        if document != self._large_document:
            self.rest()
            with suppress(MemoryBudgetExceeded):
                return self._run_limited(seconds, self._share.small_bytes, work.in_process)
            self._large_document = document
        assert self._pool is not None
        self._pool.take_for_pages(free)
        try:
            return work.in_sandbox(self._share.large_bytes)
        finally:
            self._pool.pause()

    def run_isolated(self, size: int, work: Work[_Result]) -> _Result:
        """Process a file where ``in_process`` uses the sandbox, too. Raises ``MemoryInUse`` as ``run`` does.

        The sandbox has limits of its own, and its child reads one small file after another.
        """
        if self._share is None:
            raise AssertionError("a limiter without a share of memory has no limit for the sandbox")
        if size * EXPANSION <= self._share.small_bytes:
            with suppress(MemoryBudgetExceeded):
                return work.in_process(self._share.small_bytes)
        return self._run_large(work)

    @property
    def most_bytes(self) -> int | None:
        """Memory for one page to be recognized, at most; None if there is no limit."""
        return self._share.small_bytes + self._share.large_bytes if self._share is not None else None

    def run_recognition(
        self, memory_bytes: int, work: Callable[[int], _Result], free: Callable[[], None]
    ) -> _Result:
        """Recognize a page in the sandbox, with this memory or all there is. Raises ``MemoryInUse``.

        ``free``: ends the sandbox, which keeps its models for the next page until other work needs the
        memory.
        """
        if self._share is None or self._pool is None:
            return work(memory_bytes)
        memory_bytes = min(memory_bytes, self._share.small_bytes + self._share.large_bytes)
        more = memory_bytes - self._share.small_bytes
        self._pool.take(max(-(-more // _PIECE_BYTES), 1), free)
        try:
            return work(memory_bytes)
        finally:
            self._pool.pause()

    def pause(self) -> None:
        """Free the memory kept for further pages, if another process waits for some."""
        if self._pool is not None:
            self._pool.pause()

    def rest(self) -> None:
        """Free the memory kept for further pages."""
        if self._pool is not None:
            self._pool.release()

    def _run_large(self, work: Work[_Result]) -> _Result:
        assert self._share is not None
        assert self._pool is not None
        self._pool.take()
        try:
            return work.in_sandbox(self._share.large_bytes)
        finally:
            self._pool.release()

    def _run_limited(
        self, seconds: float, memory_bytes: int, work: Callable[[int | None], _Result]
    ) -> _Result:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        own = self._own = self._own or OwnMemory()
        resident, data = own.resident_and_data_bytes()
        limit = data + memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
        try:
            with _Timer(seconds):
                return work(memory_bytes)
        except MemoryError:
            raise memory_exceeded(memory_bytes) from None
        except (TimeBudgetExceeded, DocumentTooLarge):
            raise
        except Exception as error:
            if own.peak_bytes() - resident > memory_bytes // 2:
                # Libraries raise their own errors when memory runs out.
                own.reset_peak()
                raise memory_exceeded(memory_bytes) from error
            raise
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._own is not None:
            self._own.close()
        self._own = None


class OwnMemory:
    """Memory of this process. The kernel's files are kept open, since a confined process cannot open them."""

    def __init__(self) -> None:
        self._statm, self._status, self._clear = (
            _proc_file(name, flags)
            for name, flags in (("statm", os.O_RDONLY), ("status", os.O_RDONLY), ("clear_refs", os.O_WRONLY))
        )

    def resident_bytes(self) -> int:
        return self.resident_and_data_bytes()[0]

    def data_bytes(self) -> int:
        return self.resident_and_data_bytes()[1]

    def resident_and_data_bytes(self) -> tuple[int, int]:
        """Resident memory, and private writable memory, which ``RLIMIT_DATA`` counts."""
        if self._statm < 0:
            return 0, 0
        pages = os.pread(self._statm, 200, 0).split()
        return int(pages[1]) * _PAGE, int(pages[5]) * _PAGE

    def peak_bytes(self) -> int:
        """Peak resident memory since ``reset_peak``."""
        with suppress(OSError, ValueError, IndexError):
            status = os.pread(self._status, 1 << 14, 0)
            return int(status.partition(b"VmHWM:")[2].split()[0]) * 1024
        return 0

    def reset_peak(self) -> None:
        with suppress(OSError):
            os.pwrite(self._clear, b"5", 0)

    def close(self) -> None:
        for fd in (self._statm, self._status, self._clear):
            if fd >= 0:
                os.close(fd)


def _proc_file(name: str, flags: int) -> int:
    with suppress(OSError):
        return os.open(f"/proc/self/{name}", flags | os.O_CLOEXEC)
    return -1


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for later.

    Otherwise it returns the memory after every page of a document, and page faults cost a third of the time.
    """
    with suppress(ImportError, OSError, AttributeError):  # other systems, other libraries
        import ctypes

        library = ctypes.CDLL(None)
        for option, value in ((_TRIM_THRESHOLD, 16 << 20), (_MMAP_THRESHOLD, 8 << 20), (_TOP_PAD, 256 << 10)):
            library.mallopt(option, value)


def time_exceeded(seconds: float) -> TimeBudgetExceeded:
    return TimeBudgetExceeded(f"parsing and chunking it took more than {seconds:.3g} s of CPU time")


def memory_exceeded(memory_bytes: int) -> MemoryBudgetExceeded:
    return MemoryBudgetExceeded(
        f"parsing and chunking it took more than {memory_bytes >> 20:,} MiB of memory"
    )


def cpu_seconds(pid: int) -> float | None:
    """CPU time used by another process; None on systems other than Linux."""
    if not sys.platform.startswith("linux"):
        return None
    # The clock of a process, as clock_getcpuclockid(3) makes it.
    with suppress(OSError, OverflowError):
        return time.clock_gettime(~pid << 3 | 2)
    return None


class _Interrupt(BaseException):
    """Raised by the timer's signal. A BaseException, which parsers do not catch."""


class _Timer:
    """Context manager: interrupts the block after some CPU time of this process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if getsignal(signal.SIGPROF) is not _interrupt:
            signal.signal(signal.SIGPROF, _interrupt)
        setitimer(signal.ITIMER_PROF, max(self._seconds, 0.001), INTERRUPT_EVERY_S)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Another interrupt may arrive while the timer is being stopped.
        for _ in range(100):
            try:
                setitimer(signal.ITIMER_PROF, 0)
                break
            except _Interrupt as late:
                error = error or late
        if isinstance(error, _Interrupt):
            raise time_exceeded(self._seconds) from None


def _interrupt(_number: int, _frame: object) -> None:
    raise _Interrupt


LONGEST_TURN_S = 1.0
_LOOK_AGAIN_S = 0.02
_MINUTE_S = 60.0


class CallLimitReached(TransientFailure):
    """This machine makes as many calls as the settings allow. The call is due after ``retry_after``."""


class CallLimits(msgspec.Struct, frozen=True):
    """Limits for calls to one service, shared by all processes on this machine: at once, and in a minute.

    The state is in files of ``directory``. A call waits for its turn no longer than a moment, since the
    process has other work. After that the call is refused, and its task comes again.
    """

    service: str
    directory: Path
    calls: int
    per_minute: int | None = None

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make a call inside. Raises ``CallLimitReached`` after too long a wait for a turn."""
        make_private(self.directory)
        descriptor = self._slot()
        try:
            self._wait_for_turn()
            yield
        finally:
            os.close(descriptor)

    def _slot(self) -> int:
        """Lock one of as many files as there may be calls. The lock ends with the process at the latest."""
        deadline = clock.elapsed_s() + LONGEST_TURN_S
        while True:
            for number in range(self.calls):
                descriptor = _lock_file(self.directory / f"call-{number}")
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return descriptor
                except BlockingIOError:
                    os.close(descriptor)
            if clock.elapsed_s() >= deadline:
                raise CallLimitReached(
                    f"{self.calls} calls to the {self.service} are running, as many as allowed",
                    retry_after=timedelta(seconds=LONGEST_TURN_S),
                )
            time.sleep(_LOOK_AGAIN_S)

    def _wait_for_turn(self) -> None:
        """Space calls evenly: each call takes the next free moment."""
        if self.per_minute is None:
            return
        descriptor = _lock_file(self.directory / "next-call")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            now = clock.elapsed_s()
            wait = max(_read_moment(descriptor) - now, 0.0)
            if wait > _MINUTE_S + LONGEST_TURN_S:
                wait = 0.0  # written before the machine was started again
            if wait > LONGEST_TURN_S:
                raise CallLimitReached(
                    f"the {self.service} gets {self.per_minute} calls a minute, as many as allowed",
                    retry_after=timedelta(seconds=wait),
                )
            os.pwrite(descriptor, f"{now + wait + _MINUTE_S / self.per_minute:020.6f}".encode(), 0)
        finally:
            os.close(descriptor)
        time.sleep(wait)


def _read_moment(descriptor: int) -> float:
    try:
        return float(os.pread(descriptor, 64, 0) or 0)
    except ValueError:
        return 0.0
