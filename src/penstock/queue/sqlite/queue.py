"""The SQLite engine: many processes on one machine, one file, no server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock import clock
from penstock.clock import format_time, read_time
from penstock.database import sqlite
from penstock.database.sqlite import SqliteConnections, translating_errors, truncate_log
from penstock.errors import InvalidRequest, StoreError
from penstock.queue.engine import Engine, pages_of
from penstock.queue.file_watch import SqliteListener
from penstock.queue.job import (
    BOUND,
    CLASS,
    SUSPECT,
    AddResult,
    Beat,
    Claim,
    ClaimRequest,
    Class,
    FailureGroups,
    Held,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RowCounts,
    Scope,
    Status,
    WorkerReport,
    combined,
)
from penstock.queue.protocol import NO_LIMITS, refuse_uncountable
from penstock.queue.rules import addition
from penstock.queue.rules.addition import refuse_joined
from penstock.queue.rules.rows import (
    DUE_AT_ONCE,
    HELD_BACK_AT_ONCE,
    ROUNDS,
    Candidate,
    Choice,
    active_resume,
    choose,
    everything_paused,
    first_of_each_lock,
    held_scopes,
    paused_scopes,
    refuse_unstorable,
    storable,
    wake,
)
from penstock.queue.schedules import SqlSchedules
from penstock.queue.sql import statements
from penstock.queue.sql.statements import CLAIM_COLUMNS
from penstock.queue.sqlite.rows import (
    AT_ONCE,
    SPILLED,
    SQL,
    BacklogBounds,
    Refused,
    SqliteRows,
    are_plain,
    as_list,
    insert_plain,
)

T = TypeVar("T")


class SqliteQueue(Engine[SqliteRows], SqlSchedules):
    """A queue in a SQLite file. The contract of the methods is in ``queue/protocol.py``."""

    _meets_duplicates = False
    """The last batch on the general path had duplicates of live rows: the next one probably has some as well,
    and would be undone on the plain path."""

    def __init__(
        self,
        path: Path | str,
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 60,
        restoring: bool = False,
    ) -> None:
        """``restoring``: open a file even if the last restore was not finished."""
        self.path = Path(path)
        self._schema = msgspec.structs.replace(sqlite.QUEUE, restoring=restoring)
        self.rows_read = 0
        self._busy_timeout_s = busy_timeout_s
        self._connections = SqliteConnections(
            self.path, synchronous=synchronous, busy_timeout_s=busy_timeout_s
        )
        self._listener = SqliteListener(self._connections)
        self._backlog_bounds = BacklogBounds()
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    @contextmanager
    def _writing(self, what: str) -> Iterator[SqliteRows]:  # noqa: ARG002 - no audit log here
        with self._connections.writing() as connection:
            yield SqliteRows(connection)

    def _write(self, what: str, work: Callable[[SqliteRows], T]) -> T:  # noqa: ARG002 - as above
        return self._connections.transact(lambda connection: work(SqliteRows(connection)))

    @contextmanager
    def _reading(self) -> Iterator[SqliteRows]:
        with self._connections.reading() as connection:
            yield SqliteRows(connection)

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        if connection is None:
            moment = now or clock.now()
            if self._try_add(new, limits, moment):
                return [AddResult(each.queue_id, Status.PENDING) for each in new]
            added = self._apply("add", lambda rows: self._add(rows, new, limits, moment), moment)
            if len(new) > 1:
                self._meets_duplicates = any(each.dedupe_hit for each in added)
            return added
        self._refuse_foreign(connection)
        refuse_joined(new)
        with translating_errors(self.path):
            return addition.add(SqliteRows(connection), new, limits, now or clock.now())

    def add_counted(
        self, new: Sequence[NewJob], *, limits: QueueLimits = NO_LIMITS
    ) -> list[tuple[AddResult, Position | None]]:
        # In the transaction: each commit empties the memory of the connections for reading.
        found: list[tuple[AddResult, Position | None]] = []

        def count(connection: sqlite3.Connection) -> None:
            ids = [each.queue_id for each in new]
            counted = SqliteRows(connection).positions(ids)
            added = (AddResult(queue_id, Status.PENDING) for queue_id in ids)
            found.extend(zip(added, counted, strict=True))

        if self._try_add(new, limits, clock.now(), then=count):
            return found
        return super().add_counted(new, limits=limits)

    def _add(
        self, rows: SqliteRows, new: Sequence[NewJob], limits: QueueLimits, now: datetime
    ) -> list[AddResult]:
        return addition.add(rows, new, self._backlog_bounds.binding(rows, new, limits), now)

    def _try_add(
        self,
        new: Sequence[NewJob],
        limits: QueueLimits,
        now: datetime,
        then: Callable[[sqlite3.Connection], object] | None = None,
    ) -> bool:
        """Try to add plain jobs with the statements of the rules, but without their objects.

        False: nothing was written, and the general path is required. ``then`` runs in the transaction.
        """
        tried = len(new) == 1 or (len(new) > 1 and not self._meets_duplicates)
        if not tried or not are_plain(new):
            return False
        refuse_unstorable(new)

        def add(connection: sqlite3.Connection) -> None:
            if limits != NO_LIMITS and not self._backlog_bounds.have_room(
                SqliteRows(connection), new, limits
            ):
                raise Refused
            try:
                insert_plain(connection, new, now)
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
                    raise
                raise Refused from error
            if then is not None:
                then(connection)

        try:
            self._connections.transact(add)
        except Refused:
            return False
        return True

    def _refuse_foreign(self, connection: Any) -> None:
        """Refuse a connection to another file, which may have tables of the same names."""
        try:
            own = isinstance(connection, sqlite3.Connection) and self._is_own(connection)
        except (sqlite3.ProgrammingError, OSError) as error:
            raise InvalidRequest(f"connection= cannot be used: {error}") from error
        if not own:
            raise InvalidRequest("connection= must be a sqlite3.Connection to the queue's own database file")

    def _is_own(self, connection: sqlite3.Connection) -> bool:
        cursor = connection.cursor()
        cursor.row_factory = None  # the caller may have another row factory
        files = {schema: file for _, schema, file in cursor.execute("PRAGMA database_list")}
        return bool(files["main"]) and self.path.samefile(files["main"])

    @contextmanager
    def dump(self) -> Iterator[Iterator[list[Job]]]:
        with self._connections.own_snapshot() as connection:
            rows = SqliteRows(connection)
            yield pages_of(lambda query: rows.select(*statements.find(query, "sqlite")))

    def begin_restore(self) -> None:
        with self._connections.writing() as connection:
            sqlite.begin_restore(connection, reversed(self._schema.tables()), self._schema)

    def end_restore(self) -> None:
        with self._connections.writing() as connection:
            sqlite.end_restore(connection, self._schema)

    def restore_unfinished(self) -> bool:
        with self._connections.reading() as connection:
            return sqlite.is_marked(connection, self._schema)

    def _claim(self, rows: SqliteRows, request: ClaimRequest, now: datetime) -> list[Claim] | None:
        claim = _SqliteClaim(rows.cursor, request, now)
        any_pause, due = claim.ahead()
        known = rows.pauses() if any_pause else []
        self._resuming = bool(known) and active_resume(known) is not None
        self.rows_read = 0
        if known and everything_paused(known):
            return []
        claims = claim.run(rows, held_scopes(known) if known else frozenset(), due=due)
        self.rows_read = claim.rows_read
        return claims

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        moment = now or clock.now()
        with self._writing("renew") as rows:
            return [rows.renew(beat, moment) for beat in beats]

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        with self._reading() as rows:
            pages = rows.upcoming(item_type, now or clock.now())
            return rows.jobs_of(first_of_each_lock(pages, limit, rows.pauses()))

    def scrub(self) -> None:
        with translating_errors(self.path):
            truncate_log(self.path, self._busy_timeout_s)

    def paused(self) -> frozenset[Scope]:
        with self._reading() as rows:
            return paused_scopes(rows.pauses())

    def get(self, queue_id: str) -> Job | None:
        with self._reading() as rows:
            return rows.get(queue_id)

    def find(self, query: JobQuery) -> list[Job]:
        statement, values = statements.find(query, "sqlite")
        if not storable(values):
            return []
        with self._reading() as rows:
            return rows.select(statement, values)

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        with self._reading() as rows:

            def select(statement: str, values: list[object]) -> list[Any]:
                return rows.cursor.execute(statement, values).fetchall() if storable(values) else []

            return statements.failures(select, query, "sqlite", limit, now or clock.now())

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        statement, values = statements.count(query, "sqlite", by, cap)
        if not storable(values):
            return {}
        with self._reading() as rows:
            found = rows.cursor.execute(statement, values).fetchall()
        return statements.groups_of(found, by)

    def position(self, queue_id: str) -> Position | None:
        return self.positions([queue_id])[0]

    def positions(self, ids: Sequence[str]) -> list[Position | None]:
        with self._reading() as rows:
            return rows.positions(ids)

    def tally(self) -> RowCounts:
        with self._reading() as rows:
            return _tally(rows)

    def oldest(self) -> datetime | None:
        with self._reading() as rows:
            text = rows.scalar("oldest")
        return read_time(text) if text else None

    def backlog(self, *, functions: bool, cap: int) -> int:
        with self._reading() as rows:
            return rows.backlog(functions=functions, tenant_id=None, cap=cap)

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        at = format_time(now or clock.now())
        with self._reading() as rows:
            return (
                (self._may_be_claimable(rows) and not everything_paused(rows.pauses()))
                or bool(rows.scalar("any_leased"))
                or (documents and bool(rows.scalar("any_waiting")))
                or bool(rows.scalar("any_due", at))
                or bool(rows.scalar("any_backing_off"))
                or rows.scalar("any_reserved") == 1
            )

    def _may_be_claimable(self, rows: SqliteRows) -> bool:
        """Check whether rows can be claimed, or wait for a limit."""
        return bool(rows.scalar("any_claimable")) or rows.scalar("any_limited") == 1

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        with self._reading() as rows:
            return rows.select(SQL["expired"], (format_time(now or clock.now()), limit))

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        started, seen = format_time(worker.started_at), format_time(now or clock.now())
        values = (worker.worker_id, worker.host, worker.pid, started, seen, worker.info_json)
        with self._writing("report") as rows:
            rows.cursor.execute(SQL["report"], values)

    def workers(self) -> list[WorkerReport]:
        with self._reading() as rows:
            found = rows.cursor.execute(SQL["workers"]).fetchall()
        return [
            WorkerReport(
                worker_id=worker_id,
                host=host,
                pid=pid,
                started_at=read_time(started),
                seen_at=read_time(seen) if seen else None,
                info_json=info,
            )
            for worker_id, host, pid, started, seen, info in found
        ]

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        seen = [(each.worker_id, format_time(each.seen_at)) for each in reports if each.seen_at is not None]
        with self._writing("forget_workers") as rows:
            return sum(len(rows.cursor.execute(SQL["forget_worker"], values).fetchall()) for values in seen)

    def _fetch_schedules(self, statement: str, values: dict[str, Any]) -> list[Any]:
        plain = [format_time(one) if isinstance(one, datetime) else one for one in values.values()]
        reads = statement in ("schedules", "due_schedules")
        with self._reading() if reads else self._writing("schedule") as rows:
            return rows.cursor.execute(SQL[statement], plain).fetchall()

    def wait(self, timeout: float) -> bool:
        if self._has_unfinished_work():
            return True
        return self._listener.wait(timeout)

    def check(self) -> list[str]:
        with self._connections.reading() as connection:
            sqlite.verify(connection, self.path, self._schema)
        return []

    def migrate(self) -> None:
        with translating_errors(self.path):
            sqlite.migrate(self._connections, self.path, self._schema)

    def close(self) -> None:
        self._listener.close()
        self._connections.close()


_FEW_ROWS = 5_000
"""Tables up to this range of row numbers are counted exactly."""

_SAMPLED_ROWS = 400


def _tally(rows: SqliteRows) -> RowCounts:
    """Count rows at a bounded price.

    Counters written with every transaction cost 12 to 20 % of a single add and of a drain job by job. So a
    large table is counted up to a bound, class by class, and estimated beyond it from rows at equal
    distances.
    """
    first, last = rows.cursor.execute(SQL["row_range"]).fetchone()
    if first is None or last - first < _FEW_ROWS:
        return RowCounts(_counts(rows, "tally_all"))
    distance = (last - first + 1) / _SAMPLED_ROWS
    numbers = [int(first + distance * (place + 0.5)) for place in range(_SAMPLED_ROWS)]
    sample = _counts(rows, "tally_sample", msgspec.json.encode(numbers).decode())
    return combined(_counts(rows, "tally_bounded", BOUND), sample, distance)


def _counts(rows: SqliteRows, name: str, *values: Any) -> dict[Class, int]:
    return statements.groups_of(rows.cursor.execute(SQL[name], values).fetchall(), CLASS)


_OWN = 5
"""Columns of a candidate before its claim: rowid, turn, lock_key, lock held by this row, held by any row."""
_ID_AT = _OWN + CLAIM_COLUMNS.index("queue_id")
_TENANT_AT = _OWN + CLAIM_COLUMNS.index("tenant_id")
_COLLECTION_AT = _OWN + CLAIM_COLUMNS.index("collection")
_TYPE_AT = _OWN + CLAIM_COLUMNS.index("item_type")
_PRIORITY_AT = _OWN + CLAIM_COLUMNS.index("priority")
_CREATED_AT = _OWN + CLAIM_COLUMNS.index("created_at")
_PAYLOAD_AT = _OWN + CLAIM_COLUMNS.index("payload_json")


class _SqliteClaim:
    """One claim: read candidates, choose, take, hold back; a few rounds in one short transaction."""

    def __init__(self, cursor: sqlite3.Cursor, request: ClaimRequest, now: datetime) -> None:
        self._cursor = cursor
        self._request = request
        self._now = now
        self._at = format_time(now)
        self.rows_read = 0

    def ahead(self) -> tuple[bool, bool]:
        """Check whether there is a pause, and whether a scheduled row is due."""
        paused, due = self._cursor.execute(SQL["before_claim"], (self._at,)).fetchone()
        return paused == 1, due == 1

    def run(self, rows: SqliteRows, paused: frozenset[Scope], *, due: bool) -> list[Claim] | None:
        if due:
            self._cursor.execute(SQL["promote"], (self._at, max(self._request.limit, DUE_AT_ONCE)))
        taken: list[Claim] = []
        size = self._request.limit
        for number in range(ROUNDS):
            found = self._candidates(size, oldest=self._request.oldest and number == 0)
            if not paused and not taken and self._all_free(found):
                return self._take(rows, found)
            choice = self._choose(found, len(taken), paused)
            by_row = {row[0]: row for row in found}
            # Taken rows first: a row held back must not wake another for a lock that is taken now.
            taken += self._take(rows, [by_row[candidate.row] for candidate in choice.take])
            self._hold(rows, choice)
            if choice.closed or not choice.hold:
                return taken
            size = max(self._request.limit, HELD_BACK_AT_ONCE)
        return taken or None

    def _candidates(self, size: int, *, oldest: bool) -> list[tuple[Any, ...]]:
        found = self._cursor.execute(SQL["candidates"], (size,)).fetchall()
        if oldest and found:
            heads = [self._cursor.execute(SQL["priority_head"], (p,)).fetchone() for p in range(10, -1, -1)]
            first = min((head for head in heads if head), key=lambda row: (row[_CREATED_AT], row[_ID_AT]))
            if not self._parked_before(first):
                found = [first, *(row for row in found if row[0] != first[0])][:size]
        self.rows_read += len(found)
        return found

    def _parked_before(self, row: tuple[Any, ...]) -> bool:
        """Check whether a parked row of the same lock and priority comes first."""
        if row[2] is None or row[3] == 1:
            return False
        place = (row[2], row[_PRIORITY_AT], row[1], row[_CREATED_AT], row[_ID_AT])
        return self._cursor.execute(SQL["parked_before"], place).fetchone() is not None

    def _all_free(self, found: list[tuple[Any, ...]]) -> bool:
        """Check whether all rows can be taken: no suspect, and every lock is free."""
        if len(found) > self._request.limit:
            return False
        seen: set[str] = set()
        for row in found:
            turn, key, held_by_row, held = row[1:_OWN]
            if turn == SUSPECT:
                return False
            if key is not None and not held_by_row:
                if held or key in seen:
                    return False
                seen.add(key)
        return True

    def _choose(self, found: list[tuple[Any, ...]], taken: int, paused: frozenset[Scope]) -> Choice:
        candidates = [
            Candidate(row[0], row[1], row[2], row[3] == 1, row[_TENANT_AT], row[_COLLECTION_AT])
            for row in found
        ]
        return choose(
            candidates,
            self._request.limit - taken,
            first=not taken,
            locked={row[2] for row in found if row[4]},
            paused=paused,
        )

    def _hold(self, rows: SqliteRows, choice: Choice) -> None:
        for candidate, reason in choice.hold:
            name = "hold_for_lock" if reason is Held.LOCK else "hold_for_pause"
            self._cursor.execute(SQL[name], (self._at, candidate.row))
            if reason is Held.PAUSE and candidate.lock_key is not None and not candidate.lock_held:
                # The row may have been woken for this lock.
                wake(rows, [candidate.lock_key], self._now)

    def _take(self, rows: SqliteRows, found: list[tuple[Any, ...]]) -> list[Claim]:
        by_type: dict[str, list[int]] = {}
        for row in found:
            by_type.setdefault(row[_TYPE_AT], []).append(row[0])
        leases = {item_type: self._now + self._request.lease_of(item_type) for item_type in by_type}
        by_lease: dict[datetime, list[int]] = {}
        for item_type, numbers in by_type.items():
            by_lease.setdefault(leases[item_type], []).extend(numbers)
        for until, numbers in by_lease.items():
            self._take_rows(numbers, (self._request.worker_id, format_time(until), self._at, self._at))
        return [_claim(row, leases[row[_TYPE_AT]], rows) for row in found]

    def _take_rows(self, numbers: list[int], values: tuple[str, ...]) -> None:
        if len(numbers) < AT_ONCE:
            self._cursor.executemany(SQL["take"], [(*values, number) for number in numbers])
        else:
            self._cursor.execute(SQL["take_all"], (*values, as_list(numbers)))


def _claim(row: tuple[Any, ...], until: datetime, rows: SqliteRows) -> Claim:
    """Build a claim from a row. Payload, created_at and lease_until are the last fields."""
    payload = row[_PAYLOAD_AT]
    if payload == SPILLED:
        payload = rows.payload(row[_ID_AT])
    values = (*row[_OWN:_PAYLOAD_AT], payload, read_time(row[_CREATED_AT]), until)
    return Claim(*values)
