"""Liveness locks: a supervisor is alive while the lock on the supervisor's file is held.

A process id is no proof, since the kernel assigns it again. The file names the supervisor's children. A
worker that can lock the file knows that the supervisor is dead. Then it kills the processes that the children
left behind, reads from the shared states which jobs they were executing, and releases their claims.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.state_directory import make_private
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.protocol import Catalog
    from penstock.queue.protocol import Queue

SUFFIX = ".worker"
ONE_JOB = ".one-job"
"""End of the name of a process that runs one job of its own and claims no other."""
_REWRITE_AT = 1_000
"""Lines after which the file is rewritten without the children that have ended."""
_PROC = Path("/proc")

log = logging.getLogger("penstock.worker")


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process as /proc shows it. ``started``: ticks since the boot."""

    pid: int
    group: int
    session: int
    started: int


class GroupLeader(msgspec.Struct, frozen=True):
    """The process of a child, as recorded by the supervisor, with session, boot and container.

    The kernel does not assign a process id while a group has it. So a group with the id of a child is the
    child's own, unless all of the group ended and the id was assigned again. The other fields rule that out.
    """

    pid: int
    started: int
    session: int
    realm: str

    @classmethod
    def of(cls, pid: int) -> GroupLeader | None:
        """Read the process from /proc; None where there is none."""
        process, realm = _process(pid), _realm()
        return cls(pid, process.started, process.session, realm) if process and realm else None

    @classmethod
    def parse(cls, fields: list[str]) -> GroupLeader | None:
        """Read the text made by ``to_text``; None for incomplete text."""
        try:
            pid, started, session, realm = fields
            return cls(int(pid), int(started), int(session), realm)
        except ValueError:
            return None

    def to_text(self) -> str:
        return f"{self.pid} {self.started} {self.session} {self.realm}"


def kill_left_behind(leader: GroupLeader) -> int:
    """Kill the remaining group of a dead supervisor's child; return the number of processes."""
    if leader.pid <= 1 or leader.realm != _realm():
        return 0
    members = [process for process in _processes() if process.group == leader.pid]
    if not members or not all(_is_of_group(process, leader) for process in members):
        return 0
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGKILL)
        return len(members)
    return 0


def _is_of_group(process: ProcessInfo, leader: GroupLeader) -> bool:
    if process.pid == leader.pid:
        return process.started == leader.started
    # A process that got the id later most likely belongs to the session of another service or terminal.
    return process.session == leader.session and process.started >= leader.started


def _processes() -> Iterator[ProcessInfo]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            process = _process(int(entry.name))
            if process is not None:
                yield process


