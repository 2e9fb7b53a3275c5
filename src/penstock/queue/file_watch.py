"""Waiting until files in a directory change: by inotify if available, else by polling."""

from __future__ import annotations

import math
import os
import select
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.database import schema
from penstock.queue.engine import SharedWait

if TYPE_CHECKING:
    from penstock.database.sqlite import SqliteConnections

FASTEST_S = 0.002
_SOONEST_S = 0.0003
"""First check after an event: a commit is seen soon after it was synced."""
SLOWEST_S = 0.025
_SLOWDOWN = 1.3

LONGEST_S = 1.0
"""Longest time between checks with inotify, which does not see writes of other hosts."""

_ALERT_S = 1.0
"""Time to poll after an event: SQLite writes and syncs before others can see a commit."""
_FIRST_ALERT_S = 0.05
"""The same at the start of every wait, for an event just before it."""

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")


class FileWatch:
    """Watch of one directory. ``changed`` confirms a wake-up; called at least once per wait."""

    def __init__(self, directory: Path, changed: Callable[[], bool]) -> None:
        self._directory = directory
        self._changed = changed
        self._lock = threading.Lock()
        self._watch: _Inotify | None = None
        self._unwatchable = False
        schema.register(self)

    def wait(self, timeout: float) -> bool:
        """Sleep until ``changed``, at most ``timeout`` seconds; False if nothing changed."""
        now = time.monotonic()
        deadline, alert_until, pause = now + timeout, now + _FIRST_ALERT_S, _SOONEST_S
        while True:
            # Opened before the check: a change in between raises an event, so none is missed.
            watch = self._open_watch()
            events = watch.events if watch is not None else 0
            if self._changed():
                return True
            now = time.monotonic()
            left = deadline - now
            if left <= 0:
                return False
            if watch is None:
                pause = max(pause, FASTEST_S)
                time.sleep(min(left, pause))
                pause = min(pause * _SLOWDOWN, SLOWEST_S)
                continue
            happened = watch.sleep(min(left, pause if now < alert_until else LONGEST_S), events)
            if not watch.usable:
                self._close_watch(watch)
            if happened:
                alert_until, pause = time.monotonic() + _ALERT_S, _SOONEST_S
            else:
                pause = min(pause * _SLOWDOWN, SLOWEST_S)

    def close(self) -> None:
        """Close the watch; a later ``wait`` opens a new one."""
        self._close_watch(self._watch)

    def _close_watch(self, watch: _Inotify | None) -> None:
        with self._lock:
            if watch is not None and watch is self._watch:
                self._watch = None
                watch.close()

    def after_fork(self) -> None:
        # Events read here would be missing in the parent: both share one queue of events.
        self._lock = threading.Lock()
        self.close()

    def _open_watch(self) -> _Inotify | None:
        with self._lock:
            if self._watch is None and not self._unwatchable:
                try:
                    self._watch = _Inotify(self._directory)
                except FileNotFoundError:
                    # The directory may be created again; until then poll.
                    return None
                except (OSError, AttributeError):
                    # Not Linux, or the limit of watches of this user is reached.
                    self._unwatchable = True
            return self._watch


class _Inotify:
    """An inotify descriptor for one directory, shared by all threads.

    The directory and not the files, because files are replaced. Users may have few descriptors (128 by
    default), so the threads share one.
    """

    def __init__(self, directory: Path) -> None:
        self.usable = True
        self._shared = SharedWait()
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        # IN_NONBLOCK and IN_CLOEXEC are the values of O_NONBLOCK and O_CLOEXEC.
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _last_error(directory)
        if libc.inotify_add_watch(self._fd, os.fsencode(directory), _MODIFY | _MOVED_TO | _CREATE) < 0:
            error = _last_error(directory)
            self.close()
            raise error
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    @property
    def events(self) -> int:
        return self._shared.events

    def sleep(self, seconds: float, events: int) -> bool:
        """Sleep until there are more than ``events`` events; False after these seconds."""
        if seconds < 0.001:
            # poll counts in milliseconds; events during this sleep are read the next time.
            time.sleep(seconds)
            return False
        return self._shared.wait(events, seconds, self._poll_once)

    def _poll_once(self, seconds: float) -> bool:
        ready = self._poll.poll(math.ceil(seconds * 1000))
        if ready:
            broken = ready[0][1] & (select.POLLNVAL | select.POLLERR | select.POLLHUP)
            self.usable = not broken and self._drain()
        return bool(ready)

    def _drain(self) -> bool:
        usable = True
        while True:
            try:
                events = os.read(self._fd, 65536)
            except BlockingIOError:
                return usable
            except OSError:
                # Closed by another thread.
                return False
            position = 0
            while position < len(events):
                _, mask, _, name_length = _EVENT.unpack_from(events, position)
                # The directory was removed, and the watch with it.
                usable = usable and not mask & _IGNORED
                position += _EVENT.size + name_length

    def close(self) -> None:
        # Reset before the close: another thread may still read, and the number may be reused at once.
        closing, self._fd = self._fd, -1
        os.close(closing)


def _last_error(directory: Path) -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(directory))


class _SeenDataVersion(threading.local):
    """The last version seen by each thread."""

    version = -1


class SqliteListener:
    """Wait for commits of other connections: the directory is watched, and ``data_version`` confirms."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self._watch = FileWatch(connections.path.parent, self._changed)
        self._seen = _SeenDataVersion()

    def wait(self, timeout: float) -> bool:
        return self._watch.wait(timeout)

    def _changed(self) -> bool:
        """Check whether there was a commit since the last call of this thread."""
        version = self._connections.data_version()
        changed = version != self._seen.version
        self._seen.version = version
        return changed

    def close(self) -> None:
        self._watch.close()
