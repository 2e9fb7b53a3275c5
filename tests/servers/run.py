"""One test run: the directory shared by its processes, its ports, and the end of all that it started."""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PLACE = "TEST_RUN_OF_PENSTOCK"
"""In the environment of each process that a test starts; not a setting, as tests drop those of the caller."""
GRACE_S = 10.0

_guards: list[subprocess.Popen[bytes]] = []


def begin(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _begin()


def end(config: pytest.Config) -> None:
    """End what the run started. The workers of pytest-xdist have ended before."""
    if not hasattr(config, "workerinput") and PLACE in os.environ:
        _end()


@contextmanager
def whole_run() -> Iterator[Path]:
    """A run without pytest, with a directory: all that is started within ends with it."""
    _begin()
    try:
        yield place()
    finally:
        _end()


def _begin() -> None:
    os.environ[PLACE] = tempfile.mkdtemp(prefix="penstock-tests-")
    _guards.append(start_guard(place()))


def _end() -> None:
    del os.environ[PLACE]
    guard = _guards.pop()
    # Its input ends, as when this process dies.
    guard.communicate()


def let_outlive(process: subprocess.Popen[bytes]) -> None:
    """Keep a server that other processes of the run use after this one has ended. A guard ends it."""
    atexit.register(_let_go, process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.returncode = 0  # Without one, Python warns of a process that runs.


def place() -> Path:
    return Path(os.environ[PLACE])


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Lock: one process of this run at a time."""
    with (place() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_port(*, second: int = 0) -> int:
    """Choose a port for a server, reserved for this process among all test runs of the machine.

    Servers bind it later, and again after a kill: so it is below the ports of outgoing connections, and until
    this process ends no other test gets it. ``second``: distance of another port that the server binds.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000 - second)
        with suppress(OSError):
            for each in {port, port + second}:
                _reserve(each)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
            return port


def _reserve(port: int) -> None:
    """Bind a name that the system frees with the process. Only Linux has such names."""
    if sys.platform == "linux":
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0penstock-test-port-{port}")
        except OSError:
            name.close()
            raise
        # Its number only: an object that nobody closes is warned of.
        name.detach()


# A leader that is killed cannot stop what its run started: a process of its own does.


def start_guard(place: Path) -> subprocess.Popen[bytes]:
    """Start the guard of a run, which ends after this process: its input ends then."""
    environ = {name: value for name, value in os.environ.items() if name != PLACE}
    return subprocess.Popen(
        [sys.executable, "-I", __file__, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environ, start_new_session=True,
    )  # fmt: skip


def guard(place: str) -> None:
    """Wait until the leader is gone, then end what it left behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    _send(signal.SIGTERM, place)
    deadline = time.monotonic() + GRACE_S
    while _processes(place) and time.monotonic() < deadline:
        time.sleep(0.1)
    while _processes(place):
        _send(signal.SIGKILL, place)
        time.sleep(0.1)
    shutil.rmtree(place, ignore_errors=True)


def _send(number: int, place: str) -> None:
    for pid in _processes(place):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _processes(place: str) -> list[int]:
    """Processes that live and were started with the mark of a run."""
    mark = f"{PLACE}={place}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        # Of another user, or gone by now. A process that ended has no environment.
        with suppress(OSError):
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


if __name__ == "__main__":
    guard(sys.argv[1])
