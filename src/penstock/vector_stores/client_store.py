"""Stores used through an official client: a server, or an embedded engine that works in a folder.

Embedded engines keep a folder for one process alone. Workers and searches are many processes, so each call
opens the engine, works, and closes it, under a lock that the others wait for. That is slow, and meant for
trying a store out.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Generic, TypeVar

from penstock import clock
from penstock.errors import ServiceUnavailable
from penstock.state_directory import make_private, private_opener
from penstock.vector_stores.address import SETTING, VectorStoreUrl
from penstock.vector_stores.failures import store_failure, unavailable

WAIT_S = 20.0
POLL_S = 0.02
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
TENANT, SOURCE = "tenant", "source"
"""Names of the fields that a point carries for filters."""

C = TypeVar("C")


class ClientStore(ABC, Generic[C]):
    """A store behind a client ``C``. The client of a server is made at the first call, and kept."""

    def __init__(self, url: VectorStoreUrl, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._connected: C | None = None
        if not url.is_local:
            url.server()

    @property
    def address(self) -> str:
        return self._url.masked

    @abstractmethod
    def _open_folder(self, folder: str) -> C:
        """Open the embedded engine."""

    @abstractmethod
    def _connect(self) -> C:
        """Make a client of the server."""

    @abstractmethod
    def _close(self, client: C) -> None: ...

    @abstractmethod
    def _status(self, error: Exception) -> int | None:
        """The status of the HTTP response behind a client's error, if any."""

    @contextmanager
    def _client(self) -> Iterator[C]:
        """The client, for one call. Its errors become ``ServiceUnavailable``."""
        # One line for every request otherwise.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        try:
            with self._opened() as client:
                yield client
        except ServiceUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - clients have errors of many kinds
            raise store_failure(self._url, error, status=self._status(error)) from None

    @contextmanager
    def _opened(self) -> Iterator[C]:
        if not self._url.is_local:
            self._connected = self._connected or self._connect()
            yield self._connected
            return
        with locked_folder(self._url.folder):
            client = self._open_folder(str(self._url.folder))
            try:
                yield client
            finally:
                self._close(client)

    def close(self) -> None:
        if self._connected is not None:
            self._close(self._connected)
            self._connected = None


@contextmanager
def locked_folder(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock of a folder, created if missing; raises ``ServiceUnavailable`` if locked by others."""
    try:
        make_private(folder)
        _refuse_foreign(folder)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        lock = os.fdopen(private_opener(str(folder / ".penstock.lock"), flags), "a")
    except OSError as error:
        raise unavailable(f"cannot use the folder {folder}: {error.strerror}") from None
    with lock:
        _acquire(lock, folder, clock.elapsed_s() + wait_s)
        yield


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder writable by others: an engine may execute code in the files."""
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
