"""PostgreSQL connections of one process: a pool, and the clock of the server.

Not psycopg_pool, which opens connections in its own threads: a wrong password shows only as a timeout, and a
forked child inherits a pool without its threads.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict

from penstock import clock
from penstock.database.fair_semaphore import FairSemaphore
from penstock.database.postgres_errors import one_line, translate_error
from penstock.errors import InvalidSetting, PoolerNotSet, StoreError, StoreReadOnly, StoreUnavailable
from penstock.named_tuple import NamedTuple
from penstock.queue import fork_hooks
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 10
_PLANS = {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
"""Every statement has its index for all values, so one generic plan is enough. A plan made while the table
was small, or had no statistics, must not scan the table when it has grown."""
_DIRECT = "penstock.direct"
"""A setting of sessions without a pooler. A pooler that drops ``options`` drops it, too."""
_IS_DIRECT = f"SELECT current_setting('{_DIRECT}', true)".encode()
_BINARY_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class UtcLoader(Loader):
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
        fork_hooks.register(self)

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
        parameters.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
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
        connection.adapters.register_loader("timestamptz", UtcLoader)
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


READ_EVERY_S = 30.0
"""Seconds between reads: two correct clocks drift apart by less than a few milliseconds in this time."""

_READ_CLOCK = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Reading(NamedTuple):
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
        if reading is None or clock.elapsed_s() - reading.at > READ_EVERY_S:
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
