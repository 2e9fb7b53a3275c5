"""Ctrl-C for a server on standard input, whose thread waits in a read that no signal ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = 1 << 16


@contextmanager
def input_ends_at_interrupt() -> Iterator[None]:
    """Copy standard input through a pipe, and end it at Ctrl-C; the block then has to return.

    Raises KeyboardInterrupt after a block that returned so.
    """
    source = os.dup(0)
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)
    interrupted = threading.Event()

    def end_input() -> None:
        # The number stays in use, as the other thread may be writing to it.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, write, inheritable=False)
        os.close(nothing)

    def copy() -> None:
        try:
            while chunk := os.read(source, _CHUNK):
                while chunk:
                    chunk = chunk[os.write(write, chunk) :]
        except OSError:
            pass  # the input cannot be read, or the server reads no more: both end it
        end_input()

    def interrupt(*_: object) -> None:
        interrupted.set()
        end_input()

    former = signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=copy, daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if interrupted.is_set():
        raise KeyboardInterrupt
