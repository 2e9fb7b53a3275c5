"""A supervisor's life is a lock on its file, not a process number: a number is soon somebody else's.

The file names the supervisor's children. Whoever can lock it knows that the supervisor is dead, reads which
jobs its children were executing from their slots, and gives their claims back.
"""

from __future__ import annotations

import fcntl
import logging
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.catalog.protocol import Catalog
from penstock.queue.protocol import Queue
from penstock.worker import dead_workers, failed_files, process_groups
from penstock.worker.lanes import settle_dead
from penstock.worker.shared_state import SIZE, SharedState

SUFFIX = ".worker"
REWRITE_AT = 1_000
"""Lines after which it is written anew, without the children that are gone."""

log = logging.getLogger("penstock.worker")


class LivenessLock:
    def __init__(self, directory: Path, supervisor_id: str) -> None:
        self.path = directory / f"{supervisor_id}{SUFFIX}"
        self._children: dict[str, str] = {}
        self._written = 0
        self._fd = self._made()
        _open.add(self)

    def _made(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Locked under another name first: nobody may see it unlocked while its owner lives.
        young = self.path.with_suffix(".young")
        fd = os.open(young, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            young.rename(self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def adopt(self, worker_id: str) -> None:
        """Name a child before it can claim anything."""
        there = self.path.exists()
        if not there or self._written > REWRITE_AT:
            if not there:
                log.warning("%s was removed; it is made anew", self.path)
            # The old one is locked until then: it may only have been moved, and come back.
            anew = self._made()
            self.let_go()
            self._fd = anew
            self._written = 0
            self._write(self._children.values())
        self._write([worker_id])
        os.fsync(self._fd)
        self._children[worker_id] = worker_id

    def identify(self, worker_id: str, pid: int) -> None:
        """Say which process the child is, so that an heir can end what its functions started."""
        leader = process_groups.GroupLeader.of(pid)
        if leader is not None:
            line = self._children[worker_id] = f"{worker_id} {leader.written()}"
            self._write([line])

    def forget(self, worker_id: str) -> None:
        """All that the child held is settled."""
        self._children.pop(worker_id, None)

    def _write(self, lines: Iterable[str]) -> None:
        before = os.fstat(self._fd).st_size
        whole = [f"{line}\n" for line in lines]
        try:
            os.write(self._fd, "".join(whole).encode())
        except OSError:
            # Half a line would spoil the next one.
            os.ftruncate(self._fd, before)
            raise
        self._written += len(whole)

    def close(self, *, remove: bool = True) -> None:
        """Kept, the file says that there are claims to give back."""
        if remove:
            with suppress(OSError):  # its directory may be gone
                self.path.unlink()
        self.let_go()

    def let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_open: weakref.WeakSet[LivenessLock] = weakref.WeakSet()


def _let_go_of_all() -> None:
    # A forked child shares the lock, and would keep its dead supervisor alive with it.
    for life in list(_open):
        life.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


def anybody_alive(directory: Path) -> bool:
    """Whether a supervisor lives on this host that works on this directory's store."""
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def slot_path(directory: Path, worker_id: str) -> Path:
    return directory / f"{worker_id}.slot"


def release_dead(queue: Queue, directory: Path, catalog: Catalog | None = None) -> int:
    """Give back what supervisors that died on this host left behind; answers how many jobs and tasks."""
    released = 0
    for path, fd in _dead(directory):
        try:
            lines = [line.split() for line in _read(fd).splitlines()]
            for leader in filter(None, (process_groups.GroupLeader.parse(line[1:]) for line in lines)):
                if left := process_groups.kill_left_behind(leader):
                    log.warning("killed %d processes that a dead worker's functions had started", left)
            for worker_id in dict.fromkeys(line[0] for line in lines if line):
                released += _release_child(queue, catalog, slot_path(directory, worker_id), worker_id)
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
    """One file, of another user perhaps, must not keep this worker from its duties. Leases run out."""
    if path not in _warned:
        _warned.add(path)
        log.warning("what became of %s cannot be told: %s", path, error)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _release_child(queue: Queue, catalog: Catalog | None, slot_file: Path, worker_id: str) -> int:
    executing, results, run, parsed = None, [], None, None
    if _size(slot_file) == SIZE:
        slot = SharedState(slot_file)
        if slot.known:
            executing, results = slot.executing(), slot.results()
            run = slot.file_run(executing.number) if executing is not None else None
            parsed = failed_files.parsed_by(slot)
        slot.close()
    verdict = dead_workers.unless_executing(executing, run)
    released = dead_workers.settle_dead(queue, worker_id, results, verdict, catalog=catalog, parsed=parsed)
    if catalog is not None:
        over_tasks = executing is not None and executing.over_tasks
        released += settle_dead(catalog, worker_id, lost=over_tasks)
    # Last: should the store be away, whoever tries again needs to know what was executing.
    slot_file.unlink(missing_ok=True)
    return released


def _dead(directory: Path) -> Iterator[tuple[Path, int]]:
    """The files of dead supervisors, locked: two heirs do not share one."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
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
            # Another heir was quicker.
            os.close(fd)
            continue
        yield path, fd
