"""Fast paths of add on PostgreSQL: plain jobs in one statement and round trip.

The statement is its own transaction. It decides nothing: jobs that it does not write are left to the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from weakref import WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.database.postgres_errors import RETRYABLE_ERRORS
from penstock.job import NewJob, QueueLimits
from penstock.queue.postgres.pause_rows import SQL
from penstock.queue.postgres.transaction import refusal
from penstock.queue.postgres.values import texts
from penstock.queue.rules.rows import refuse_unstorable

MOST_ALIKE = 5_000
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
    if first.dedupe or limited or len(new) > MOST_ALIKE:
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
