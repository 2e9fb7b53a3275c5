"""Start of a process before its store: wait until the store can be reached, and say so."""

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
    """A signal asked to stop while the store was waited for."""


def once_reachable(start: Callable[[], T]) -> T | None:
    """Call ``start`` until the store answers. None: a signal asked to stop before that."""
    pause, told_at = FIRST_PAUSE_S, None
    try:
        with _stoppable():
            while True:
                try:
                    return start()
                except StoreUnavailable as error:
                    now = clock.elapsed_s()
                    if told_at is None or now - told_at >= REPEATED_EVERY_S:
                        log.warning("%s (%s); waiting for it", error.message, error.code)
                        told_at = now
                threading.Event().wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
    except _Stopped:
        log.info("asked to stop before the store was reachable")
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
