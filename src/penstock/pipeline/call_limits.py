"""Limits for calls to an endpoint, shared by all processes on this machine: calls at once, calls a minute.

The state is in files of one directory. A call waits for its turn no longer than a moment, since the process
has other work. After that the call is refused, and its task comes again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from penstock import clock
from penstock.errors import TransientFailure
from penstock.named_tuple import NamedTuple
from penstock.state_directory import make_private

LONGEST_TURN_S = 1.0
_LOOK_AGAIN_S = 0.02
_MINUTE_S = 60.0


class CallLimitReached(TransientFailure):
    """This machine makes as many calls as the settings allow. The call is due after ``retry_after``."""


class CallLimits(NamedTuple):
    """Limits of one service. ``directory``: where the processes of this machine meet."""

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
                descriptor = self._open(f"call-{number}")
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
        descriptor = self._open("next-call")
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

    def _open(self, name: str) -> int:
        return os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _read_moment(descriptor: int) -> float:
    try:
        return float(os.pread(descriptor, 64, 0) or 0)
    except ValueError:
        return 0.0
