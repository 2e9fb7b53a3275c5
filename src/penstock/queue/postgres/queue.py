"""The PostgreSQL engine: workers on many hosts, one server."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import pq, sql
from psycopg.rows import tuple_row

from penstock.database import postgres, schema
from penstock.database.postgres import Connection, PostgresConnections, ServerClock, translate_error
from penstock.errors import DuplicateId, InvalidRequest, StoreError
from penstock.queue.engine import Engine, SharedWait, pages_of
from penstock.queue.job import (
    BOUND,
    CLASS,
    AddResult,
    Beat,
    Claim,
    ClaimRequest,
    FailureGroups,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RowCounts,
    Scope,
    Settlement,
    Status,
    WorkerReport,
    combined,
)
from penstock.queue.postgres.fast_paths import (
    ClaimResult,
    PlainExchange,
    PostgresClaim,
    fits_unread,
    try_add,
    try_claim_alone,
)
from penstock.queue.postgres.rows import PLANS, PostgresRows, as_pause, decoded, transact
from penstock.queue.protocol import (
    NO_LIMITS,
    POSITION_CAP,
    Exchange,
    Lengths,
    SentExchange,
    refuse_uncountable,
)
from penstock.queue.rules import addition, settlement
from penstock.queue.rules.addition import refuse_joined
from penstock.queue.rules.held_jobs import pass_over_limited
from penstock.queue.rules.rows import everything_paused, first_of_each_lock, paused_scopes, storable
from penstock.queue.rules.settlement import Leftovers
from penstock.queue.schedules import SqlSchedules
from penstock.queue.sql import statements
from penstock.queue.sql.statements import LOCK_CAP

T = TypeVar("T")

_MAX_CANDIDATES = 10_000
"""Largest number of candidates that a claim reads at once."""

OPEN_TOO_LONG_S = 300
"""Limit for open transactions: the server cannot remove dead rows that an older transaction may see."""


class PostgresQueue(Engine[PostgresRows], SqlSchedules):
    """A queue in a PostgreSQL schema. The contract of the methods is in ``queue/protocol.py``."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 4,
        pooled: bool = False,
        timeout_s: float = 60,
        restoring: bool = False,
    ) -> None:
        """``restoring``: open a schema even if the last restore was not finished."""
        self._schema = msgspec.structs.replace(postgres.QUEUE, restoring=restoring)
        self.rows_read = 0
        self._connections = PostgresConnections(
            url, size=pool_size, pooled=pooled, timeout_s=timeout_s, plans=PLANS
        )
        self._clock = ServerClock(self._connections)
        self._channel = ""
        self._max_candidates = _MAX_CANDIDATES
        self._plain = True
        """True if the last claim was plain, so that the next tries the fast path."""
        self._plain_ends = True
        """True if the last jobs that ended were plain, so that the next exchange can be sent."""
        self._fits_unread = True
        """True if the last claims were small enough for a result that is read later."""
        self._listener = PostgresListener(self._connections, lambda: self._channel, self._any_claimable)
        self._all_paused = False
        """True if the last claim found everything paused, so that the next reads pauses first."""
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    def now(self) -> datetime:
        return self._clock.now()

    def _write(self, what: str, work: Callable[[PostgresRows], T]) -> T:  # noqa: ARG002 - as the engine's
        return transact(self._connections, self._channel, PostgresRows, work)

    @contextmanager
    def _reading(self) -> Iterator[PostgresRows]:
        with self._connections.session() as connection:
            yield PostgresRows(connection)

    @contextmanager
    def dump(self) -> Iterator[Iterator[list[Job]]]:
        with self._connections.own_snapshot() as connection:
            rows = PostgresRows(connection)

            def find(query: JobQuery) -> list[Job]:
                statement, values = statements.find(query, "postgres")
                found = rows.execute(statement.replace("?", "%s"), values)
                return [decoded(row) for row in found.fetchall()]

            yield pages_of(find)

    def begin_restore(self) -> None:
        with self._connections.session() as connection, connection.transaction():
            postgres.begin_restore(connection, self._schema.tables(), self._schema)

    def end_restore(self) -> None:
        with self._connections.session() as connection:
            postgres.end_restore(connection, self._schema)

    def restore_unfinished(self) -> bool:
        with self._connections.session() as connection:
            return postgres.is_marked(connection, self._schema)

    def migrate(self) -> None:
        with self._connections.session() as connection:
            postgres.create(connection, self._connections.schema)
            self._channel = postgres.channel(connection)
            postgres.migrate(connection, self._connections.name, self._schema)

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        moment = now or self.now()
        if connection is None:
            if try_add(self._connections, self._channel, new, limits, moment):
                return [AddResult(each.queue_id, Status.PENDING) for each in new]
            return super().add(new, limits=limits, now=moment)
        refuse_joined(new)
        with _joined(connection, self._connections, self._channel) as rows:
            return addition.add(rows, new, limits, moment)

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        return self.exchange([], request, now=now).claims

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        moment = now or self.now()
        if not settlements and self._expects_plain(request) and not self._connections.pooled:
            alone, self.rows_read = try_claim_alone(self._connections, request, moment)
            self._plain = alone is not None
            if alone is not None:
                self._resuming, self._fits_unread = False, fits_unread(alone)
                return Exchange([], alone)

        def work(rows: PostgresRows) -> tuple[list[Status | None], Leftovers, ClaimResult | None]:
            return self._settle_and_take(rows, settlements, request, moment)

        answers, left, taken = self._write("exchange", work)
        self._finish(left, moment)
        claims = taken.claims() if taken is not None else []
        if taken is None or not taken.complete:
            claims = self._fill_up(claims, request, moment)
        if self._advance_after_claim(claims, moment):
            claims = self._fill_up(claims, request, moment)
        self._fits_unread = fits_unread(claims)
        return Exchange(answers, claims)

    def send_exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> SentExchange | None:
        plain = self._plain_ends and self._fits_unread and self._expects_plain(request)
        # One connection is in use until the result is read.
        spare = self._connections.size > 1 and not self._connections.pooled
        if not (plain and spare and _all_done(settlements)) or self._all_paused:
            return None
        try:
            return PlainExchange(
                self._connections,
                settlements,
                request,
                now or self.now(),
                settle=partial(self.settle, now=now),
                repeat=partial(self.exchange, settlements, request, now=now),
                record=self._record_sent,
            )
        except psycopg.Error:
            return None

    def _record_sent(self, *, claims: bool, ends: bool, rows_read: int) -> None:
        self._plain, self._plain_ends, self.rows_read, self._resuming = claims, ends, rows_read, False

    def _fill_up(self, claims: list[Claim], request: ClaimRequest, now: datetime) -> list[Claim]:
        """Claim again after rows were held back, up to the limit."""
        before = len(claims)
        if before == request.limit:
            return claims
        more = self._write("claim", lambda rows: self._claim(rows, request, now, before=before))
        self._unfinished = self._unfinished or more is None
        return claims + (more or [])

    def _settle_and_take(
        self, rows: PostgresRows, settlements: Sequence[Settlement], request: ClaimRequest, now: datetime
    ) -> tuple[list[Status | None], Leftovers, ClaimResult | None]:
        """Settle and claim; in two round trips if all jobs are plain."""
        if not _all_done(settlements) or request.oldest or self._all_paused:
            answers, left = self._settled(rows, settlements, now)
            return answers, left, self._claim_rest(rows, request, now, [])
        sent = rows.send_finish("finish_and_wake", settlements, now) if settlements else None
        claim = PostgresClaim(rows, request, now)
        fast = claim.try_fast_claim() if self._expects_plain(request) else None
        sent_candidates = claim.send_candidates(self._max_candidates) if fast is None else None
        finished = rows.read_finished(sent) if sent else None
        claims: list[Claim] | None = None
        if fast is not None:
            claims = claim.read_fast_claim(fast)
            self._plain, self.rows_read, self._resuming = claim.plain, claim.rows_read, False
        self._plain_ends = not finished or (
            len(finished.ids) == len(settlements) and not any(finished.parents)
        )
        if not self._plain_ends:
            answers, left = self._settled(rows, settlements, now)
            return answers, left, self._claim_rest(rows, request, now, claims or [])
        rows.to_wake.update(finished.freed if finished else ())
        answers = [Status.DONE] * len(settlements)
        if claims is not None:
            return answers, Leftovers(), ClaimResult(claims)
        taken = claim.take(sent_candidates or claim.send_candidates(self._max_candidates))
        pass_over_limited(rows, now)
        self._plain, self.rows_read = claim.plain, claim.rows_read
        self._all_paused, self._resuming = claim.all_paused, claim.resuming
        # If every row wants a lock, a larger read would lock rows that cannot be taken.
        self._max_candidates = LOCK_CAP if claim.keyed >= LOCK_CAP else _MAX_CANDIDATES
        return answers, Leftovers(), taken

    def _expects_plain(self, request: ClaimRequest) -> bool:
        return self._plain and not request.oldest and not request.lease_by_type

    def _claim_rest(
        self, rows: PostgresRows, request: ClaimRequest, now: datetime, claims: list[Claim]
    ) -> ClaimResult | None:
        """Claim more rows in the same transaction, up to the limit."""
        if len(claims) == request.limit:
            return ClaimResult(claims)
        more = self._claim(rows, request, now, before=len(claims))
        return ClaimResult(claims + (more or [])) if claims or more is not None else None

    def _claim(
        self, rows: PostgresRows, request: ClaimRequest, now: datetime, *, before: int = 0
    ) -> list[Claim] | None:
        claim = PostgresClaim(rows, request, now, before=before)
        claims = claim.run()
        pass_over_limited(rows, now)
        self.rows_read = claim.rows_read
        self._all_paused, self._resuming = claim.all_paused, claim.resuming
        return claims

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        moment = now or self.now()
        return self._write("renew", lambda rows: rows.renew(beats, moment))

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        moment = now or self.now()
        with self._reading() as rows:
            rows.execute("BEGIN READ ONLY", {})
            try:
                # Without statistics the planner assumes a short queue, and sorts all of it.
                rows.execute("SET LOCAL enable_sort = off", {})
                pages = rows.upcoming(item_type, moment)
                # Without row locks, which a read-only transaction cannot take.
                known = [as_pause(*row) for row in rows.fetch("pauses")]
                return rows.jobs_of(first_of_each_lock(pages, limit, known))
            finally:
                rows.execute("COMMIT", {})

    def paused(self) -> frozenset[Scope]:
        with self._reading() as rows:
            return paused_scopes(as_pause(*row) for row in rows.fetch("pauses"))

    def get(self, queue_id: str) -> Job | None:
        if not storable([queue_id]):
            return None
        with self._reading() as rows:
            return rows.peek(queue_id)

    def find(self, query: JobQuery) -> list[Job]:
        statement, values = statements.find(query, "postgres")
        return [decoded(row) for row in self._select(statement, values)]

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        return statements.failures(self._select, query, "postgres", limit, now or self.now())

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        statement, values = statements.count(query, "postgres", by, cap)
        return statements.groups_of(self._select(statement, values), by)

    def _select(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if not storable(values):
            return []
        with self._reading() as rows, rows.connection.pipeline():
            # A query of a user may match no index.
            if not self._connections.pooled:
                rows.execute("BEGIN READ ONLY", {})
            rows.execute("SET LOCAL enable_seqscan = on", {})
            rows.execute("SET LOCAL enable_bitmapscan = on", {})
            rows.execute("SET LOCAL plan_cache_mode = auto", {})
            found = rows.execute(statement.replace("?", "%s"), values)
            if not self._connections.pooled:
                rows.execute("COMMIT", {})
        return found.fetchall()

    def position(self, queue_id: str) -> Position | None:
        job = self.get(queue_id)
        if job is None or job.status is not Status.PENDING:
            return None
        place = {"priority": job.priority, "turn": job.turn, "created_at": job.created_at}
        with self._reading() as rows:
            ahead: int = rows.scalar("ahead_above", priority=job.priority, cap=POSITION_CAP)
            ahead += rows.scalar("ahead_within", **place, queue_id=queue_id, cap=POSITION_CAP - ahead)
            lengths = Lengths(*rows.fetch("lengths", cap=POSITION_CAP)[0])
            return lengths.position(
                ahead,
                job.is_request,
                lambda: rows.scalar("requests_ahead", **place, queue_id=queue_id, cap=POSITION_CAP),
                POSITION_CAP,
            )

    def tally(self) -> RowCounts:
        with self._reading() as rows:
            return tally(rows)

    def oldest(self) -> datetime | None:
        with self._reading() as rows:
            oldest: datetime | None = rows.scalar("oldest")
            return oldest

    def backlog(self, *, functions: bool, cap: int) -> int:
        with self._reading() as rows:
            return rows.backlog(functions=functions, tenant_id=None, cap=cap)

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        moment = now or self.now()
        with self._reading() as rows:
            return (
                bool(rows.scalar("any_claimable"))
                or (rows.scalar("any_limited") and not everything_paused(rows.seen_pauses()))
                or bool(rows.scalar("any_leased"))
                or (documents and bool(rows.scalar("any_waiting")))
                or bool(rows.scalar("any_returning", now=moment) or rows.scalar("any_reserved"))
            )

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        moment = now or self.now()
        with self._reading() as rows:
            return [decoded(row) for row in rows.fetch("expired", now=moment, limit=limit)]

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        values = {
            "worker_id": worker.worker_id,
            "host": worker.host,
            "pid": worker.pid,
            "started_at": worker.started_at,
            "seen_at": now or self.now(),
            "info_json": worker.info_json,
        }
        self._write("report", lambda rows: rows.send("report", **values))

    def workers(self) -> list[WorkerReport]:
        with self._reading() as rows:
            found = rows.fetch("workers")
        names = "worker_id host pid started_at seen_at info_json".split()
        return [WorkerReport(**dict(zip(names, row, strict=True))) for row in found]

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        def forget(rows: PostgresRows) -> int:
            gone = (
                rows.fetch("forget_worker", worker_id=each.worker_id, seen_at=each.seen_at)
                for each in reports
            )
            return sum(map(len, gone))

        return self._write("forget_workers", forget)

    def wait(self, timeout: float) -> bool:
        if self._has_unfinished_work():
            return True
        return self._listener.wait(timeout)

    def _any_claimable(self) -> bool:
        with self._reading() as rows:
            return bool(rows.scalar("any_claimable"))

    def check(self) -> list[str]:
        with self._reading() as rows:
            postgres.verify(rows.connection, self._connections.name, self._schema)
            settings: dict[str, str] = dict(rows.fetch("durability"))
            left_open = rows.fetch("open_transactions", seconds=OPEN_TOO_LONG_S)
            read_only = rows.scalar("read_only")
        name = self._connections.name
        return (
            [f"{name} can only be read now: workers wait until it can be written"] * bool(read_only)
            + [
                f"{name} runs with {setting} = off: a power cut can lose what was acknowledged"
                for setting, value in sorted(settings.items())
                if value == "off"
            ]
            + [
                f"{name} has a transaction open for {seconds // 60} minutes (process {pid}): "
                "claims slow down until it ends"
                for pid, seconds in left_open
            ]
        )

    def close(self) -> None:
        self._listener.close()
        self._connections.close()


def _all_done(settlements: Sequence[Settlement]) -> bool:
    return all(each.status is Status.DONE for each in settlements) and settlement.each_once(settlements)


_SEARCH = b"SELECT set_config('search_path', %s, %s)"


@contextmanager
def _joined(connection: Any, connections: PostgresConnections, channel: str) -> Iterator[PostgresRows]:
    """Yield rows in the caller's transaction. The caller commits or rolls back."""
    driver = _driver_connection(connection)
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


def _driver_connection(given: Any) -> psycopg.Connection[tuple[Any, ...]]:
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


FEW_PAGES = 1_000
"""Tables up to this number of pages, some thousand rows, are counted exactly."""

_SAMPLED_PAGES = 200


def tally(rows: PostgresRows) -> RowCounts:
    """Count rows at a bounded price.

    A counter would have to be written by every transaction: as a statement trigger it cost 12 % of a drain in
    batches of 100, and 24 % of one job by job. So a large table is counted up to a bound, class by class, and
    estimated beyond it from random pages.
    """
    pages = int(rows.scalar("table_pages"))
    if pages <= FEW_PAGES:
        return RowCounts(statements.groups_of(rows.fetch("tally_all"), CLASS))
    percent = 100 * _SAMPLED_PAGES / pages
    sample = statements.groups_of(rows.fetch("tally_sample", percent=percent), CLASS)
    bounded = statements.groups_of(rows.fetch("tally_bounded", cap=BOUND), CLASS)
    return combined(bounded, sample, 100 / percent)


_POLL_S = 0.1
"""Interval of polls behind a pooler, where LISTEN does not work."""


class _SeenEvents(threading.local):
    """Event count at the end of a thread's last wait; the first wait returns at once."""

    events = -1


class PostgresListener:
    """Notifications for all threads of this process: LISTEN on a separate connection, else polling."""

    def __init__(
        self, connections: PostgresConnections, channel: Callable[[], str], any_claimable: Callable[[], bool]
    ) -> None:
        self._connections = connections
        self._channel = channel
        self._any_claimable = any_claimable
        self._connection: Connection | None = None
        self.after_fork()
        schema.register(self)

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
            time.sleep(min(left, _POLL_S))

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
