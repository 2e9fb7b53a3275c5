"""PostgreSQL for queue and catalog: a pool of connections, the server's clock, errors, and migration.

Not psycopg_pool, which opens connections in its own threads: a wrong password shows only as a timeout, and a
forked child inherits a pool without its threads.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg import pq, sql
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict

from penstock import clock
from penstock.database import schema
from penstock.database.schema import RESTORING, FairSemaphore, Schema
from penstock.errors import (
    DiskFull,
    InvalidSetting,
    InvalidText,
    PenstockError,
    PoolerNotSet,
    SchemaMismatch,
    StatementRefused,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.queue.sql.statements import JOB_COLUMNS, migrations
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

_URL = "its URL (PENSTOCK_URL; for a separate catalog PENSTOCK_CATALOG_URL)"
_CHECK_LOGIN = f"Check the user, the password and the database in {_URL}, and the server's pg_hba.conf."
_GRANT = f"Grant the user of {_URL} the right to create and change tables in its schema."
_PRIMARY = f"Point {_URL} at the primary server; a replica can only be read."
_CREATE = f"Create the database (`createdb NAME`), or name another in {_URL}."
_OWN_SCHEMA = f"Give Penstock a separate schema: add ?schema=NAME to {_URL}; it is created."
_RESTORE = f"Restore the missing objects from a backup, or start in a new schema: ?schema=NAME in {_URL}."
_CONNECTIONS = (
    "Raise max_connections of the server, lower PENSTOCK_POSTGRES_POOL_SIZE, or put a pooler in between."
)
_TIMEOUT = "See what the server waits for in pg_stat_activity, or raise PENSTOCK_POSTGRES_TIMEOUT_S."
_SHORTEN = "Shorten it: a path, with its tenant and collection, may have about 2,600 bytes."
_VALUE = "The server's log has the statement; look at the values of the request."
_SPACE = "Free some space on the database server and try again."
_LOG = "Look into the server's log for the reason."
_REPAIR = "Look into the server's log; REINDEX repairs an index, a backup of the server a table."
_POOLED = "sees sessions that a pooler shares"

_BY_STATE: dict[str, tuple[type[PenstockError], str, str | None]] = {
    "28P01": (StoreDenied, "refuses the password", _CHECK_LOGIN),
    "28000": (StoreDenied, "refuses the user", _CHECK_LOGIN),
    "3D000": (StoreUnavailable, "has no such database", _CREATE),
    "42501": (StoreDenied, "does not let this user do that", _GRANT),
    "25006": (StoreReadOnly, "can only be read", _PRIMARY),
    "25P03": (StoreUnavailable, "ended a session that was idle in its transaction", None),
    "25P04": (StoreUnavailable, "ended a transaction that took longer than its transaction_timeout", None),
    "26000": (PoolerNotSet, _POOLED, None),
    "42P05": (PoolerNotSet, _POOLED, None),
    "53100": (DiskFull, "has no space left", _SPACE),
    "53200": (StoreUnavailable, "is out of memory", None),
    "53300": (StoreUnavailable, "has no connection left", _CONNECTIONS),
    "57014": (StoreUnavailable, "took longer than the timeout", _TIMEOUT),
    "55P03": (StoreUnavailable, "stayed busy for longer than the timeout", _TIMEOUT),
    "40P01": (StoreUnavailable, "stayed busy: every attempt met another writer", None),
    "40001": (StoreUnavailable, "stayed busy: every attempt met another writer", None),
    "XX001": (StoreUnavailable, "reports damaged data", _REPAIR),
    "XX002": (StoreUnavailable, "reports a damaged index", _REPAIR),
    "42P01": (SchemaMismatch, "lacks a table of this version's schema", _RESTORE),
    "42703": (SchemaMismatch, "lacks a column of this version's schema", _RESTORE),
    "42704": (SchemaMismatch, "lacks a type or index of this version's schema", _RESTORE),
    "42883": (SchemaMismatch, "lacks a function of this version's schema", _RESTORE),
    "3F000": (SchemaMismatch, "has no schema to work in", "Create the schema named in search_path."),
    "42P07": (SchemaMismatch, "already has an object of this name that is not Penstock's", _OWN_SCHEMA),
    "42710": (SchemaMismatch, "already has an object of this name that is not Penstock's", _OWN_SCHEMA),
    "42723": (SchemaMismatch, "already has a function of this name that is not Penstock's", _OWN_SCHEMA),
    "54000": (InvalidText, "cannot keep a text this long as a name or path", _SHORTEN),
    "22001": (InvalidText, "cannot keep a text this long", _SHORTEN),
    "22021": (InvalidText, "cannot keep a text of the request", None),
    "22P05": (InvalidText, "cannot keep a text of the request", None),
}

_BY_CLASS: dict[str, tuple[type[PenstockError], str, str | None]] = {
    "08": (StoreUnavailable, "cannot be reached", None),
    "22": (InvalidText, "refuses a value", _VALUE),
    # Such as a transaction that failed, or a session that somebody ended.
    "25": (StoreUnavailable, "ended the transaction", None),
    "28": (StoreDenied, "refuses the user", _CHECK_LOGIN),
    "40": (StoreUnavailable, "rolled the transaction back", None),
    "53": (StoreUnavailable, "lacks resources", _LOG),
    "55": (StoreUnavailable, "cannot do that now", _LOG),
    "57": (StoreUnavailable, "cannot be reached", None),
    "58": (StoreUnavailable, "met an error of its system", _LOG),
    "72": (StoreUnavailable, "no longer has the snapshot", None),
    "F0": (StoreUnavailable, "cannot read its configuration", _LOG),
    "XX": (StoreUnavailable, "met an internal error", _LOG),
}
"""By the class of the SQLSTATE, its first two characters. In any other class the statement is at fault."""

RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure)
"""Conflicts of two transactions: the server rolled this one back, and a retry works."""


def translate_error(error: psycopg.Error, name: str) -> PenstockError:
    """Translate an error of the driver, of whatever class, into one line with the store and a remedy, without
    secrets: no loop of Penstock ends with the driver's own."""
    state = error.sqlstate or _state_from_text(error) or ""
    known = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or _by_type(error, state)
    kind, what, remedy = known
    return kind(f"{name} {what} ({one_line(error)})", remedy=remedy)


