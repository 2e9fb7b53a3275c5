"""Stores used through an official client: a server, or an embedded engine that works in a folder.

Embedded engines keep a folder for one process alone. Workers and searches are many processes, so each call
opens the engine, works, and closes it, under a lock that the others wait for. That is slow, and meant for
trying a store out.
"""

from __future__ import annotations

import fcntl
import logging
import os
import ssl
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
from penstock.vector_stores.protocol import SERVICE, SETTING, VectorStoreUrl

_MAX_CAUSE = 300
_TIMEOUTS = ("Timeout",)


def store_failure(
    url: VectorStoreUrl, error: BaseException, *, status: int | None = None
) -> ServiceUnavailable:
    """Translate an error of a client. ``status``: that of an HTTP response, if there was one."""
    if isinstance(error, ServiceUnavailable):
        return error
    shown, causes = url.masked, list(_causes(error))
    if status is None:
        answers = (getattr(getattr(cause, "response", None), "status_code", None) for cause in causes)
        status = next((code for code in answers if isinstance(code, int)), None)
    if status in (401, 403):
        return unavailable(
            f"the vector store {shown} refuses the key ({status})", f"Correct the key in {SETTING}."
        )
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls_failure(shown, tls)
    if any(word in type(cause).__name__ for cause in causes for word in _TIMEOUTS):
        return unavailable(f"the vector store {shown} did not answer in time")
    text = url.mask_in(" ".join(str(causes[-1]).split()))[:_MAX_CAUSE] or type(error).__name__
    if status is not None:
        return unavailable(f"the vector store {shown} answered {status}: {text}")
    return unavailable(f"cannot use the vector store {shown}: {text}")


def other_dimension(url: VectorStoreUrl, collection: str, there: object, wanted: int) -> ServiceUnavailable:
    """Make the error for a collection that exists for vectors of another length."""
    return unavailable(
        f"the collection {collection} in {url.masked} holds vectors of {there} numbers, not {wanted}",
        f"Delete that collection, or set {SETTING} to another store.",
    )


def unavailable(message: str, remedy: str | None = None) -> ServiceUnavailable:
    """Make the error of a store that cannot be used now: its tasks wait and spend no retry."""
    return ServiceUnavailable(SERVICE, message, remedy=remedy)


def _tls_failure(shown: str, error: ssl.SSLError) -> ServiceUnavailable:
    reason = getattr(error, "verify_message", "") or str(error.reason or error).replace("_", " ").lower()
    remedy = "Check the certificate; an authority of your own is trusted by SSL_CERT_FILE."
    if not isinstance(error, ssl.SSLCertVerificationError):
        remedy = f"Check {SETTING}: the other side may not speak TLS."
    return unavailable(f"cannot connect to the vector store {shown}: TLS error: {reason}", remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it; clients keep the first one in several places."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        source = getattr(following, "source", None)
        following = (
            source if isinstance(source, BaseException) else following.__cause__ or following.__context__
        )


_WAIT_S = 20.0
_POLL_S = 0.02
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
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
def locked_folder(folder: Path, wait_s: float = _WAIT_S) -> Iterator[None]:
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
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
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
            pause.wait(_POLL_S)
        else:
            return
