"""Adding one job to a PostgreSQL queue in one round trip, where nothing stands in its way.

The statement is a transaction of its own. It decides nothing: what it does not write, the rules decide on.
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
from penstock.queue.postgres.rows import SQL
from penstock.queue.postgres.transaction import refusal

_PLACE = re.compile(r"%\((\w+)\)s")
_PARAMETERS = list(dict.fromkeys(_PLACE.findall(SQL["add_plain"])))
_ADD = _PLACE.sub(lambda found: f"${_PARAMETERS.index(found[1]) + 1}", SQL["add_plain"]).encode()
_NAME = b"penstock_add"
_prepared: WeakSet[Connection] = WeakSet()
"""Sessions that know the statement."""
_FOUND = b"SELECT created_at FROM unified_queue WHERE queue_id = %s"


def try_add(connections: PostgresConnections, channel: str, job: Job, limits: QueueLimits) -> bool:
    """Whether it was written; if not, nothing was."""
    values = _values(job, limits) | {"channel": channel}
    with connections.borrowed() as connection:
        try:
            return _sent(connection, values)
        except RETRYABLE_ERRORS:
            return False
        except psycopg.Error as error:
            if not connection.broken:
                raise refusal(error, connections, in_doubt=False) from error
    # A session that ended while nobody used it, or in the middle of this. By its id the row tells which.
    with connections.borrowed() as connection:
        try:
            return _sent(connection, values) or _is_there(connection, job)
        except psycopg.Error as error:
            raise refusal(error, connections, in_doubt=connection.broken) from error


def _sent(connection: Connection, values: dict[str, str | None]) -> bool:
    """Past the driver's cursors: turning twenty values into parameters costs more than all else here."""
    sent = [None if (value := values[name]) is None else value.encode() for name in _PARAMETERS]
    if connection in _prepared:
        # After a ROLLBACK the driver has the session forget its statements, and this one with them.
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
            # Whether the session knows the statement now is not known here; once more it would refuse it.
            connection.close()
        raise
    _prepared.add(connection)


def _answer(connection: Connection) -> PGresult:
    # The commit comes after the statement's own answer: a session that ends there says so behind it.
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return results[-1]


def _is_there(connection: Connection, job: Job) -> bool:
    found = connection.execute(_FOUND, (job.queue_id,), binary=True).fetchone()
    return found is not None and found[0] == job.created_at


def _values(job: Job, limits: QueueLimits) -> dict[str, str | None]:
    """All as text: a number's size would make it another statement to the driver."""
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
