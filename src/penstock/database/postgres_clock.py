"""The server's time without asking for it each time.

A machine whose own clock is wrong must neither take jobs too early nor lose its own. So the time is asked of
the server, and between two questions this machine only counts how long ago that was.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import psycopg

from penstock import clock
from penstock.database.postgres_connections import PostgresConnections
from penstock.database.postgres_errors import ours

ASK_EVERY_S = 30.0
"""Two clocks that tick right drift apart by less than a few milliseconds in this time."""

_ASK = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Reading(NamedTuple):
    server: datetime
    at: float


class ServerClock:
    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._reading: _Reading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None or clock.elapsed_s() - reading.at > ASK_EVERY_S:
            reading = self._reading = self._ask()
        return reading.server + timedelta(seconds=clock.elapsed_s() - reading.at)

    def _ask(self) -> _Reading:
        with self._connections.borrowed() as connection:
            try:
                before = clock.elapsed_s()
                found = connection.execute(_ASK, binary=True).fetchone()
                after = clock.elapsed_s()
            except psycopg.Error as error:
                raise ours(error, self._connections.name) or error from error
        if found is None:
            raise AssertionError("the server has no clock")
        # It was read somewhere between question and answer.
        return _Reading(_EPOCH + timedelta(microseconds=found[0]), (before + after) / 2)