def _by_type(error: psycopg.Error, state: str) -> tuple[type[PenstockError], str, str | None]:
    """Classify an error without a state, which the driver found itself, or with one that says little."""
    if "cached plan must not change" in str(error):
        return StoreUnavailable, "had its tables changed under a prepared statement", None
    if state:
        return StatementRefused, f"refused a statement with SQLSTATE {state}", None
    if isinstance(error, psycopg.DataError):
        return InvalidText, "cannot keep a text of the request", None
    if isinstance(error, psycopg.ProgrammingError | psycopg.IntegrityError | psycopg.NotSupportedError):
        return StatementRefused, "refused a statement", None
    return StoreUnavailable, "cannot be reached", None


_STATES_BY_TEXT = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    # A pooler drops settings of sessions, or refuses a connection that asks for some.
    "unsupported startup parameter": "42P05",
    "no pg_hba.conf entry": "28000",
    "not permitted to log in": "28000",
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "too many connections": "53300",
}


def _state_from_text(error: psycopg.Error) -> str | None:
    """Guess the state from the text: libpq has no code for a refused login."""
    text = str(error)
    if 'database "' in text and "does not exist" in text:
        return "3D000"
    if 'role "' in text and "does not exist" in text:
        return "28000"
    return next((state for words, state in _STATES_BY_TEXT.items() if words in text), None)


_CONNECTION_PREFIX = re.compile(
    r"^connection (failed|is bad): |connection to server (at|on) .*? failed: |FATAL: +"
    r"| Is the server running.*\?"
)
"""Repeated prefixes of libpq: the server, and that the connection failed."""


