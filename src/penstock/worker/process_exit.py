"""The end of a child process."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress

from penstock.worker.shared_state import SharedState


def end_process(slot: SharedState, code: int) -> None:
    """Exit without returning: that would wait for threads a handler left behind."""
    try:
        # From now on the supervisor does not wait long: a pipe nobody reads, or a lock nobody gives back,
        # would keep this process for ever.
        slot.say_leaving(time.monotonic())
        with suppress(BaseException):
            logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
    finally:
        os._exit(code)
