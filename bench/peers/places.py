"""The stores that are shared by all contenders of a run, an empty one for each session."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

IN_MEMORY = "-memory"
STORES = ("postgres", f"postgres{IN_MEMORY}", "redis", "sqlite", f"sqlite{IN_MEMORY}")
"""The same store twice: its files on a disk, or in memory."""
REDIS_DATABASES = 64
REDIS_OPTIONS = (
    *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    *("--databases", str(REDIS_DATABASES)),
)
MEMORY = Path("/dev/shm")


class Store(Protocol):
    counted: tuple[str, ...]
    """What its server counts."""

    def fresh(self, directory: Path) -> str:
        """The URL of an empty one; ``directory`` is the session's own."""

    def counts(self, url: str) -> tuple[int, ...]: ...

    def forget(self, url: str) -> None: ...


def kind(store: str) -> str:
    return store.removesuffix(IN_MEMORY)


class Files:
    counted: tuple[str, ...] = ()

    def fresh(self, directory: Path) -> str:
        return str(directory)

    def counts(self, url: str) -> tuple[int, ...]:  # noqa: ARG002 - there is no server
        return ()

    def forget(self, url: str) -> None:
        """The session's directory goes as a whole."""


class Postgres:
    """A database of its own for each session: its statistics are the contender's alone."""

    counted: tuple[str, ...] = ("commits", "row writes")

    def __init__(self, server: Any) -> None:
        import psycopg

        self._server = server
        self._admin = psycopg.connect(server.url(), autocommit=True)

    def fresh(self, directory: Path) -> str:  # noqa: ARG002 - the server has a place already
        name = f"bench_{secrets.token_hex(6)}"
        self._admin.execute(f"CREATE DATABASE {name}".encode())
        url: str = self._server.url(name)
        return url

    def counts(self, url: str) -> tuple[int, ...]:
        """Sessions hand in their counts when they end, so ask once all of them have."""
        import psycopg

        name = url.rpartition("/")[2]
        commits = self._admin.execute(
            b"SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (name,)
        ).fetchone()
        with psycopg.connect(url, autocommit=True) as connection:
            writes = connection.execute(
                b"SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables"
            ).fetchone()
        return (int(commits[0]) if commits else 0, int(writes[0]) if writes else 0)

    def forget(self, url: str) -> None:
        self._admin.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)".encode())


class Redis:
    """A database of its own for each session; number 0 is the floor's, which knows no other."""

    counted: tuple[str, ...] = ("commands",)

    def __init__(self, url: str) -> None:
        self._server = url
        self._used = 0
        self._flush(0)

    def fresh(self, directory: Path) -> str:
        # The floor finds its server by this note.
        (directory / "redis.url").write_text(self._server)
        self._used = self._used % (REDIS_DATABASES - 1) + 1
        return f"{self._server}/{self._used}"

    def counts(self, url: str) -> tuple[int, ...]:
        """Of the whole server. Those inside of scripts are counted, the scripts themselves are not."""
        with _redis(url) as client:
            statistics = client.info("commandstats")
        return (sum(each["calls"] for name, each in statistics.items() if "eval" not in name),)

    def forget(self, url: str) -> None:
        self._flush(int(url.rpartition("/")[2]))
        self._flush(0)

    def _flush(self, number: int) -> None:
        with _redis(f"{self._server}/{number}") as client:
            client.flushdb()


def _redis(url: str) -> Any:
    import redis

    return redis.Redis.from_url(url)


@contextmanager
def opened(store: str, directory: Path) -> Iterator[Store]:
    """One server for the whole run, its files below ``directory``."""
    if kind(store) == "postgres":
        from tests.servers.postgres import PostgresServer

        home = directory / "postgres"
        home.mkdir()
        # PostgreSQL refuses root; the user it runs as has to get there.
        directory.chmod(0o755)
        postgres = PostgresServer(home)
        postgres.create()
        postgres.start(shared_buffers="256MB", max_wal_size="4GB")
        try:
            yield Postgres(postgres)
        finally:
            postgres.stop()
    elif store == "redis":
        from tests.servers.redis import own_server

        with own_server(directory / "redis", *REDIS_OPTIONS) as server:
            yield Redis(server.url)
    else:
        yield Files()
