"""Wait for a store at the start of a process, with log messages."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from penstock import clock
from penstock.errors import StoreUnavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
REPEATED_EVERY_S = 30.0

T = TypeVar("T")
log = logging.getLogger("penstock.worker")


class _Stopped(BaseException):
    """A stop signal during the wait."""


def once_reachable(start: Callable[[], T]) -> T | None:
    """Call ``start`` until the store can be reached. Returns None after a stop signal."""
    pause, logged_at = FIRST_PAUSE_S, None
    try:
        with _stoppable():
            while True:
                try:
                    return start()
                except StoreUnavailable as error:
                    now = clock.elapsed_s()
                    if logged_at is None or now - logged_at >= REPEATED_EVERY_S:
                        log.warning("%s (%s); waiting for it", error.message, error.code)
                        logged_at = now
                threading.Event().wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
    except _Stopped:
        log.info("stopped by a signal before the store was reachable")
        return None


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> NoReturn:
        raise _Stopped

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
