"""Runtime file of a server: address and process of the server that runs for a state directory.

The server holds a lock on the file, so a file left by a killed server is not taken for a running one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from penstock import clock
from penstock.config import Settings, portable_values
from penstock.errors import ServerNotRunning, ServerRunning
from penstock.state_directory import make_private, write_refusal

FILE = "server.json"
_OF_CLIENTS = ("server", "api_key", "api_key_file")
"""Settings of commands that use a server, which mean nothing to the server."""


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server: the URL for clients on this host, the process, and its start.

    ``settings``: see ``settings_digest``.
    """

    url: str
    pid: int
    started_at: datetime
    worker: bool
    settings: str = ""


def settings_digest(settings: Settings) -> str:
    """A digest of all settings with an effect on a server's answers."""
    values = portable_values(settings)
    given = sorted((name, repr(value)) for name, value in values.items() if name not in _OF_CLIENTS)
    return hashlib.sha256(repr(given).encode()).hexdigest()


class RuntimeFile:
    """The runtime file of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._held: int | None = None

    def take(self) -> None:
        """Take the lock; raise ``ServerRunning`` while another server has it."""
        try:
            make_private(self._path.parent)
            held = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_refusal(self._path, error) from None
        if not _taken(held):
            os.close(held)
            running = self.find()
            where = f" at {running.url} (process {running.pid})" if running else ""
            raise ServerRunning(f"a server of this state directory is running{where}")
        self._held = held

    def write(self, server: RunningServer) -> None:
        """Write the address, for ``find``. The lock is held."""
        assert self._held is not None
        try:
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, msgspec.json.encode(server) + b"\n", 0)
        except OSError as error:
            raise write_refusal(self._path, error) from None

    def release(self) -> None:
        """Empty the file and release the lock. The file stays: another server may wait for the lock."""
        if self._held is not None:
            os.ftruncate(self._held, 0)
            os.close(self._held)
            self._held = None

    def find(self) -> RunningServer | None:
        """The running server of this state directory on this host."""
        try:
            text = self._path.read_bytes()
            found = msgspec.json.decode(text, type=RunningServer) if text else None
        except (OSError, msgspec.DecodeError):
            return None
        return found if found is not None and self._locked() else None

    def is_stale(self) -> bool:
        """Tell whether the file has the address of a dead server."""
        try:
            return self._path.stat().st_size > 0 and not self._locked()
        except OSError:
            return False

    def _locked(self) -> bool:
        """Tell whether a server holds the lock."""
        with suppress(OSError):
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(file)
        return False

    def stop(self, timeout: float) -> tuple[RunningServer, bool]:
        """Send the running server a stop signal; tell whether it ended within ``timeout`` seconds.

        Raises ``ServerNotRunning`` without one.
        """
        server = self.find()
        if server is None:
            raise ServerNotRunning("no server of this state directory is running on this host")
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)
        until = clock.elapsed_s() + timeout
        while self._locked():
            if clock.elapsed_s() >= until:
                return server, False
            threading.Event().wait(0.05)
        return server, True


def _taken(file: int) -> bool:
    """Take the lock, with retries for a moment: ``find`` holds the lock while reading."""
    for _ in range(20):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            threading.Event().wait(0.01)
        else:
            return True
    return False
