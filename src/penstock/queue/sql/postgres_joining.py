"""Adding inside somebody else's transaction: a psycopg connection, or SQLAlchemy's over one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock.errors import DuplicateId, InvalidRequest
from penstock.queue.sql.postgres_errors import ours
from penstock.queue.sql.postgres_rows import PostgresRows


@contextmanager
def joined(connection: Any, name: str, channel: str) -> Iterator[PostgresRows]:
    """Rows of the caller's transaction. It commits or rolls back as it likes; nothing is undone here."""
    rows = PostgresRows(driver_connection(connection))
    rows.joined = True
    try:
        yield rows
        rows.flush()
        if rows.news:
            # Told when, and only if, the caller commits.
            rows.execute("SELECT pg_notify(%(channel)s, '')", {"channel": channel})
    except psycopg.errors.UniqueViolation as error:
        raise DuplicateId(f"a job with that id exists already ({error.diag.message_detail})") from error
    except psycopg.Error as error:
        raise ours(error, name) or error from error


def driver_connection(given: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Told by what it can do, so that SQLAlchemy need not be installed."""
    if isinstance(given, psycopg.Connection):
        return given
    asked = getattr(given, "connection", None)
    if callable(asked) and hasattr(given, "in_transaction"):
        given = asked()
    if hasattr(given, "in_transaction") and not given.in_transaction():
        # Its commit would otherwise not know of what is written here.
        given.begin()
    driver = getattr(getattr(given, "connection", None), "driver_connection", None)
    if not isinstance(driver, psycopg.Connection):
        raise InvalidRequest(
            "connection= must be a psycopg.Connection to the queue's own database, or SQLAlchemy's over one"
        )
    return driver
