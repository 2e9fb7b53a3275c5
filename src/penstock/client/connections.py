"""Connections to a server, kept for the next call, and the check of its certificate."""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import TYPE_CHECKING

from penstock import clock
from penstock.client.exchange import IDLE_S, Address, Link
from penstock.errors import InvalidSetting

if TYPE_CHECKING:
    import ssl

RECEIVED = 64 * 1024
"""Bytes received at once."""


class Connections:
    """Connections to one server, kept for the next call. All threads of a process may share them."""

    def __init__(self, address: Address, certificates: str | os.PathLike[str] | None) -> None:
        self._address = address
        self._tls = tls_context(address, certificates)
        self._lock = threading.Lock()
        self._idle: list[Link] = []
        self._process = os.getpid()

    def take(self, timeout_s: float, *, fresh: bool) -> Link:
        """An idle connection, or a new one."""
        while not fresh and (link := self._popped()) is not None:
            if clock.elapsed_s() - link.idle_since < IDLE_S and not _closed(link.transport):
                link.reused = True
                return link
            link.transport.close()
        return Link(self._connected(timeout_s))

    def _popped(self) -> Link | None:
        with self._lock:
            if self._process != os.getpid():
                # Forked: the parent uses the connections.
                self._idle, self._process = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _connected(self, timeout_s: float) -> socket.socket:
        made = socket.create_connection((self._address.host, self._address.port), timeout_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return self._tls.wrap_socket(made, server_hostname=self._address.host)
        except BaseException:
            made.close()
            raise
        return made

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next call."""
        link.idle_since = clock.elapsed_s()
        with self._lock:
            self._idle.append(link)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.transport.close()


def tls_context(address: Address, certificates: str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    """The context for checking the server's certificate; None without TLS."""
    if not address.secure:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise InvalidSetting(f"the certificates {os.fspath(certificates or '')}: {error}") from None


def _closed(connection: socket.socket) -> bool:
    """Tell whether the server has closed an idle connection; it never speaks first."""
    poll = select.poll()  # not select.select: that refuses descriptors above 1,023
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
