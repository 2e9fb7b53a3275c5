"""A PostgreSQL for the measurements, as durable as in earnest, and what it says of its own work."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.servers.postgres import PostgresServer, in_schema

OWN_SERVER = "PENSTOCK_BENCH_POSTGRES_URL"
_NOTE = "postgres.json"
_url: list[str] = []


def store(directory: Path) -> str:
    """The URL of the directory's store: a schema of its own, made by who asks first."""
    note = directory / _NOTE
    if not note.exists():
        schema = f"bench_{secrets.token_hex(6)}"
        # Below what the caller has chosen, so that it is on the disk, or in the memory, that is measured.
        server = _server(directory.parents[1])
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        note.write_text(json.dumps(in_schema(server, schema)))
    url: str = json.loads(note.read_text())
    return url


def _server(below: Path) -> str:
    if not _url:
        _url.append(os.environ.get(OWN_SERVER) or _started(below))
    return _url[0]


def _started(below: Path) -> str:
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-postgres-", dir=below))
    server = PostgresServer(home)
    server.create()
    server.start(shared_buffers="256MB", max_wal_size="4GB")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    atexit.register(server.stop)
    return server.url()


class Work(NamedTuple):
    """What the server has counted since it started."""

    commits: int
    writes: int
    cpu_s: float

    def since(self, before: Work) -> Work:
        return Work(self.commits - before.commits, self.writes - before.writes, self.cpu_s - before.cpu_s)


def work(connection: psycopg.Connection[Any]) -> Work:
    """Sessions hand in their counts when they end, so ask once the contender is closed."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    writes = (
        "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables "
        "WHERE relname = 'unified_queue' AND schemaname = current_schema()"
    )
    counts = [connection.execute(statement.encode()).fetchone() for statement in (commits, writes)]
    committed, written = (int(row[0]) if row else 0 for row in counts)
    return Work(committed, written, _children_cpu_s(connection))


def _children_cpu_s(connection: psycopg.Connection[Any]) -> float:
    """CPU time of all sessions that have ended; 0 where the server is on another machine."""
    try:
        parent = _stat(connection.info.backend_pid)[1]
        return (_stat(parent)[13] + _stat(parent)[14]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def _stat(pid: int) -> list[int]:
    """Fields 3 … of /proc/PID/stat that are numbers, from the parent's on at place 1."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *(int(field) for field in fields[1:])]
