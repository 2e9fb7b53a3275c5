"""pgvector: a table of points per collection, in the PostgreSQL of the catalog or another one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString

import numpy as np

from penstock.errors import ServiceUnavailable
from penstock.store_url import StoreUrl
from penstock.vector_stores.client_store import other_dimension, store_failure, unavailable
from penstock.vector_stores.protocol import (
    EVERY_POINT,
    SETTING,
    NearPoint,
    Point,
    PointFilter,
    VectorStoreUrl,
    dimension_of,
)

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_MOST_INDEXED = 2_000
"""Largest dimension that pgvector can index; larger vectors are compared one by one."""
_MOST_SCANNED = 200_000
"""Points that the index looks at for a search with a filter, until it has found enough."""
FETCHED = 10_000


class PgvectorStore:
    """Points in tables of PostgreSQL, with an HNSW index over inner products."""

    def __init__(self, url: VectorStoreUrl, database: str, timeout_s: float) -> None:
        """``database``: URL of the PostgreSQL server, possibly that of the catalog."""
        self._url = url
        self._database, self._schema = StoreUrl(database).split_schema()
        self._timeout_s = timeout_s
        self._connected: psycopg.Connection[tuple[Any, ...]] | None = None
        self._known: dict[str, int] = {}

    @property
    def address(self) -> str:
        return self._url.masked

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        import psycopg

        try:
            connection = self._connected = self._connected or self._connect()
            with connection.transaction():
                yield connection
        except ServiceUnavailable:
            raise
        except psycopg.Error as error:
            # A table may have been dropped; the next call makes it again.
            self._known.clear()
            if self._connected is not None and self._connected.closed:
                self._connected = None
            raise self._failure(error) from None

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg
        from psycopg import sql

        wait = max(1, round(self._timeout_s))
        connection = psycopg.connect(self._database, connect_timeout=wait, autocommit=True)
        try:
            limit = sql.Literal(f"{round(1000 * self._timeout_s)}ms")
            connection.execute(sql.SQL("SET statement_timeout = {}").format(limit))
            if self._schema is not None:
                name = sql.Identifier(self._schema)
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                connection.execute(sql.SQL("SET search_path = {}, public").format(name))
            _find_extension(connection)
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _failure(self, error: psycopg.Error) -> ServiceUnavailable:
        from psycopg import errors

        if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification) or (
            "password authentication failed" in str(error)
        ):
            remedy = f"Correct the user and password in {SETTING}."
            return unavailable(f"the vector store {self.address} refuses the password", remedy)
        if isinstance(error, errors.QueryCanceled):
            return unavailable(f"the vector store {self.address} did not answer in time")
        secret = StoreUrl(self._database)
        failure = store_failure(self._url, error)
        failure.message = secret.mask_in(failure.message)
        return failure

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        if not points:
            return
        dimension = dimension_of(points)
        with self._transaction() as connection:
            self._make(connection, collection, dimension)
            rows = sorted({point.content_id: point for point in points}.values())
            with connection.cursor() as cursor:
                cursor.executemany(
                    _named(
                        "INSERT INTO {} (content_id, tenant_id, source_key, vector) VALUES (%s, %s, %s, %s)"
                        " ON CONFLICT (content_id) DO UPDATE SET tenant_id = excluded.tenant_id,"
                        " source_key = excluded.source_key, vector = excluded.vector",
                        collection,
                    ),
                    [(*point[:3], _text(np.frombuffer(point.vector, "<f4"))) for point in rows],
                )
        self._known[collection] = dimension

    def _make(self, connection: psycopg.Connection[tuple[Any, ...]], collection: str, dimension: int) -> None:
        if self._known.get(collection) == dimension:
            return
        there = self._dimension(connection, collection)
        if there is None:
            self._create(connection, collection, dimension)
            there = self._dimension(connection, collection)
        if there != dimension:
            raise other_dimension(self._url, collection, there, dimension)

    def _create(
        self, connection: psycopg.Connection[tuple[Any, ...]], collection: str, dimension: int
    ) -> None:
        from psycopg import errors, sql

        # One process makes the table, the others wait; IF NOT EXISTS alone may fail in a race.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('penstock vector store'))")
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        except (errors.UndefinedFile, errors.FeatureNotSupported, errors.InsufficientPrivilege) as error:
            remedy = "Install pgvector on the server, then run `CREATE EXTENSION vector` as its superuser."
            raise unavailable(
                f"the vector store {self.address} has no extension pgvector: {error.diag.message_primary}",
                remedy,
            ) from None
        _find_extension(connection)
        connection.execute(
            _named(
                "CREATE TABLE IF NOT EXISTS {} (content_id bigint PRIMARY KEY, tenant_id text NOT NULL,"
                " source_key bigint NOT NULL, vector vector NOT NULL)",
                collection,
            )
        )
        # A type modifier cannot be a parameter.
        resized = sql.SQL("ALTER TABLE {} ALTER COLUMN vector TYPE vector({})")
        connection.execute(resized.format(sql.Identifier(collection), sql.Literal(dimension)))
        connection.execute(
            _named(
                "CREATE INDEX IF NOT EXISTS {} ON {} (tenant_id, source_key)", f"{collection}_o", collection
            )
        )
        if dimension <= _MOST_INDEXED:
            connection.execute(
                _named(
                    "CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (vector vector_ip_ops)",
                    f"{collection}_v",
                    collection,
                )
            )

    def _dimension(self, connection: psycopg.Connection[tuple[Any, ...]], collection: str) -> int | None:
        """The dimension of a table's vectors; 0 for another table, None without a table."""
        found = connection.execute(
            "SELECT coalesce((SELECT a.atttypmod FROM pg_attribute a WHERE a.attrelid = c.oid"
            " AND a.attname = 'vector' AND NOT a.attisdropped), 0)"
            " FROM pg_class c WHERE c.oid = to_regclass(%s)",
            (f'"{collection}"',),
        ).fetchone()
        if found is None:
            self._known.pop(collection, None)
            return None
        return int(found[0])

    def search(
        self, collection: str, query: Sequence[float], *, limit: int, where: PointFilter
    ) -> list[NearPoint] | None:
        with self._transaction() as connection:
            if self._dimension(connection, collection) is None:
                return None
            # Candidates of the index are compared with the filter until there are enough of them.
            connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            connection.execute(
                "SELECT set_config('hnsw.ef_search', %s, true)", (str(min(max(limit, 100), 1000)),)
            )
            connection.execute("SELECT set_config('hnsw.max_scan_tuples', %s, true)", (str(_MOST_SCANNED),))
            condition, values = _condition(where)
            wanted = _text(np.asarray(query, np.float32))
            found = connection.execute(
                _named(
                    "SELECT content_id, source_key, -(vector <#> %s) FROM {} WHERE "
                    + condition
                    + " ORDER BY vector <#> %s LIMIT %s",
                    collection,
                ),
                (wanted, *values, wanted, limit),
            )
            return [NearPoint(*row) for row in found]

    def delete(self, collection: str, content_ids: Sequence[int]) -> None:
        self._delete(collection, "content_id = ANY(%s)", (list(content_ids),))

    def delete_where(self, collection: str, where: PointFilter) -> None:
        self._delete(collection, *_condition(where))

    def _delete(self, collection: str, condition: LiteralString, values: tuple[Any, ...]) -> None:
        with self._transaction() as connection:
            if self._dimension(connection, collection) is not None:
                connection.execute(_named("DELETE FROM {} WHERE " + condition, collection), values)

    def count(self, collection: str, where: PointFilter = EVERY_POINT) -> int:
        with self._transaction() as connection:
            if self._dimension(connection, collection) is None:
                return 0
            condition, values = _condition(where)
            counted = connection.execute(
                _named("SELECT count(*) FROM {} WHERE " + condition, collection), values
            ).fetchone()
            return int(counted[0]) if counted else 0

    def ids(self, collection: str) -> set[int]:
        with self._transaction() as connection:
            if self._dimension(connection, collection) is None:
                return set()
            with connection.cursor(name="ids") as cursor:
                cursor.itersize = FETCHED
                cursor.execute(_named("SELECT content_id FROM {}", collection))
                return {number for (number,) in cursor}

    def present(self, collection: str, content_ids: Collection[int]) -> set[int]:
        with self._transaction() as connection:
            if self._dimension(connection, collection) is None:
                return set()
            found = connection.execute(
                _named("SELECT content_id FROM {} WHERE content_id = ANY(%s)", collection),
                (list(content_ids),),
            )
            return {number for (number,) in found}

    def collections(self, prefix: str) -> list[str]:
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT c.relname FROM pg_class c WHERE c.relkind = 'r' AND starts_with(c.relname, %s)"
                " AND pg_table_is_visible(c.oid)",
                (prefix,),
            )
            return sorted(name for (name,) in found)

    def drop(self, collection: str) -> None:
        with self._transaction() as connection:
            connection.execute(_named("DROP TABLE IF EXISTS {}", collection))
        self._known.pop(collection, None)

    def check(self) -> str:
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone()
            if found is None:
                raise unavailable(
                    f"the vector store {self.address} has no extension pgvector",
                    "Install pgvector on the server.",
                )
            return f"pgvector {found[0]}"

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None


def _find_extension(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Make the extension's type and operators visible, in any schema."""
    connection.execute(
        "SELECT set_config('search_path',"
        " current_setting('search_path') || ', ' || quote_ident(n.nspname), false)"
        " FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    )


def _named(statement: LiteralString, *names: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(statement).format(*map(sql.Identifier, names))


def _text(vector: np.ndarray[Any, Any]) -> str:
    """A vector as pgvector reads it; nine digits keep every float32."""
    return "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"


def _condition(where: PointFilter) -> tuple[LiteralString, tuple[Any, ...]]:
    condition: LiteralString = "true"
    values: tuple[Any, ...] = ()
    if where.tenant_id is not None:
        condition += " AND tenant_id = %s"
        values = (*values, where.tenant_id)
    if where.sources is not None:
        condition += " AND source_key = ANY(%s)"
        values = (*values, list(where.sources))
    return condition, values