def _process(pid: int) -> ProcessInfo | None:
    try:
        # The name, in parentheses, may contain blanks and parentheses, too.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else ProcessInfo(pid, int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _realm() -> str:
    """Identify this boot and this container: elsewhere the same ids are other processes."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


class LivenessLock:
    """The lock of one supervisor, and the list of children."""

    def __init__(self, directory: Path, supervisor_id: str) -> None:
        self.path = directory / f"{supervisor_id}{SUFFIX}"
        self._children: dict[str, str] = {}
        self._written = 0
        self._fd = self._create()
        _open.add(self)

    def _create(self) -> int:
        make_private(self.path.parent)
        # Locked under a temporary name first: a file visible without a lock means a dead supervisor.
        temporary = self.path.with_suffix(".young")
        fd = os.open(temporary, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.rename(self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def add_child(self, worker_id: str) -> None:
        """Name a child, before the child can claim anything."""
        exists = self.path.exists()
        if not exists or self._written > _REWRITE_AT:
            if not exists:
                log.warning("%s was removed and is created again", self.path)
            # The old file stays locked until then: it may have been moved only, and may come back.
            created = self._create()
            self.release()
            self._fd = created
            self._written = 0
            self._write(self._children.values())
        self._write([worker_id])
        os.fsync(self._fd)
        self._children[worker_id] = worker_id

    def record_process(self, worker_id: str, pid: int) -> None:
        """Record the process of a child: another worker may have to kill processes started there."""
        leader = GroupLeader.of(pid)
        if leader is not None:
            line = self._children[worker_id] = f"{worker_id} {leader.to_text()}"
            self._write([line])

    def remove_child(self, worker_id: str) -> None:
        """Forget a child after all jobs are settled."""
        self._children.pop(worker_id, None)

    def _write(self, lines: Iterable[str]) -> None:
        before = os.fstat(self._fd).st_size
        written_lines = [f"{line}\n" for line in lines]
        try:
            os.write(self._fd, "".join(written_lines).encode())
        except OSError:
            # Half a line would corrupt the next one.
            os.ftruncate(self._fd, before)
            raise
        self._written += len(written_lines)

    def close(self, *, remove: bool = True) -> None:
        """Release the lock. A file left behind means unreleased claims."""
        if remove:
            with suppress(OSError):  # its directory may be gone
                self.path.unlink()
        self.release()

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_open: weakref.WeakSet[LivenessLock] = weakref.WeakSet()


def _release_all() -> None:
    # A forked child shares the lock, and would make its dead supervisor look alive.
    for lock in list(_open):
        lock.release()


os.register_at_fork(after_in_child=_release_all)


def any_worker_alive(directory: Path) -> bool:
    """True if a supervisor with children, for the store of this directory, runs on this host.

    Without children (``queue_enabled`` is false) the file is empty, and no job is claimed. A process for one
    job leaves every other job to others.
    """
    for path in directory.glob(f"*{SUFFIX}"):
        if path.stem.endswith(ONE_JOB):
            continue
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if os.fstat(fd).st_size:
                return True
        finally:
            os.close(fd)
    return False


def any_worker_dead(directory: Path) -> bool:
    """True if a supervisor for the store of this directory has died on this host."""
    dead = False
    for _, fd in _dead(directory):
        os.close(fd)
        dead = True
    return dead


def state_path(directory: Path, worker_id: str) -> Path:
    return directory / f"{worker_id}.state"


def release_dead(
    queue: Queue, directory: Path, catalog: Catalog | None = None, *, commands_only: bool = False
) -> int:
    """Release the claims of dead supervisors on this host; return the number of jobs and tasks.

    ``commands_only``: only those of commands that ran a job of their own.
    """
    released = 0
    for path, fd in _dead(directory, ONE_JOB + SUFFIX if commands_only else SUFFIX):
        try:
            lines = [line.split() for line in _read(fd).splitlines()]
            for leader in filter(None, (GroupLeader.parse(line[1:]) for line in lines)):
                if left := kill_left_behind(leader):
                    killed = how_many(left, "process", "processes")
                    log.warning("killed %s started by functions of a dead worker", killed)
            for worker_id in dict.fromkeys(line[0] for line in lines if line):
                released += _release_child(queue, catalog, state_path(directory, worker_id), worker_id)
            queue.forget_workers([report for report in queue.workers() if report.worker_id == path.stem])
            path.unlink(missing_ok=True)
        except OSError as error:
            _warn_once(path, error)
        finally:
            os.close(fd)
    return released


def _read(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")


_warned: set[Path] = set()


def _warn_once(path: Path, error: OSError) -> None:
    """Warn of an unreadable file, of another user perhaps, and go on: leases end by themselves."""
    if path not in _warned:
        _warned.add(path)
        log.warning("%s cannot be read, its jobs wait until their leases end: %s", path, error)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _release_child(queue: Queue, catalog: Catalog | None, state_file: Path, worker_id: str) -> int:
    # Imported where claims are released: most commands only ask whether a worker lives.
    from penstock.worker import orphans
    from penstock.worker.lanes import settle_dead_tasks
    from penstock.worker.shared_state import SIZE, SharedState

    executing, results, run, parsed_file = None, [], None, None
    if _size(state_file) == SIZE:
        state = SharedState(state_file)
        if state.same_layout:
            executing, results = state.executing(), state.results()
            run = state.file_run(executing.number) if executing is not None else None
            parsed_file = orphans.file_being_parsed(state)
        state.close()
    resolve = orphans.resolve_dead(executing, run)
    released = orphans.settle_dead_jobs(
        queue, worker_id, results, resolve, catalog=catalog, parsed_file=parsed_file
    )
    if catalog is not None:
        runs_tasks = executing is not None and executing.runs_tasks
        released += settle_dead_tasks(catalog, worker_id, lost=runs_tasks)
    # Removed last: during an outage of the store the next attempt needs it.
    state_file.unlink(missing_ok=True)
    return released


def _dead(directory: Path, suffix: str = SUFFIX) -> Iterator[tuple[Path, int]]:
    """Lock and list the files of dead supervisors, each for one worker only."""
    for path in sorted(directory.glob(f"*{suffix}")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            _warn_once(path, error)
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        if os.fstat(fd).st_nlink == 0:
            # Another worker has released these claims.
            os.close(fd)
            continue
        yield path, fd
