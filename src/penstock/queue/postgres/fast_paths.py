"""Fast paths on PostgreSQL: plain jobs are added, claimed and exchanged in few round trips.

A fast path decides nothing: what it does not write is left to the rules. An addition of plain jobs is one
statement, which is its own transaction. A claim reads and locks candidates, chooses, takes and holds back;
the usual case is one statement, too.

Job locks follow a protocol, as several workers claim at once. The statement that reads candidates tries each
key as an advisory lock (failure means park, never wait). A later statement checks whether the key is held and
whether the row is the first of its key. After the commit, the transaction that freed a key or parked a row
checks once more (``wake``), so that no row waits for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from penstock.database.postgres import RETRYABLE_ERRORS, Connection, PostgresConnections
from penstock.queue.job import (
    SUSPECT,
    Claim,
    ClaimRequest,
    Held,
    NewJob,
    QueueLimits,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.postgres.rows import SQL, PostgresRows, as_pause, refusal, texts, times
from penstock.queue.protocol import Exchange
from penstock.queue.rules.rows import (
    DUE_AT_ONCE,
    HELD_BACK_AT_ONCE,
    ROUNDS,
    Candidate,
    Choice,
    active_resume,
    choose,
    everything_paused,
    held_scopes,
    refuse_unstorable,
    wake,
)
from penstock.queue.sql.statements import CLAIM_COLUMNS, LOCK_CAP

_MOST_ALIKE = 5_000
"""Largest batch in one statement."""
_PLACE = re.compile(r"%\((\w+)\)s")
_SHARED = attrgetter(
    *("item_type", "op", "tenant_id", "collection", "branch", "priority", "max_retries", "timeout_s"),
    *("submitted_by", "metadata", "dedupe", "run_at", "after", "limit_key", "backlog_key", "result_ttl_s"),
)
_LEFT_TO_RULES = (*RETRYABLE_ERRORS, psycopg.errors.UniqueViolation)
_FOUND = b"SELECT created_at FROM unified_queue WHERE queue_id = %s"


class _Statement:
    """A prepared statement, sent without the driver's cursors: adapting twenty values would cost more than
    all the rest."""

    def __init__(self, name: str) -> None:
        self._parameters = list(dict.fromkeys(_PLACE.findall(SQL[name])))
        places = {each: f"${number}" for number, each in enumerate(self._parameters, 1)}
        self._text = _PLACE.sub(lambda found: places[found[1]], SQL[name]).encode()
        self._name = f"penstock_{name}".encode()
        self._prepared: WeakSet[Connection] = WeakSet()
        """Sessions with the prepared statement."""

    def run(self, connection: Connection, values: Mapping[str, str | None]) -> PGresult:
        sent = [None if (value := values[name]) is None else value.encode() for name in self._parameters]
        if connection in self._prepared:
            # After a ROLLBACK the driver deallocates all prepared statements of the session.
            with suppress(psycopg.errors.InvalidSqlStatementName):
                return self._execute(connection, sent)
        self._prepare(connection)
        return self._execute(connection, sent)

    def _execute(self, connection: Connection, values: list[bytes | None]) -> PGresult:
        connection.pgconn.send_query_prepared(self._name, values)
        return _answer(connection)

    def _prepare(self, connection: Connection) -> None:
        try:
            connection.pgconn.send_prepare(self._name, self._text)
            _answer(connection)
        except BaseException:
            if not connection.broken:
                # It is unknown whether the statement is prepared; a second PREPARE would fail.
                connection.close()
            raise
        self._prepared.add(connection)


_ADD, _ADD_LIMITED, _ADD_ALIKE = map(_Statement, ("add_plain", "add_plain_limited", "add_alike"))


def try_add(
    connections: PostgresConnections, channel: str, new: Sequence[NewJob], limits: QueueLimits, now: datetime
) -> bool:
    """Try to add plain jobs, all or none. False: nothing was written."""
    refuse_unstorable(new)
    # Behind a pooler a transaction begins with its settings.
    if connections.pooled or not new or not _is_plain(new[0], now):
        return False
    if len(new) == 1:
        return _try_add_one(connections, channel, new[0], limits, now)
    return _try_add_alike(connections, channel, new, limits, now)


def _is_plain(new: NewJob, now: datetime) -> bool:
    """Check whether a job can be claimed at once, as far as the job itself tells."""
    later = new.run_at is not None and new.run_at > now
    return new.plain and not later


def _try_add_one(
    connections: PostgresConnections, channel: str, new: NewJob, limits: QueueLimits, now: datetime
) -> bool:
    values = {**_shared(new, now), **_limits(new, limits), "channel": channel}
    values.update(
        queue_id=new.queue_id,
        idempotency_key=new.idempotency_key,
        lock_key=new.lock_key,
        payload_json=new.payload_json,
    )
    limited = values["functions"] or values["indexing"] or values["per_tenant"]
    return _try(connections, _ADD_LIMITED if limited else _ADD, values, new.queue_id, now)


def _try_add_alike(
    connections: PostgresConnections, channel: str, new: Sequence[NewJob], limits: QueueLimits, now: datetime
) -> bool:
    """Try to add plain jobs without deduplication or limits, equal in all but id, lock and payload."""
    first = new[0]
    limited = any(_limits(first, limits).values())
    if first.dedupe or limited or len(new) > _MOST_ALIKE:
        return False
    ids = [each.queue_id for each in new]
    # Ids out of order would have different creation times.
    if len(set(map(_SHARED, new))) > 1 or any(map(str.__ge__, ids, ids[1:])):
        return False
    values = _shared(first, now) | {
        "channel": channel,
        "ids": texts(ids),
        "keys": texts([each.idempotency_key for each in new]),
        "locks": texts([each.lock_key for each in new]) if any(each.lock_key for each in new) else "{}",
        "payloads": texts([each.payload_json for each in new]),
    }
    return _try(connections, _ADD_ALIKE, values, first.queue_id, now)


def _try(
    connections: PostgresConnections,
    statement: _Statement,
    values: Mapping[str, str | None],
    queue_id: str,
    now: datetime,
) -> bool:
    """Run the statement, also if the session has ended before. ``queue_id``: the first of the rows."""
    with connections.borrowed() as connection:
        try:
            return statement.run(connection, values).ntuples == 1
        except _LEFT_TO_RULES:
            return False
        except psycopg.Error as error:
            if not connection.broken:
                raise refusal(error, connections, in_doubt=False) from error
    # The session ended while idle, or during this call. The row with this id tells which.
    with connections.borrowed() as connection:
        try:
            with suppress(psycopg.errors.UniqueViolation):
                if statement.run(connection, values).ntuples == 1:
                    return True
            return _is_there(connection, queue_id, now)
        except psycopg.Error as error:
            raise refusal(error, connections, in_doubt=connection.broken) from error


def _answer(connection: Connection) -> PGresult:
    # The commit follows the result of the statement: its failure is in a later result.
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return results[-1]


def _is_there(connection: Connection, queue_id: str, now: datetime) -> bool:
    found = connection.execute(_FOUND, (queue_id,), binary=True).fetchone()
    return found is not None and found[0] == now


def _shared(new: NewJob, now: datetime) -> dict[str, str | None]:
    """Encode all values as text: with sized numbers the driver would see different statements."""
    return {
        "item_type": new.item_type,
        "op": new.op,
        "tenant_id": new.tenant_id,
        "collection": new.collection,
        "branch": new.branch,
        "priority": str(new.priority),
        "now": now.isoformat(),
        "dedupe": "t" if new.dedupe else "f",
        "max_retries": str(new.max_retries),
        "timeout_s": str(new.timeout_s),
        "submitted_by": new.submitted_by,
        "metadata": new.metadata,
    }


def _limits(new: NewJob, limits: QueueLimits) -> dict[str, str | None]:
    """The limits applying to a job."""
    functions = new.item_type == "function"
    return {
        "functions": _limit(limits.functions if functions else None),
        "indexing": _limit(None if functions else limits.indexing),
        "per_tenant": _limit(None if functions else limits.per_tenant),
    }


def _limit(most: int | None) -> str | None:
    return None if most is None else str(most)


_OWN = 3
"""Columns of a candidate before those of its claim: turn, lock held, advisory lock taken."""
_TURN, _HOLDS_LOCK, _LOCKED = range(_OWN)
_ID_AT = _OWN + CLAIM_COLUMNS.index("queue_id")
_LOCK_AT = _OWN + CLAIM_COLUMNS.index("lock_key")
_TENANT_AT = _OWN + CLAIM_COLUMNS.index("tenant_id")
_COLLECTION_AT = _OWN + CLAIM_COLUMNS.index("collection")
_TYPE_AT = _OWN + CLAIM_COLUMNS.index("item_type")
_MAX_ROUNDS = 12
"""Rounds of one transaction. With a pause and many locks, a round finds only the first row of each lock, and
a resume waits for the transaction."""
_Row: TypeAlias = tuple[Any, ...]
_Cursor: TypeAlias = psycopg.Cursor[_Row]


class ClaimResult:
    """Claims of a transaction; refused rows are known only after the end of the transaction."""

    def __init__(self, claims: list[Claim], update: _Cursor | None = None, *, complete: bool = True) -> None:
        self._claims = claims
        self._update = update
        self.complete = complete
        """No row was held back or refused, so there is nothing to claim again."""

    def claims(self) -> list[Claim]:
        if self._update is not None:
            refused = {queue_id for (queue_id,) in self._update.fetchall()}
            self.complete = not refused
            if refused:
                self._claims = [claim for claim in self._claims if claim.queue_id not in refused]
            self._update = None
        return self._claims


class PostgresClaim:
    """One claim inside a transaction."""

    def __init__(self, rows: PostgresRows, request: ClaimRequest, now: datetime, *, before: int = 0) -> None:
        """``before``: the number of rows taken in an earlier transaction of this claim."""
        self._rows = rows
        self._request = request
        self._now = now
        self._before = before
        self.rows_read = 0
        self.keyed = 0
        """Largest number of rows of a round that want a lock."""
        self.plain = True
        """True if all rows seen were plain."""
        self._locks = LOCK_CAP
        """Number of keys this transaction may still try: advisory locks are kept until it ends."""
        self._oldest: str | None = None
        """The first row of the claim, because it is the oldest."""
        self.all_paused = False
        """True if everything is paused."""
        self.resuming = False
        """True if a resume is active."""

    def try_fast_claim(self, most_bytes: int | None = None) -> _Cursor:
        """Send the fast path, together with earlier statements. ``most_bytes``: the limit of its result."""
        request = self._request
        values = {"now": self._now, "until": self._now + request.lease, "worker_id": request.worker_id}
        return self._rows.send("take_plain", **values, limit=request.limit, most_bytes=most_bytes)

    def read_fast_claim(self, sent: _Cursor) -> list[Claim] | None:
        """Read the result of the fast path. None: a special case, nothing is taken."""
        found, until = sent.fetchall(), self._now + self._request.lease
        claims = [_claim(row, until, own=1) for row in found if row[0]]
        # Locked rows were taken; if not, the general path finds out why.
        self.plain = bool(found) and (bool(claims) or found[0][1] is None)
        self.rows_read += len(claims)
        return claims if self.plain else None

    def send_candidates(self, limit: int) -> tuple[_Cursor, _Cursor]:
        """Send the candidate query, together with earlier statements."""
        before = self._rows.send("before_claim", now=self._now)
        limit = min(limit, self._request.limit)
        return before, self._rows.send("candidates", limit=limit, locks=self._locks)

    def take(self, sent: tuple[_Cursor, _Cursor]) -> ClaimResult | None:
        """Take or hold back all candidates: concurrent claims skip them meanwhile.

        None: nothing was taken, and there are more rows.
        """
        before, candidates = sent
        due, paused = self._read(before)
        read = candidates.fetchall()
        if self.all_paused:
            return ClaimResult([])
        found, cut = self._tried(read)
        if due:
            # A due row may come before the candidates.
            self._promote()
            return None if (claims := self._rounds(paused, None)) is None else ClaimResult(claims)
        self.plain = self.plain and not (paused or self.keyed) and all(row[_TURN] != SUSPECT for row in found)
        if not paused and self._simple(found):
            # The result is read after the commit, so refused rows are unknown until then.
            return self._take(found)
        claims = self._rounds(paused, (found, cut))
        return None if claims is None else ClaimResult(claims, complete=self._locks > 0)

    def run(self) -> list[Claim] | None:
        due, paused = self._read(self._rows.send("before_claim", now=self._now))
        if self.all_paused:
            return []
        if due:
            self._promote()
        return self._rounds(paused, None)

    def _read(self, before: _Cursor) -> tuple[bool, frozenset[Scope]]:
        """Read whether a row is due, and the paused scopes."""
        found = before.fetchall()
        known = [as_pause(*row[1:]) for row in found if row[1] is not None]
        self.all_paused = everything_paused(known)
        self.resuming = active_resume(known) is not None
        self.plain = not found[0][0]
        return found[0][0], held_scopes(known)

    def _promote(self) -> None:
        limit = max(self._request.limit, DUE_AT_ONCE)
        number = self._rows.scalar("promote", now=self._now, limit=limit)
        self._rows.news = self._rows.news or number > self._request.limit

    # Plain case: nothing to choose.

    def _simple(self, found: list[_Row]) -> bool:
        if any(row[_TURN] == SUSPECT or not row[_LOCKED] for row in found):
            return False
        wanted = [row[_LOCK_AT] for row in found if _wants_lock(row)]
        return len(set(wanted)) == len(wanted)

    # General case.

    def _rounds(self, paused: frozenset[Scope], read: tuple[list[_Row], bool] | None) -> list[Claim] | None:
        taken: list[Claim] = []
        room = self._request.limit - self._before
        # As many rows as the other engines read in their rounds.
        limit = self._request.limit + (ROUNDS - 1) * HELD_BACK_AT_ONCE
        rounds = count()
        while read or (self.rows_read < limit and self._locks > 0 and next(rounds) < _MAX_ROUNDS):
            first = not taken and not self._before
            found, cut = read or self._candidates(room, oldest=self._request.oldest and not self.rows_read)
            read = None
            choice = self._choose(found, room, paused, first=first)
            by_id = {row[_ID_AT]: row for row in found}
            # Paused rows are held back before the next row of their lock is taken. Rows held back wake others
            # only after that: not for a lock that is taken now.
            paused, moving = self._hold_for_pause(choice.hold, paused)
            took = self._take([by_id[candidate.row] for candidate in choice.take]).claims()
            taken += took
            room -= len(took)
            self._hold(choice.hold)
            refused = len(took) < len(choice.take)
            if (choice.closed and not refused) or not (choice.hold or cut or refused) or (cut and taken):
                return taken
            if moving:
                break
            if not took:
                self._hold_ahead(room, paused)
        return taken or None

    def _hold_ahead(self, room: int, paused: frozenset[Scope]) -> None:
        """Hold back many rows at once.

        Not with ``_candidates``, which locks rows: concurrent claims would have to skip them.
        """
        ahead = [Candidate(*row) for row in self._rows.fetch("ahead_rows", limit=HELD_BACK_AT_ONCE)]
        self.rows_read += len(ahead)
        locked = self._held({each.lock_key for each in ahead if each.lock_key and not each.lock_held})
        choice = choose(ahead, room, first=False, locked=locked, paused=paused)
        held = [each for each in choice.hold if each[1] is Held.PAUSE or each[0].lock_key in locked]
        self._hold_for_pause(held, paused)
        self._hold(held)

    def _candidates(self, size: int, *, oldest: bool) -> tuple[list[_Row], bool]:
        first = self._rows.fetch("priority_head") if oldest else []
        found = self._rows.fetch("candidates", limit=size, locks=self._locks - len(first))
        if first:
            self._oldest = first[0][_ID_AT]
            found = [*first, *(row for row in found if row[_ID_AT] != self._oldest)][:size]
        return self._tried(found)

    def _tried(self, found: list[_Row]) -> tuple[list[_Row], bool]:
        """Cut the rows before the first with an untried lock. Returns whether some were cut off."""
        untried = next((place for place, row in enumerate(found) if row[_LOCKED] is None), len(found))
        self.rows_read += untried
        keyed = sum(map(_wants_lock, found[:untried]))
        self.keyed = max(self.keyed, keyed)
        self._locks -= keyed
        return found[:untried], untried < len(found)

    def _choose(self, found: Sequence[_Row], room: int, paused: frozenset[Scope], *, first: bool) -> Choice:
        candidates = [
            Candidate(
                row[_ID_AT], row[_TURN], row[_LOCK_AT], row[_HOLDS_LOCK], row[_TENANT_AT], row[_COLLECTION_AT]
            )
            for row in found
        ]
        locked = {row[_LOCK_AT] for row in found if not row[_LOCKED]}
        wanted = {row[_LOCK_AT] for row in found if _wants_lock(row)} - locked
        locked |= self._held(wanted)
        return choose(candidates, room, first=first, locked=locked, paused=paused)

    def _held(self, keys: Collection[str]) -> set[str]:
        found = self._rows.fetch("held_locks", keys=texts(keys)) if keys else []
        return {key for (key,) in found}

    def _hold_for_pause(
        self, held: Sequence[tuple[Candidate, Held]], paused: frozenset[Scope]
    ) -> tuple[frozenset[Scope], bool]:
        """Hold paused rows back. Returns the scopes paused now, since a pause may have ended meanwhile.

        Also returns whether a resume is moving rows, or is about to: it holds them back itself, and until it
        has done so another round would only read the same rows again.
        """
        ids = [str(each.row) for each, reason in held if reason is Held.PAUSE]
        if not ids or len(self._rows.fetch("hold_for_pause", now=self._now, ids=texts(ids))) == len(ids):
            return paused, False
        scopes = held_scopes(as_pause(*row) for row in self._rows.fetch("pauses"))
        return scopes, scopes == paused

    def _hold(self, held: Sequence[tuple[Candidate, Held]]) -> None:
        rows = self._rows
        for_lock = [each for each, reason in held if reason is Held.LOCK]
        for_pause = [each for each, reason in held if reason is Held.PAUSE]
        if for_lock:
            rows.send("hold_for_lock", now=self._now, ids=texts(str(each.row) for each in for_lock))
            rows.to_wake.update(each.lock_key for each in for_lock if each.lock_key is not None)
        if for_pause:
            # Each of the rows may have been woken for its lock.
            keys = {each.lock_key for each in for_pause if each.lock_key is not None and not each.lock_held}
            rows.to_wake.update(keys)
            wake(rows, sorted(keys), self._now)

    def _take(self, found: Sequence[_Row]) -> ClaimResult:
        if not found:
            return ClaimResult([])
        keys = [None if row[_HOLDS_LOCK] else row[_LOCK_AT] for row in found]
        # A refused row is parked, so its lock is checked again after the commit.
        self._rows.to_wake.update(key for key in keys if key is not None)
        leases = {
            item_type: self._now + self._request.lease_of(item_type)
            for item_type in {row[_TYPE_AT] for row in found}
        }
        one_lease = len(set(leases.values())) == 1
        update = self._rows.send(
            "take",
            now=self._now,
            worker_id=self._request.worker_id,
            ids=texts(row[_ID_AT] for row in found),
            until=leases[found[0][_TYPE_AT]],
            leases=times(() if one_lease else (leases[row[_TYPE_AT]] for row in found)),
            keys=texts(keys),
            oldest=self._oldest,
        )
        return ClaimResult([_claim(row, leases[row[_TYPE_AT]]) for row in found], update)


def try_claim_alone(
    connections: PostgresConnections, request: ClaimRequest, now: datetime
) -> tuple[list[Claim] | None, int]:
    """Try the fast path as a transaction of one statement. Returns claims or None, and rows read."""
    with connections.borrowed() as connection:
        try:
            claim = PostgresClaim(PostgresRows(connection), request, now)
            return claim.read_fast_claim(claim.try_fast_claim()), claim.rows_read
        except RETRYABLE_ERRORS:
            return None, 0
        except psycopg.Error as error:
            raise refusal(error, connections, in_doubt=connection.broken) from error


def _wants_lock(row: _Row) -> bool:
    return row[_LOCK_AT] is not None and not row[_HOLDS_LOCK]


def _claim(row: _Row, until: datetime, *, own: int = _OWN) -> Claim:
    """Build a claim from a row. ``own``: number of columns before those of the claim."""
    values = (*row[own:], until)
    return Claim(*values)


_MOST_BYTES = 64 << 10
"""Limit for payloads and the like in an unread result. Sockets hold at least twice as much."""


def fits_unread(claims: Sequence[Claim]) -> bool:
    """Check whether a result with such claims can wait to be read."""
    sizes = (len(each.payload_json) + len(each.metadata) + len(each.progress_json or "") for each in claims)
    return sum(sizes) <= _MOST_BYTES


class PlainExchange:
    """An exchange of plain jobs whose result is read later: the server works while the worker does.

    All statements up to the commit are sent at once, so none can depend on the result of another. That is
    enough for plain jobs: settlements that ended no row are settled again, as any others, once the result is
    read. The server commits before that, so the rows are locked only for a moment, whatever a job does
    meanwhile. A result that does not fit into the buffers of the connection would keep the transaction open
    until it is read, so claims with large payloads are not sent (``fits_unread``).
    """

    def __init__(
        self,
        connections: PostgresConnections,
        settlements: Sequence[Settlement],
        request: ClaimRequest,
        now: datetime,
        *,
        settle: Callable[[Sequence[Settlement]], list[Status | None]],
        repeat: Callable[[], Exchange],
        record: Callable[..., Any],
    ) -> None:
        """``repeat``: does the exchange if this one met another transaction; ``record``: what was plain.

        Raises ``psycopg.Error`` if the session ended; nothing was done then.
        """
        self._connections = connections
        self._settlements = settlements
        self._settle = settle
        self._repeat = repeat
        self._record = record
        self._committing = False
        self._borrowed = ExitStack()
        connection = self._borrowed.enter_context(connections.borrowed())
        self._connection = connection
        self._pipeline = connection.pipeline()
        try:
            self._pipeline.__enter__()
            rows = PostgresRows(connection)
            rows.execute("BEGIN", {})
            self._ended = rows.send_finish("finish_unread", settlements, now) if settlements else None
            self._claim = PostgresClaim(rows, request, now)
            self._taken = self._claim.try_fast_claim(_MOST_BYTES)
            self._committing = True
            self._commit = rows.execute("COMMIT", {})
        except BaseException as error:
            self._give_up()
            if isinstance(error, psycopg.Error) and self._committing:
                raise refusal(error, connections, in_doubt=True) from error
            raise

    def finish(self) -> Exchange:
        found = self._read()
        if found is None:
            return self._repeat()
        ended, claims = found
        left = [each for each in self._settlements if each.queue_id not in ended]
        self._record(claims=claims is not None, ends=not left, rows_read=self._claim.rows_read)
        if not left:
            return Exchange([Status.DONE] * len(self._settlements), claims or [])
        answers = dict(zip((each.queue_id for each in left), self._settle(left), strict=True))
        settled = [answers.get(each.queue_id, Status.DONE) for each in self._settlements]
        return Exchange(settled, claims or [])

    def _read(self) -> tuple[set[str], list[Claim] | None] | None:
        """Read the ids of ended jobs, and the claims; None for claims: a special case, nothing is taken.

        None: the transaction met another one, and nothing was done.
        """
        try:
            ((ended,),) = self._ended.fetchall() if self._ended is not None else ((None,),)
            claims = self._claim.read_fast_claim(self._taken)
            self._pipeline.__exit__(None, None, None)
        except BaseException as error:
            broken = self._connection.broken
            self._give_up()
            if isinstance(error, RETRYABLE_ERRORS):
                return None
            if isinstance(error, psycopg.Error):
                raise refusal(error, self._connections, in_doubt=broken) from error
            raise
        self._borrowed.close()
        return set(ended or ()), claims

    def _give_up(self) -> None:
        """Close the connection, as the driver may count a statement as prepared that never ran."""
        with suppress(psycopg.Error):
            self._connection.close()
        self._borrowed.close()