def one_line(error: BaseException) -> str:
    return _CONNECTION_PREFIX.sub("", " ".join(str(error).split()))[:300]


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 10
_PLANS = {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
"""Every statement has its index for all values, so one generic plan is enough. A plan made while the table
was small, or had no statistics, must not scan the table when it has grown."""
_DIRECT = "penstock.direct"
"""A setting of sessions without a pooler. A pooler that drops ``options`` drops it, too."""
_IS_DIRECT = f"SELECT current_setting('{_DIRECT}', true)".encode()
_BINARY_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class _UtcLoader(Loader):
    """Loads binary times as UTC: the time zone of a session behind a pooler is unknown."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> datetime:
        return _BINARY_EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))


class PostgresConnections:
    """A pool of connections to one database and schema."""

    def __init__(
        self,
        url: str,
        *,
        size: int,
        pooled: bool,
        timeout_s: float,
        plans: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``plans``: more settings of sessions, such as ``enable_hashjoin``: ``off``."""
        address, self.schema = StoreUrl(url).split_schema()
        self._settings = {"statement_timeout": str(int(timeout_s * 1000)), **_PLANS, **plans}
        self.name = StoreUrl(address).masked.partition("?")[0]
        if self.schema is not None:
            self._settings["search_path"] = self.schema
            self.name += f" (schema {self.schema})"
        self.pooled = pooled
        self.timeout_s = timeout_s
        self.parked = False
        """True if the last check found rows parked for a lock: a guess for the next."""
        self.size = size
        self._parameters = self._read(address)
        self._reset()
        schema.register(self)

    def _read(self, url: str) -> dict[str, Any]:
        try:
            parameters = conninfo_to_dict(url)
        except UnicodeDecodeError:
            raise self._not_a_url("a percent-encoded value is not UTF-8") from None
        except psycopg.ProgrammingError as error:
            # The driver may quote the URL with the password.
            raise self._not_a_url(StoreUrl(url).mask_in(one_line(error))) from None
        authority, _, rest = StoreUrl(url.partition("?")[0]).rest.partition("/")
        if "@" in str(parameters.get("host") or "") or ("@" in rest and "@" not in authority):
            raise self._not_a_url("it is not clear where the password ends")
        for port in str(parameters.get("port") or "0").split(","):
            if not port.isdecimal():
                raise self._not_a_url("the text after the host's colon is not a port")
        parameters.setdefault("connect_timeout", _CONNECT_TIMEOUT_S)
        parameters.setdefault("application_name", "penstock")
        if not self.pooled:
            # A pooler refuses such options; there every transaction sets them.
            own = [f"-c{name}={value}" for name, value in ({_DIRECT: "on"} | self._settings).items()]
            # The last value counts, so options of the user come later; but the schema is set only here.
            after = own.pop() if self.schema is not None else ""
            given = str(parameters.get("options") or "")
            parameters["options"] = " ".join(filter(None, [*own, given, after]))
        return parameters

    @property
    def session_settings(self) -> str:
        """First statement of every transaction behind a pooler, where sessions are shared."""
        calls = (f"set_config('{name}', '{value}', true)" for name, value in self._settings.items())
        return f"SELECT {', '.join(calls)}"

    def _not_a_url(self, why: str) -> InvalidSetting:
        remedy = f"Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE. {ENCODE_PASSWORD}"
        return InvalidSetting(f"{self.name}: {why}", remedy=remedy)

    def _reset(self) -> None:
        self._idle: list[Connection] = []
        self._room = FairSemaphore(self.size)

    def after_fork(self) -> None:
        # The driver closes no connection of another process, so the parent's sessions go on.
        self._reset()

    def connect(self) -> Connection:
        try:
            connection: Connection = psycopg.connect(
                **self._parameters, autocommit=True, prepare_threshold=None if self.pooled else 5
            )
        except psycopg.ProgrammingError as error:
            raise self._not_a_url(str(error)) from None  # a value of the URL that the driver checks only here
        except psycopg.Error as error:
            raise translate_error(error, self.name) from error
        if not self.pooled:
            self._refuse_pooler(connection)
        connection.adapters.register_loader("timestamptz", _UtcLoader)
        return connection

    def _refuse_pooler(self, connection: Connection) -> None:
        """Refuse sessions that a pooler shares, unless the setting says so.

        There a prepared statement may be another one of the same name, and a time limit or a schema of the
        session would not hold. A round trip for each connection, not for each call.
        """
        try:
            direct = connection.execute(_IS_DIRECT).fetchone()
        except psycopg.Error as error:
            connection.close()
            raise translate_error(error, self.name) from error
        if direct != ("on",):
            connection.close()
            raise PoolerNotSet(f"{self.name} is behind a pooler, which drops the settings of sessions")

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """Borrow a connection for one thread; a usable one goes back to the pool."""
        room = self._room
        if not room.acquire(timeout=self.timeout_s or None):
            raise StoreUnavailable(
                f"all {self.size} connections to {self.name} stayed busy for {self.timeout_s:g} s",
                remedy="Raise PENSTOCK_POSTGRES_POOL_SIZE, or use fewer threads.",
            )
        try:
            connection = self._take_idle() or self.connect()
            try:
                yield connection
            except StoreError as error:
                self._discard(connection, error)
                raise
            finally:
                self._return(connection)
        finally:
            room.release()

    def _discard(self, connection: Connection, error: StoreError) -> None:
        """Close the connection after an error of the store: the next one may lead to another server."""
        with suppress(psycopg.Error):
            connection.close()
        if isinstance(error, StoreReadOnly):
            # After a switchover the other sessions are on the former primary, too.
            self.close()

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Borrow a connection with the session settings; behind a pooler for one transaction.

        Errors of the server are translated.
        """
        with self.borrowed() as connection:
            try:
                if not self.pooled:
                    yield connection
                    return
                with connection.transaction():
                    connection.execute(self.session_settings.encode())
                    yield connection
            except psycopg.Error as error:
                raise translate_error(error, self.name) from error

    @contextmanager
    def own_snapshot(self) -> Iterator[Connection]:
        """Read one snapshot on a separate connection, for a long read. No time limits apply."""
        with closing(self.connect()) as connection:
            try:
                connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if self.pooled:
                    connection.execute(self.session_settings.encode())
                connection.execute(b"SET LOCAL statement_timeout = 0")
                connection.execute(b"SET LOCAL idle_in_transaction_session_timeout = 0")
                yield connection
            except psycopg.Error as error:
                raise translate_error(error, self.name) from error

    def has_waiting(self) -> bool:
        """Check whether a thread waits for a connection."""
        return self._room.has_waiting()

    def _take_idle(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _has_ended(connection):
                return connection
            connection.close()

    def _return(self, connection: Connection) -> None:
        if connection.info.transaction_status is pq.TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            with suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        """Close idle connections; a later call opens new ones."""
        while (connection := self._take_idle()) is not None:
            connection.close()


def _has_ended(connection: Connection) -> bool:
    """Check whether an idle session has ended: only then is there data to read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


_READ_EVERY_S = 30.0
"""Seconds between reads: two correct clocks drift apart by less than a few milliseconds in this time."""

_READ_CLOCK = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Reading(msgspec.Struct, frozen=True):
    server: datetime
    at: float


class ServerClock:
    """The time of the server, without a round trip for each call.

    A host with a wrong clock must neither take jobs too early nor lose its own. So the time is read from the
    server now and then, and this host only measures the time since.
    """

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._reading: _Reading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None or clock.elapsed_s() - reading.at > _READ_EVERY_S:
            reading = self._reading = self._read_clock()
        return reading.server + timedelta(seconds=clock.elapsed_s() - reading.at)

    def _read_clock(self) -> _Reading:
        with self._connections.borrowed() as connection:
            try:
                before = clock.elapsed_s()
                found = connection.execute(_READ_CLOCK, binary=True).fetchone()
                after = clock.elapsed_s()
            except psycopg.Error as error:
                raise translate_error(error, self._connections.name) from error
        if found is None:
            raise AssertionError("the server has no clock")
        # The clock was read between request and response.
        return _Reading(_UNIX_EPOCH + timedelta(microseconds=found[0]), (before + after) / 2)


_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock migration in ' || current_schema(), 0))"
_CREATE_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock schema ' || %s::text, 0))"
_EXISTS = b"SELECT to_regnamespace(%s::text) IS NOT NULL"
_LEDGER = """
CREATE TABLE IF NOT EXISTS {} (
    number      integer     NOT NULL PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# From the system table: to_regclass may use a snapshot from before the lock.
_LEDGER_IS_OURS = b"""
SELECT attribute.atttypid = 'integer'::regtype
FROM pg_catalog.pg_class AS relation
JOIN pg_catalog.pg_namespace AS place ON place.oid = relation.relnamespace
LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid = relation.oid AND attribute.attname = 'number' AND NOT attribute.attisdropped
WHERE relation.relname = %s AND place.nspname = ANY(current_schemas(false))
ORDER BY array_position(current_schemas(false), place.nspname)
LIMIT 1
"""
QUEUE = Schema(
    "penstock_migration",
    migrations("postgres"),
    f"SELECT {', '.join(JOB_COLUMNS)} FROM unified_queue LIMIT 0",
)


def migrate(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    """Apply missing changes of the schema. Several processes may do so at a time."""
    if _applied(connection, name, schema) >= schema.newest:
        # A replica, which can only be read, is opened here.
        _refuse_incomplete(connection, name, schema)
        return
    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = 0")
        connection.execute(_LOCK)
        applied = _applied(connection, name, schema)
        if applied == 0:
            connection.execute(_LEDGER.format(schema.ledger).encode())
        _refuse_foreign(connection, name, schema, applied)
        for number, script in schema.after(applied):
            connection.execute(script.encode())
            entry = f"INSERT INTO {schema.ledger} (number) VALUES (%s)"
            connection.execute(entry.encode(), (number,))


_PRESENT = """
WITH place AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = ANY({}))
SELECT relname, CASE relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a view' WHEN 'i' THEN 'an index'
                             WHEN 'S' THEN 'a sequence' WHEN 'c' THEN 'a type' ELSE 'a table' END
