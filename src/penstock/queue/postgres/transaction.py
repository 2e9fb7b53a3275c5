"""One transaction on PostgreSQL, sent as a pipeline and repeated after a conflict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

import psycopg
from psycopg import pq

from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.database.postgres_errors import RETRYABLE_ERRORS, one_line, translate_error
from penstock.errors import StoreUnavailable
from penstock.queue.postgres.pause_rows import SQL, Cursor
from penstock.queue.postgres.values import texts

T = TypeVar("T")

ATTEMPTS = 10
WAKE_ATTEMPTS = 3
LONGEST_PAUSE_S = 0.2
_CONFLICTS = (*RETRYABLE_ERRORS, psycopg.errors.UniqueViolation, psycopg.errors.ForeignKeyViolation)


class PipelinedRows(Protocol):
    """Methods of rows for a transaction."""

    news: bool
    """True if the commit notifies waiting workers."""
    to_wake: set[str]

    def execute(self, statement: str, values: Mapping[str, object], /) -> Cursor: ...
    def flush(self) -> None: ...


R = TypeVar("R", bound=PipelinedRows)


def transact(
    connections: PostgresConnections, channel: str, make: Callable[[Connection], R], work: Callable[[R], T]
) -> T:
    """Run ``work`` in one transaction, with rows made by ``make``."""
    for attempt in range(ATTEMPTS):
        with connections.borrowed() as connection:
            transaction = _Transaction(connection, connections, channel)
            try:
                return transaction.run(make(connection), work)
            except _CONFLICTS as error:
                if attempt == ATTEMPTS - 1:
                    raise _gave_up(error, connections.name) from error
            except psycopg.Error as error:
                # The session ended while idle, so nothing of this transaction can have happened.
                stale = connection.broken and not transaction.committing and attempt == 0
                if not stale:
                    in_doubt = transaction.committing and connection.broken
                    raise refusal(error, connections, in_doubt=in_doubt) from error
        # With a pause: at once, both would meet again.
        time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.002 * 2**attempt)))
    raise AssertionError("the last attempt returns or raises")


class _Transaction:
    def __init__(self, connection: Connection, connections: PostgresConnections, channel: str) -> None:
        self._connection = connection
        self._connections = connections
        self._channel = channel
        self.committing = False

    def run(self, rows: R, work: Callable[[R], T]) -> T:
        commit: Cursor | None = None
        checked: tuple[Cursor, Cursor | None] | None = None
        try:
            with _pipeline(self._connection):
                rows.execute("BEGIN", {})
                if self._connections.pooled:
                    rows.execute(self._connections.session_settings, {})
                result = work(rows)
                rows.flush()
                if rows.news:
                    rows.execute("SELECT pg_notify(%(channel)s, '')", {"channel": self._channel})
                self.committing = True
                commit = rows.execute("COMMIT", {})
                checked = self._check_parked(rows) if rows.to_wake else None
            if checked is not None:
                self._pass_on(rows, *checked)
        except psycopg.Error:
            if commit is None or commit.statusmessage != "COMMIT":
                self._roll_back()
                if not self._connection.broken:
                    # Statements after the error never ran, but the driver may count one of them as prepared:
                    # every later transaction would fail on it.
                    self._connection.close()
                raise
            # The transaction is committed. A lock not passed on now is passed on by the next reconcile.
            for _ in range(WAKE_ATTEMPTS):
                with suppress(psycopg.Error):
                    self._wake_locked(rows, self._wake(rows))
                    break
        except BaseException:
            self._roll_back()
            raise
        return result

    def _check_parked(self, rows: PipelinedRows) -> tuple[Cursor, Cursor | None]:
        """Check for parked rows. Usually there are none, and the check costs a third of a wake."""
        check = rows.execute(SQL["any_parked"], {})
        return check, self._wake(rows) if self._connections.parked else None

    def _pass_on(self, rows: PipelinedRows, check: Cursor, wake: Cursor | None) -> None:
        ((self._connections.parked,),) = check.fetchall()
        if wake is None and self._connections.parked:
            wake = self._wake(rows)
        if wake is not None:
            self._wake_locked(rows, wake)

    def _wake(self, rows: PipelinedRows) -> Cursor:
        keys = texts(sorted(rows.to_wake))
        return rows.execute(SQL["wake"], {"keys": keys, "channel": self._channel})

    def _wake_locked(self, rows: PipelinedRows, wake: Cursor) -> None:
        """Wake rows locked by other transactions, each in a separate transaction."""
        for (key,) in wake.fetchall():
            rows.execute(SQL["wake_one"], {"key": key, "channel": self._channel})

    def _roll_back(self) -> None:
        if self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self._connection.execute(b"ROLLBACK")


def refusal(error: psycopg.Error, connections: PostgresConnections, *, in_doubt: bool) -> Exception:
    """Translate an error. ``in_doubt``: the result of the commit is unknown."""
    if in_doubt:
        return StoreUnavailable(
            f"{connections.name} went away before it answered a COMMIT ({one_line(error)}); "
            "it may have been done",
            remedy="Once the store is back, check whether it was done, or repeat it with the same key.",
        )
    return translate_error(error, connections.name)


@contextmanager
def _pipeline(connection: Connection) -> Iterator[None]:
    """Use the driver's pipeline without a log line for every raised error."""
    pipeline = connection.pipeline()
    pipeline.__enter__()
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            pipeline.__exit__(None, None, None)
        raise
    pipeline.__exit__(None, None, None)


def _gave_up(error: psycopg.Error, name: str) -> Exception:
    if isinstance(error, RETRYABLE_ERRORS):
        return translate_error(error, name)
    return StoreUnavailable(f"{name} stayed busy: {ATTEMPTS} attempts met another writer ({one_line(error)})")
