"""All rows of a PostgreSQL queue: its schema, a dump, and the restore of another store's rows."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.database import postgres_schema
from penstock.database.postgres_connections import PostgresConnections
from penstock.database.schema import Schema
from penstock.job import Job, JobQuery
from penstock.queue.engine import Engine, pages_of
from penstock.queue.postgres.rows import PostgresRows
from penstock.queue.postgres.values import decoded
from penstock.queue.schedule_rows import SqlSchedules
from penstock.queue.sql import filters


class PostgresStore(Engine[PostgresRows], SqlSchedules, ABC):
    """Methods of the engine about the store as a whole."""

    _connections: PostgresConnections
    _schema: Schema
    _channel: str

    @contextmanager
    def dump(self) -> Iterator[Iterator[list[Job]]]:
        with self._connections.own_snapshot() as connection:
            rows = PostgresRows(connection)

            def find(query: JobQuery) -> list[Job]:
                statement, values = filters.find(query, "postgres")
                found = rows.execute(statement.replace("?", "%s"), values)
                return [decoded(row) for row in found.fetchall()]

            yield pages_of(find)

    def begin_restore(self) -> None:
        with self._connections.session() as connection, connection.transaction():
            postgres_schema.begin_restore(connection, self._schema.tables(), self._schema)

    def end_restore(self) -> None:
        with self._connections.session() as connection:
            postgres_schema.end_restore(connection, self._schema)

    def restore_unfinished(self) -> bool:
        with self._connections.session() as connection:
            return postgres_schema.is_marked(connection, self._schema)

    def migrate(self) -> None:
        with self._connections.session() as connection:
            postgres_schema.create(connection, self._connections.schema)
            self._channel = postgres_schema.channel(connection)
            postgres_schema.migrate(connection, self._connections.name, self._schema)
