"""An exchange on PostgreSQL whose result is read later: the server works while the worker does.

All statements up to the commit are sent at once, so none can depend on the result of another. That is enough
for plain jobs: settlements that ended no row are settled again, as any others, once the result is read.

The server commits before the result is read, so the rows are locked only for a moment, whatever a job does
meanwhile. A result that does not fit into the buffers of the connection would keep the transaction open until
it is read, so claims with large payloads are not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any

import psycopg

from penstock.database.postgres_connections import PostgresConnections
from penstock.database.postgres_errors import RETRYABLE_ERRORS
from penstock.job import Claim, ClaimRequest, Settlement, Status
from penstock.queue.exchange import Exchange
from penstock.queue.postgres.claim import PostgresClaim
from penstock.queue.postgres.rows import PostgresRows
from penstock.queue.postgres.transaction import refusal

MOST_BYTES = 64 << 10
"""Limit for payloads and the like in an unread result. Sockets hold at least twice as much."""


def fits_unread(claims: Sequence[Claim]) -> bool:
    """Check whether a result with such claims can wait to be read."""
    sizes = (len(each.payload_json) + len(each.metadata) + len(each.progress_json or "") for each in claims)
    return sum(sizes) <= MOST_BYTES


class UnreadExchange:
    """An exchange that was sent, and its connection."""

    def __init__(
        self,
        connections: PostgresConnections,
        settlements: Sequence[Settlement],
        request: ClaimRequest,
        now: datetime,
    ) -> None:
        """Raises ``psycopg.Error`` if the session ended; nothing was done then."""
        self._connections = connections
        self._settlements = settlements
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
            self._taken = self._claim.try_fast_claim(MOST_BYTES)
            self._committing = True
            self._commit = rows.execute("COMMIT", {})
        except BaseException as error:
            self._give_up()
            if isinstance(error, psycopg.Error) and self._committing:
                raise refusal(error, connections, in_doubt=True) from error
            raise

    @property
    def rows_read(self) -> int:
        return self._claim.rows_read

    def read(self) -> tuple[set[str], list[Claim] | None] | None:
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


class PlainExchange:
    """A sent exchange of plain jobs."""

    def __init__(
        self,
        unread: UnreadExchange,
        settlements: Sequence[Settlement],
        *,
        settle: Callable[[Sequence[Settlement]], list[Status | None]],
        repeat: Callable[[], Exchange],
        record: Callable[..., Any],
    ) -> None:
        """``repeat``: does the exchange if this one met another transaction; ``record``: what was plain."""
        self._unread = unread
        self._settlements = settlements
        self._settle = settle
        self._repeat = repeat
        self._record = record

    def finish(self) -> Exchange:
        found = self._unread.read()
        if found is None:
            return self._repeat()
        ended, claims = found
        left = [each for each in self._settlements if each.queue_id not in ended]
        self._record(claims=claims is not None, ends=not left, rows_read=self._unread.rows_read)
        if not left:
            return Exchange([Status.DONE] * len(self._settlements), claims or [])
        answers = dict(zip((each.queue_id for each in left), self._settle(left), strict=True))
        settled = [answers.get(each.queue_id, Status.DONE) for each in self._settlements]
        return Exchange(settled, claims or [])
