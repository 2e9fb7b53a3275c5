"""The PostgreSQL floor: a plain SKIP LOCKED loop over the same table row, with the primary key and one claim
index only.

No dedupe, turns, locks, pause, promotion, fence or decoding. Same server, same pipeline, same NOTIFY.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.postgres_server import store
from penstock import clock
from penstock.queue import transitions
from penstock.queue.job import Job, NewJob
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import inserted, texts
from penstock.queue.sql.statements import CLAIM_COLUMNS, load

_INDEX = b"CREATE INDEX floor_claim ON unified_queue (priority DESC, created_at) WHERE status = 'pending'"
_SQL = load("postgres")
_CLAIM = f"""
UPDATE unified_queue AS q
SET status = 'in_progress', worker_id = 'bench', lease_until = now() + interval '300 s',
    claim_number = claim_number + 1, started_at = now(), updated_at = now()
FROM (
    SELECT queue_id FROM unified_queue WHERE status = 'pending'
    ORDER BY priority DESC, created_at LIMIT %s FOR UPDATE SKIP LOCKED
) AS c
WHERE q.queue_id = c.queue_id
RETURNING {", ".join(f"q.{name}" for name in CLAIM_COLUMNS)}
""".encode()
_DONE = b"""
UPDATE unified_queue SET status = 'done', lease_until = NULL, finished_at = now(), updated_at = now()
WHERE queue_id = ANY(%s::text[])
"""
_ID_AT = CLAIM_COLUMNS.index("queue_id")


class PostgresFloor:
    def __init__(self, directory: Path) -> None:
        made = (directory / "postgres.json").exists()
        url = store(directory)
        if not made:
            _create(url)
        self._connection = psycopg.connect(f"{url}%20-cenable_seqscan%3Doff", autocommit=True)
        self._listener: psycopg.Connection[Any] | None = None
        self._url = url

    def prepare(self, new: Sequence[NewJob]) -> list[Job]:
        return [transitions.added(item, clock.now(), 0) for item in new]

    def add(self, prepared: Sequence[Job]) -> None:
        with self._connection.pipeline(), self._connection.transaction():
            name, values = inserted(prepared)
            self._connection.execute(_SQL[name].encode(), values)
            self._connection.execute(b"NOTIFY floor")

    def exchange(self, held: Sequence[tuple[Any, ...]], limit: int) -> list[tuple[Any, ...]]:
        with self._connection.pipeline(), self._connection.transaction():
            if held:
                self._connection.execute(_DONE, (texts(row[_ID_AT] for row in held),))
            claimed = self._connection.execute(_CLAIM, (limit,), binary=True)
        return claimed.fetchall()

    def settle(self, held: Sequence[tuple[Any, ...]]) -> None:
        self._connection.execute(_DONE, (texts(row[_ID_AT] for row in held),))

    def wait(self, timeout: float) -> None:
        if self._listener is None:
            # What was told before is not waited for: the caller looks once more first.
            self._listener = psycopg.connect(self._url, autocommit=True)
            self._listener.execute(b"LISTEN floor")
            return
        pgconn = self._listener.pgconn
        select.select([pgconn.socket], [], [], timeout)
        pgconn.consume_input()
        while pgconn.notifies() is not None:
            pass

    def close(self) -> None:
        self._connection.close()
        if self._listener is not None:
            self._listener.close()


def _create(url: str) -> None:
    """The engine's own table, whatever its migrations make of it, without the engine's indexes."""
    PostgresQueue(url).close()
    named = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname LIKE 'idx_%'"
    with psycopg.connect(url, autocommit=True) as connection:
        for (name,) in connection.execute(named.encode()).fetchall():
            connection.execute(f"DROP INDEX {name}".encode())
        connection.execute(_INDEX)
