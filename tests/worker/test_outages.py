"""No state of a store ends a worker: it waits, says why and what to do, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import redis

from penstock.errors import OUTAGES
from penstock.job import Status
from tests.power_loss.recording import COMPILER
from tests.servers import postgres
from tests.servers import redis as redis_servers
from tests.servers.stores import ON_FILES, given_back
from tests.stores.test_driver_errors import RAISING
from tests.worker.faults import Faults
from tests.worker.worker_processes import Worker, WorkerHost, until

OPTIONS = {"processes": 1, "upkeep_s": 0.2}


@contextmanager
def working(host: WorkerHost) -> Iterator[Worker]:
    """A worker at work, that has neither ended nor lost a process by the end of the block."""
    worker = host.worker(**OPTIONS)
    host.ended(host.put())
    children = worker.children()
    yield worker
    assert (None, children) == (worker.process.poll(), worker.children()), worker.log
    assert "Traceback" not in worker.log


def outlast(host: WorkerHost, worker: Worker, fault: AbstractContextManager[object], *told: str) -> None:
    """Check that the worker says what is wrong during a fault, and ends the job that waits afterwards."""
    waiting = host.put("sleep", payload={"seconds": 0.2})
    host.began(waiting)
    before = len(worker.log)
    with fault:
        until(lambda: all(words in worker.log[before:] for words in told))
    until(lambda: _ended(host, waiting))
    assert Status.DONE is host.job(waiting).status
    assert Status.DONE is host.ended(host.put()).status


def _ended(host: WorkerHost, job_id: str) -> bool:
    with suppress(*OUTAGES):
        return host.job(job_id).ended
    return False


# PostgreSQL.


@contextmanager
def refusing(url: str, state: str) -> Iterator[None]:
    """Let the server refuse every write to a job with this SQLSTATE."""
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("DELETE FROM refused")
        own.execute("INSERT INTO refused VALUES (%s)", (state,))
        yield
        own.execute("DELETE FROM refused")


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[WorkerHost]:
    host = WorkerHost("postgres", tmp_path, postgres.fresh_store())
    with psycopg.connect(host.url, autocommit=True) as own:
        found = own.execute("SELECT current_schema()").fetchone()
        assert found is not None
        own.execute(RAISING.format(schema=f'"{found[0]}"').encode())
    yield host
    host.close()


@pytest.mark.parametrize(
    "states",
    [
        pytest.param({"25006": "Point its URL", "42P05": "PENSTOCK_POSTGRES_POOLER=true"}, id="some"),
        pytest.param(
            {
                "25P03": "idle in its transaction",
                "25P04": "transaction_timeout",
                "XX000": "internal error",
                "57P01": "cannot be reached",
                "53100": "no space left",
                "42501": "does not let this user",
                "26000": "PENSTOCK_POSTGRES_POOLER=true",
                "42601": "ERR_STATEMENT_REFUSED",
            },
            id="more",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_server_that_refuses_writes_for_a_while_ends_no_worker(
    refused: WorkerHost, states: dict[str, str]
) -> None:
    with working(refused) as worker:
        for state, told in states.items():
            outlast(refused, worker, refusing(refused.url, state), "the store is unavailable", told)


def until_ready(host: WorkerHost, worker: Worker, wanted: Callable[[], object]) -> None:
    until(lambda: bool(wanted()) or worker.process.poll() is not None)


@contextmanager
def setting(server: postgres.PostgresServer, name: str, value: str) -> Iterator[None]:
    """Change a setting of the whole server, as an administrator or a tool for switchovers does."""
    with psycopg.connect(server.url(), autocommit=True, options="-cdefault_transaction_read_only=off") as own:
        own.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        own.execute("SELECT pg_reload_conf()")
        yield
        own.execute(f"ALTER SYSTEM RESET {name}".encode())
        own.execute("SELECT pg_reload_conf()")


def end_sessions(url: str) -> int:
    """End all other sessions of the server, as an administrator may."""
    with psycopg.connect(url, autocommit=True) as own:
        found = own.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.long
def test_a_switchover_a_restart_and_ended_sessions_end_no_worker(tmp_path: Path) -> None:
    with postgres.own_server() as server:
        host = WorkerHost("postgres", tmp_path, server.url())
        with working(host) as worker:
            read_only = setting(server, "default_transaction_read_only", "on")
            outlast(host, worker, read_only, "can only be read", "Point its URL")
            for _ in range(3):
                assert end_sessions(server.url())
                assert Status.DONE is host.ended(host.put()).status
            server.stop("fast")
            until(lambda: "cannot be reached" in worker.log)
            server.start()
            until(lambda: "the store is available again" in worker.log)
            assert Status.DONE is host.ended(host.put()).status
        host.close()


# Redis.


@contextmanager
def told_to(url: str, command: str, back: str) -> Iterator[None]:
    with redis_servers.connect(url) as client:
        client.execute_command(*command.split())
        yield
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
        yield
        client.script_kill()
        thread.join()


@contextmanager
def password(url: str) -> Iterator[None]:
    """Change the password, and end the sessions from before."""
    with redis_servers.connect(url) as client:
        client.config_set("requirepass", "another")
        client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
        client.execute_command("CLIENT KILL TYPE pubsub")
        yield
        client.config_set("requirepass", "")


def test_a_redis_server_that_cannot_be_written_for_a_while_ends_no_worker(tmp_path: Path) -> None:
    with redis_servers.own_server(tmp_path / "redis") as server:
        host = WorkerHost("redis", tmp_path, server.url)
        with working(host) as worker:
            replica = told_to(server.url, f"REPLICAOF 127.0.0.1 {server.port + 1}", "REPLICAOF NO ONE")
            outlast(host, worker, replica, "is a replica that cannot be written", "Point the URL")
            outlast(host, worker, password(server.url), "refuses the login", "Check user and password")
        host.close()


@pytest.mark.long
def test_other_states_of_a_redis_server_end_no_worker(tmp_path: Path) -> None:
    with redis_servers.own_server(tmp_path / "redis") as server:
        host = WorkerHost("redis", tmp_path, server.url)
        with working(host) as worker:
            few = "CONFIG SET min-replicas-to-write"
            outlast(
                host, worker, told_to(server.url, f"{few} 1", f"{few} 0"), "lost its primary or its replicas"
            )
            outlast(host, worker, busy(server.url), "is busy with another script", "SCRIPT KILL")
        host.close()


# Files.


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to make faults with")
@pytest.mark.parametrize("engine", ON_FILES)
def test_a_disk_that_is_full_or_read_only_for_a_while_ends_no_worker(engine: str, tmp_path: Path) -> None:
    host = WorkerHost(engine, tmp_path)
    (tmp_path / "machine").mkdir()
    faults = Faults(tmp_path / "machine", f"{tmp_path}/queue")
    host.environment |= faults.environment
    with working(host) as worker:
        outlast(host, worker, faults.on(disk_full=True), "the store is unavailable")
        outlast(host, worker, faults.on(read_only=True), "the store is unavailable")
    host.close()
    given_back(tmp_path)