FROM pg_catalog.pg_class JOIN place ON place.oid = relnamespace WHERE relname = ANY(%(names)s)
UNION ALL
SELECT typname, 'a type' FROM pg_catalog.pg_type JOIN place ON place.oid = typnamespace
WHERE typrelid = 0 AND typname = ANY(%(names)s)
UNION ALL
SELECT proname, 'a function' FROM pg_catalog.pg_proc JOIN place ON place.oid = pronamespace
WHERE proname = ANY(%(names)s)
UNION ALL
SELECT cfgname, 'a text search configuration' FROM pg_catalog.pg_ts_config
JOIN place ON place.oid = cfgnamespace WHERE cfgname = ANY(%(names)s)
UNION ALL
SELECT dictname, 'a text search dictionary' FROM pg_catalog.pg_ts_dict
JOIN place ON place.oid = dictnamespace WHERE dictname = ANY(%(names)s)
"""
_PRESENT_IN_CURRENT = _PRESENT.format("ARRAY[current_schema()]").encode()
_PRESENT_IN_PATH = _PRESENT.format("current_schemas(false)").encode()


def _refuse_foreign(connection: Connection, name: str, schema: Schema, applied: int) -> None:
    """Refuse existing names before the first CREATE: another program's, or half a migration."""
    names = schema.created_names(applied)
    present: dict[str, str] = dict(connection.execute(_PRESENT_IN_CURRENT, {"names": names}).fetchall())
    taken = next((each for each in names if each in present), None)
    if taken is None:
        return
    reason = "is not Penstock's" if not applied else f"is of a later schema than {applied}, the last recorded"
    message = f"{name} already has {present[taken]} named {taken} that {reason}"
    raise SchemaMismatch(message, remedy=_OWN_SCHEMA)


