"""States of a server in which it serves nothing, or only reads: made and undone by a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress

import psycopg
import redis

from tests.servers import postgres
from tests.servers import redis as redis_servers

POLITE_S = 15
"""Time for a server to stop politely; one that just recovers from a crash may take minutes."""
State = Callable[[], AbstractContextManager[object]]

_ALL_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name = 'penstock'
"""


@contextmanager
def with_setting(server: postgres.PostgresServer, name: str, value: str) -> Iterator[None]:
    """Change a setting of the whole server, as an administrator or a tool for switchovers does."""
    with psycopg.connect(server.url(), autocommit=True, options="-cdefault_transaction_read_only=off") as own:
        own.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        own.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            own.execute(f"ALTER SYSTEM RESET {name}".encode())
            own.execute("SELECT pg_reload_conf()")


def end_sessions(url: str) -> int:
    """End all sessions of Penstock, as an administrator may; return their number."""
    with psycopg.connect(url, autocommit=True) as own:
        found = own.execute(_ALL_OTHERS.encode()).fetchone()
    assert found is not None
    return int(found[0])


@contextmanager
def sessions_ended(server: postgres.PostgresServer) -> Iterator[None]:
    """End all sessions, again and again."""
    over = threading.Event()

    def end() -> None:
        while not over.wait(0.1):
            end_sessions(server.url())

    end_sessions(server.url())
    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def stopped(server: postgres.PostgresServer) -> Iterator[None]:
    """Stop the server as for an upgrade, or at once where it takes long to end its sessions."""
    try:
        server.stop("fast", POLITE_S)
    except RuntimeError:
        server.stop("immediate")
    try:
        yield
    finally:
        server.start()


@contextmanager
def told(url: str, command: str, back: str) -> Iterator[None]:
    """Send a command to a Redis server, and another one to undo it."""
    with redis_servers.connect(url) as client:
        client.execute_command(*command.split())
        try:
            yield
        finally:
            client.execute_command(*back.split())


@contextmanager
def busy(url: str) -> Iterator[None]:
    """Let a script run without end."""

    def loop() -> None:
        with redis_servers.connect(url) as client, suppress(redis.exceptions.RedisError):
            client.eval("while true do end", 0)

    with redis_servers.connect(url) as client:
        client.config_set("lua-time-limit", 1)
        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            client.script_kill()
            thread.join()


@contextmanager
def another_password(url: str) -> Iterator[None]:
    """Change the password, and end the sessions from before."""
    with redis_servers.connect(url) as client:
        client.config_set("requirepass", "another")
        client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
        client.execute_command("CLIENT KILL TYPE pubsub")
        try:
            yield
        finally:
            client.config_set("requirepass", "")


def of_postgres(server: postgres.PostgresServer) -> Mapping[str, State]:
    """Ways to make a PostgreSQL server unusable for a while, by name."""
    return {
        "read-only server": lambda: with_setting(server, "default_transaction_read_only", "on"),
        "ended sessions": lambda: sessions_ended(server),
        "restart": lambda: stopped(server),
    }


def of_redis(server: redis_servers.Server) -> Mapping[str, State]:
    """Ways to make a Redis server unusable for a while, by name."""
    url = server.url
    replica = f"REPLICAOF 127.0.0.1 {server.port + 1}"
    few = "CONFIG SET min-replicas-to-write"
    return {
        "read-only server": lambda: told(url, replica, "REPLICAOF NO ONE"),
        "no replicas": lambda: told(url, f"{few} 1", f"{few} 0"),
        "lost login": lambda: another_password(url),
    }
