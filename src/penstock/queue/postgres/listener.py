"""Waiting for changes of a PostgreSQL queue: LISTEN on a separate connection, else polling."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import sql

from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.database.postgres_errors import translate_error
from penstock.queue import fork_hooks
from penstock.queue.wait import SharedWait

POLL_S = 0.1
"""Interval of polls behind a pooler, where LISTEN does not work."""


class _SeenEvents(threading.local):
    """Event count at the end of a thread's last wait; the first wait returns at once."""

    events = -1


class PostgresListener:
    """Notifications for all threads of this process."""

    def __init__(
        self, connections: PostgresConnections, channel: Callable[[], str], any_claimable: Callable[[], bool]
    ) -> None:
        self._connections = connections
        self._channel = channel
        self._any_claimable = any_claimable
        self._connection: Connection | None = None
        self.after_fork()
        fork_hooks.register(self)

    def wait(self, timeout: float) -> bool:
        if self._connections.pooled:
            return self._poll(timeout)
        self._listen()
        notified = self._shared.wait(self._seen.events, timeout, self._watch)
        self._seen.events = self._shared.events
        return notified

    def _listen(self) -> None:
        with self._connecting:
            if self._connection is None:
                self._connection = self._connect()
                # Earlier notifications are unknown, so this counts as an event.
                self._shared.add_event()

    def _connect(self) -> Connection:
        statement = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel()))
        connection = self._connections.connect()
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            connection.close()
            raise translate_error(error, self._connections.name) from error
        return connection

    def _watch(self, timeout: float) -> bool:
        connection = self._connection
        try:
            return connection is None or self._read_notifications(connection, timeout)
        except psycopg.Error:
            # The session ended, and its notifications are lost: wake the waiting threads.
            self._forget()
            return True

    def _read_notifications(self, connection: Connection, left: float) -> bool:
        """Read notifications from the socket: the driver's generator would poll while waiting."""
        connected, deadline = connection.pgconn, time.monotonic() + left
        poll = select.poll()
        poll.register(connected.socket, select.POLLIN)
        while True:
            connected.consume_input()
            notified = False
            while connected.notifies() is not None:
                notified = True
            left = deadline - time.monotonic()
            if notified or left <= 0:
                return notified
            poll.poll(left * 1000)

    def _poll(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            if self._any_claimable():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, POLL_S))

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        self._forget()

    def after_fork(self) -> None:
        # Not closed: the session belongs to the parent.
        self._connection = None
        self._connecting = threading.Lock()
        self._shared = SharedWait()
        self._seen = _SeenEvents()
