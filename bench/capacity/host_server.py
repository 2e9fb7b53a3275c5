"""Counters of a PostgreSQL server: transactions, connections and the waits of its sessions."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import psycopg

TRANSACTIONS = b"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
CONNECTIONS = b"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
WAITS = (
    b"SELECT coalesce(wait_event_type || ': ' || wait_event, 'running'), count(*) FROM pg_stat_activity"
    b" WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid() GROUP BY 1"
)
SAMPLED_S = 0.05
REPORTED_S = 1.5
"""Sessions report what they did up to a second later."""


def number(connection: psycopg.Connection[Any], statement: bytes) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0


def loopback_bytes() -> int:
    """Bytes sent over the loopback interface of this network namespace."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    return 0


class Waits:
    """Samples of active sessions, and of what they wait for, while a block runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stopped.wait(SAMPLED_S):
                self.seen.update(dict(connection.execute(WAITS).fetchall()))

    def shares(self) -> dict[str, float]:
        total = self.seen.total() or 1
        return {name: count / total for name, count in self.seen.most_common()}


def wait_for_reports() -> None:
    time.sleep(REPORTED_S)
