"""Add jobs inside a transaction of the caller: a psycopg connection, or SQLAlchemy's over one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.database.postgres_errors import translate_error
from penstock.errors import DuplicateId, InvalidRequest
from penstock.queue.postgres.rows import PostgresRows

_SEARCH = b"SELECT set_config('search_path', %s, %s)"


@contextmanager
def joined(connection: Any, connections: PostgresConnections, channel: str) -> Iterator[PostgresRows]:
    """Yield rows in the caller's transaction. The caller commits or rolls back."""
    driver = driver_connection(connection)
    rows = PostgresRows(driver)
    rows.joined = True
    try:
        with _searched(driver, connections.schema):
            yield rows
            rows.flush()
            if rows.news:
                # Sent when, and only if, the caller commits.
                rows.execute("SELECT pg_notify(%(channel)s, '')", {"channel": channel})
    except psycopg.errors.UniqueViolation as error:
        raise DuplicateId(f"a job with that id exists already ({error.diag.message_detail})") from error
    except psycopg.Error as error:
        raise translate_error(error, connections.name) from error


@contextmanager
def _searched(connection: Connection, schema: str | None) -> Iterator[None]:
    """Set the search path to the queue's schema, and restore the caller's search path afterwards."""
    if schema is None:
        yield
        return
    in_transaction = connection.info.transaction_status is pq.TransactionStatus.INTRANS
    local = in_transaction or not connection.autocommit
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(b"SELECT current_setting('search_path')").fetchone()
        before = found[0] if found else ""
        cursor.execute(_SEARCH, (schema, local))
        try:
            yield
        finally:
            # After an error the server rolls back the setting, and accepts no statement before.
            if connection.info.transaction_status is not pq.TransactionStatus.INERROR:
                cursor.execute(_SEARCH, (before, local))


def driver_connection(given: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Return the psycopg connection. Detects SQLAlchemy by attributes, so no import is needed."""
    if isinstance(given, psycopg.Connection):
        return given
    method = getattr(given, "connection", None)
    if callable(method) and hasattr(given, "in_transaction"):
        given = method()
    if hasattr(given, "in_transaction") and not given.in_transaction():
        # Without a begin, its commit would not commit these rows.
        given.begin()
    driver = getattr(getattr(given, "connection", None), "driver_connection", None)
    if not isinstance(driver, psycopg.Connection):
        raise InvalidRequest(
            "connection= must be a psycopg.Connection to the queue's own database, or SQLAlchemy's over one"
        )
    return driver
