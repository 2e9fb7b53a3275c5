"""Fast path of add on PostgreSQL: one plain job in one statement and round trip.

The statement is its own transaction. It decides nothing: a job that it does not write is left to the rules.
"""

from __future__ import annotations

import re
from contextlib import suppress
from weakref import WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.database.postgres_errors import RETRYABLE_ERRORS
from penstock.job import Job, QueueLimits
from penstock.queue.postgres.pause_rows import SQL
from penstock.queue.postgres.transaction import refusal

_PLACE = re.compile(r"%\((\w+)\)s")
_PARAMETERS = list(dict.fromkeys(_PLACE.findall(SQL["add_plain"])))
_ADD = _PLACE.sub(lambda found: f"${_PARAMETERS.index(found[1]) + 1}", SQL["add_plain"]).encode()
_NAME = b"penstock_add"
_prepared: WeakSet[Connection] = WeakSet()
"""Sessions with the prepared statement."""
_FOUND = b"SELECT created_at FROM unified_queue WHERE queue_id = %s"


def try_add(connections: PostgresConnections, channel: str, job: Job, limits: QueueLimits) -> bool:
    """Try to add a job. False: nothing was written."""
    values = _values(job, limits) | {"channel": channel}
    with connections.borrowed() as connection:
        try:
            return _sent(connection, values)
        except RETRYABLE_ERRORS:
            return False
        except psycopg.Error as error:
            if not connection.broken:
                raise refusal(error, connections, in_doubt=False) from error
    # The session ended while idle, or during this call. The row with this id tells which.
    with connections.borrowed() as connection:
        try:
            return _sent(connection, values) or _is_there(connection, job)
        except psycopg.Error as error:
            raise refusal(error, connections, in_doubt=connection.broken) from error


def _sent(connection: Connection, values: dict[str, str | None]) -> bool:
    """Send without the driver's cursors: adapting twenty values would cost more than all the rest."""
    sent = [None if (value := values[name]) is None else value.encode() for name in _PARAMETERS]
    if connection in _prepared:
        # After a ROLLBACK the driver deallocates all prepared statements of the session.
        with suppress(psycopg.errors.InvalidSqlStatementName):
            return _executed(connection, sent)
    _prepare(connection)
    return _executed(connection, sent)


def _executed(connection: Connection, values: list[bytes | None]) -> bool:
    connection.pgconn.send_query_prepared(_NAME, values)
    return _answer(connection).ntuples == 1


def _prepare(connection: Connection) -> None:
    try:
        connection.pgconn.send_prepare(_NAME, _ADD)
        _answer(connection)
    except BaseException:
        if not connection.broken:
            # It is unknown whether the statement is prepared; a second PREPARE would fail.
            connection.close()
        raise
    _prepared.add(connection)


def _answer(connection: Connection) -> PGresult:
    # The commit follows the result of the statement: its failure is in a later result.
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return results[-1]


def _is_there(connection: Connection, job: Job) -> bool:
    found = connection.execute(_FOUND, (job.queue_id,), binary=True).fetchone()
    return found is not None and found[0] == job.created_at


def _values(job: Job, limits: QueueLimits) -> dict[str, str | None]:
    """Encode all values as text: with sized numbers the driver would see different statements."""
    functions = job.item_type == "function"
    return {
        "queue_id": job.queue_id,
        "item_type": job.item_type,
        "op": job.op,
        "tenant_id": job.tenant_id,
        "collection": job.collection,
        "branch": job.branch,
        "priority": str(job.priority),
        "now": job.created_at.isoformat(),
        "idempotency_key": job.idempotency_key,
        "dedupe": "t" if job.dedupe else "f",
        "max_retries": str(job.max_retries),
        "timeout_s": str(job.timeout_s),
        "submitted_by": job.submitted_by,
        "lock_key": job.lock_key,
        "payload_json": job.payload_json,
        "metadata": job.metadata,
        "functions": _limit(limits.functions if functions else None),
        "indexing": _limit(None if functions else limits.indexing),
        "per_tenant": _limit(None if functions else limits.per_tenant),
    }


def _limit(most: int | None) -> str | None:
    return None if most is None else str(most)
