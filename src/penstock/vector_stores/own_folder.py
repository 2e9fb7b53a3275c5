"""Folders of embedded engines: one process at a time, and owned by the user.

The engines keep a folder for one process alone. Workers and searches are many processes, so each call opens
the engine, works, and closes it, under a lock that the others wait for. That is slow, and meant for trying a
store out.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock import clock
from penstock.vector_stores.address import SETTING
from penstock.vector_stores.failures import unavailable

WAIT_S = 20.0
POLL_S = 0.02
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def locked_folder(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock of a folder, made if need be; raises ``ServiceUnavailable`` if others hold it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_foreign(folder)
        lock = (folder / ".penstock.lock").open("a")
    except OSError as error:
        raise unavailable(f"cannot use the folder {folder}: {error.strerror}") from None
    with lock:
        _acquire(lock, folder, clock.elapsed_s() + wait_s)
        yield


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that others may write to: an engine may execute what it reads."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE:
        raise unavailable(
            f"the folder {folder} of the vector store can be written by others than this user",
            f"Make it the user's own (chmod 700), or set {SETTING} to another folder.",
        )


def _acquire(lock: IO[str], folder: Path, deadline: float) -> None:
    pause = threading.Event()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.elapsed_s() > deadline:
                raise unavailable(f"other processes use the vector store in {folder}") from None
            pause.wait(POLL_S)
        else:
            return