def _refuse_incomplete(connection: Connection, name: str, schema: Schema) -> None:
    names = schema.created_names()
    present: dict[str, str] = dict(connection.execute(_PRESENT_IN_PATH, {"names": names}).fetchall())
    missing = next((each for each in names if each not in present), None)
    if missing is not None:
        raise schema.lacks(name, missing, remedy=_RESTORE)


def create(connection: Connection, namespace: str | None) -> None:
    """Create a missing schema named in the URL, one process at a time."""
    if namespace is None or connection.execute(_EXISTS, (namespace,)).fetchone() == (True,):
        return
    with connection.transaction():
        connection.execute(_CREATE_LOCK, (namespace,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(namespace)))


def verify(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, name, schema)
    schema.refuse_older(name, applied, remedy="Open it once with a user that may create tables.")
    connection.execute(schema.probe.encode())
    _refuse_incomplete(connection, name, schema)


def begin_restore(connection: Connection, tables: Iterable[str], schema: Schema = QUEUE) -> None:
    """Delete all rows of these tables, and mark the schema: others cannot open it until the restore ends."""
    connection.execute(f"TRUNCATE {', '.join(tables)}".encode())
    mark = f"INSERT INTO {schema.ledger} (number) VALUES (%s) ON CONFLICT DO NOTHING"
    connection.execute(mark.encode(), (RESTORING,))


def end_restore(connection: Connection, schema: Schema = QUEUE) -> None:
    """Remove the restore mark of a schema."""
    connection.execute(f"DELETE FROM {schema.ledger} WHERE number = %s".encode(), (RESTORING,))


def is_marked(connection: Connection, schema: Schema = QUEUE) -> bool:
    """Check whether a restore of this schema was not finished."""
    statement = f"SELECT 1 FROM {schema.ledger} WHERE number = %s"
    return connection.execute(statement.encode(), (RESTORING,)).fetchone() is not None


def channel(connection: Connection) -> str:
    """Return the channel of notifications: each schema of a database can hold one queue."""
    found = connection.execute(b"SELECT current_schema(), 'penstock_' || md5(current_schema())").fetchone()
    if found is None or found[0] is None:
        remedy = "Create the schema named in search_path."
        raise SchemaMismatch("there is no schema to work in", remedy=remedy)
    return str(found[1])


def _applied(connection: Connection, name: str, schema: Schema) -> int:
    ledger = connection.execute(_LEDGER_IS_OURS, (schema.ledger,)).fetchone()
    if ledger is None:
        return 0
    if ledger == (False,):
        message = f"{name} already has a table named {schema.ledger} that is not Penstock's"
        raise SchemaMismatch(message, remedy=_OWN_SCHEMA)
    latest = connection.execute(schema.applied_statement.encode()).fetchone()
    applied = int(latest[0]) if latest else 0
    schema.refuse_newer(name, applied)
    return applied
