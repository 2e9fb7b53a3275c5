"""PostgreSQL errors: refused, slow or gone; one typed line with a remedy and without secrets."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import psycopg
import pytest

from penstock import Penstock, errors
from penstock.clock import new_ids
from penstock.database.postgres import PostgresConnections, translate_error
from penstock.queue.job import ClaimRequest, JobQuery, NewJob
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import PostgresRows, transact
from tests.servers import postgres

SECRET = "s3cret-w0rd"
PATIENCE_S = 120


def jobs(count: int) -> list[NewJob]:
    return [
        NewJob(
            queue_id=queue_id,
            item_type="file",
            op="ingest",
            tenant_id="t",
            collection="c",
            idempotency_key=queue_id,
            payload_json="{}",
        )
        for queue_id in new_ids(count)
    ]


@contextmanager
def refused(kind: type[errors.PenstockError], *, message: str = "", remedy: str = "") -> Iterator[None]:
    with pytest.raises(kind) as refusal:
        yield
    assert kind is type(refusal.value)
    assert message in refusal.value.message
    assert remedy in refusal.value.remedy
    assert refusal.value.remedy
    assert "\n" not in refusal.value.message
    assert SECRET not in f"{refusal.value.message} {refusal.value.remedy}"


def with_user(url: str, user: str, password: str = "") -> str:
    return url.replace("//penstock@", f"//{user}:{password}@" if password else f"//{user}@")


@pytest.fixture
def url() -> str:
    return postgres.fresh_store()


@pytest.fixture
def own(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


Own = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def role(own: Own) -> Iterator[str]:
    """Create a user without rights."""
    name = f"role_{new_ids(1)[0]}"
    own.execute(f"CREATE ROLE {name} LOGIN".encode())
    yield name
    own.execute(f"DROP OWNED BY {name}".encode())
    own.execute(f"DROP ROLE {name}".encode())


# Getting in.


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with refused(errors.StoreUnavailable, message=f"127.0.0.1:{port}", remedy="running"):
        Penstock(f"postgresql://u:{SECRET}@127.0.0.1:{port}/db")


def test_a_host_that_does_not_exist() -> None:
    with refused(errors.StoreUnavailable, message="nowhere.invalid"):
        Penstock(f"postgres://u:{SECRET}@nowhere.invalid/db?connect_timeout=5")


def test_a_wrong_password(url: str, own: Own) -> None:
    own.execute(
        "DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD 'right'; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    with refused(errors.StoreDenied, message="password", remedy="PENSTOCK_URL"):
        Penstock(with_user(url, "guarded", SECRET))


def test_a_user_who_does_not_exist(url: str) -> None:
    with refused(errors.StoreDenied, message="nobody_at_all", remedy="PENSTOCK_URL"):
        Penstock(with_user(url, "nobody_at_all", SECRET))


def test_a_user_who_may_not_log_in(url: str, own: Own) -> None:
    own.execute(
        "DO $$ BEGIN CREATE ROLE locked_out NOLOGIN; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    with refused(errors.StoreDenied, message="not permitted to log in", remedy="PENSTOCK_URL"):
        Penstock(with_user(url, "locked_out", SECRET))


def test_a_database_that_does_not_exist() -> None:
    missing = postgres.shared_url().partition("?")[0].rpartition("/")[0] + "/no_such_database"
    with refused(errors.StoreUnavailable, message="no_such_database", remedy="createdb"):
        Penstock(missing)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@host:port/db",
        f"postgresql://u:{SECRET}@h/d?bad=1",
        f"postgresql://u:{SECRET}%DF@h/d",
        f"postgresql://u:{SECRET}@h/d?connect_timeout=soon",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    with refused(errors.InvalidSetting, remedy="postgresql://USER"):
        Penstock(url)


def test_no_connection_left(url: str, own: Own, role: str) -> None:
    own.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1".encode())
    own.execute(f"GRANT ALL ON SCHEMA {_schema(own)} TO {role}".encode())
    with (
        psycopg.connect(with_user(url, role)),
        refused(errors.StoreUnavailable, message="no connection left", remedy="max_connections"),
    ):
        PostgresQueue(with_user(url, role))


def test_a_driver_that_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from penstock import Penstock\n"
        "from penstock.errors import DriverMissing\n"
        "try: Penstock('postgresql://u:p@localhost/db')\n"
        "except DriverMissing as error: print(error.code, error.remedy)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    remedy = r"Install it with `pip install 'psycopg\[binary\]>=[\d.]+'`, in the environment /.+\."
    assert re.fullmatch(rf"ERR_DRIVER_MISSING {remedy}\n", ran.stdout), ran.stderr


# What the server does not let us do.


def _schema(own: Own) -> str:
    found = own.execute("SELECT current_schema()").fetchone()
    assert found is not None
    return f'"{found[0]}"'


def test_a_user_who_may_not_create_tables(url: str, own: Own, role: str) -> None:
    own.execute(f"GRANT USAGE ON SCHEMA {_schema(own)} TO {role}".encode())
    with refused(errors.StoreDenied, remedy="Grant"):
        PostgresQueue(with_user(url, role))
    assert [] == own.execute("SELECT 1 FROM pg_tables WHERE schemaname = current_schema()").fetchall()


def test_a_user_who_may_only_read(url: str, own: Own, role: str) -> None:
    PostgresQueue(url).close()
    own.execute(f"GRANT USAGE ON SCHEMA {_schema(own)} TO {role}".encode())
    own.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {_schema(own)} TO {role}".encode())
    queue = PostgresQueue(with_user(url, role))
    with refused(errors.StoreDenied, remedy="Grant"):
        queue.add(jobs(1))
    assert [] == queue.find(JobQuery())
    queue.close()


def test_a_replica_can_be_read_but_not_written(url: str) -> None:
    first = PostgresQueue(url)
    first.add(jobs(1))
    first.close()
    queue = PostgresQueue(url + "%20-cdefault_transaction_read_only%3Don")
    with refused(errors.StoreReadOnly, remedy="primary"):
        queue.add(jobs(1))
    with refused(errors.StoreReadOnly):
        queue.claim(ClaimRequest("w"))
    assert {(): 1} == queue.count(JobQuery())
    assert any("can only be read now" in warning for warning in queue.check())
    queue.close()


def test_a_replica_without_a_schema(url: str) -> None:
    with refused(errors.StoreReadOnly, remedy="primary"):
        PostgresQueue(url + "%20-cdefault_transaction_read_only%3Don")


def test_a_schema_from_a_newer_version(url: str, own: Own) -> None:
    PostgresQueue(url).close()
    own.execute("INSERT INTO penstock_migration (number) VALUES (9999)")
    with refused(errors.SchemaMismatch, message="9999", remedy="Upgrade"):
        PostgresQueue(url)


def test_tables_of_somebody_else(url: str, own: Own) -> None:
    own.execute("CREATE TABLE unified_queue (a int)")
    with refused(errors.SchemaMismatch):
        PostgresQueue(url)
    found = own.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    assert [("unified_queue",)] == found


def test_a_schema_that_lacks_something(url: str, own: Own) -> None:
    queue = PostgresQueue(url)
    own.execute("ALTER TABLE unified_queue DROP COLUMN metadata CASCADE")
    for call in (queue.check, lambda: queue.add(jobs(1)), lambda: queue.get("x")):
        with refused(errors.SchemaMismatch, message="metadata"):
            call()
    queue.close()


def test_a_search_path_without_a_schema() -> None:
    with refused(errors.SchemaMismatch, remedy="search_path"):
        PostgresQueue(postgres.in_schema(postgres.shared_url(), "no_such_schema"))


def test_a_statement_that_takes_too_long(url: str, own: Own) -> None:
    queue = PostgresQueue(url, timeout_s=0.2)
    with own.transaction():
        own.execute("LOCK TABLE unified_queue")
        with refused(errors.StoreUnavailable, message="timeout", remedy="PENSTOCK_POSTGRES_TIMEOUT_S"):
            queue.add(jobs(1))
    assert 1 == len(queue.add(jobs(1)))
    assert {(): 1} == queue.count(JobQuery())
    queue.close()


@pytest.mark.parametrize("seed", [0, 9, 10, 12])
def test_a_transaction_that_failed_leaves_no_statement_the_server_does_not_know(url: str, seed: int) -> None:
    """Statements after an error in a pipeline never run, but the driver may count one as prepared."""
    random = Random(seed)
    connections = PostgresConnections(url, size=1, pooled=False, timeout_s=60)

    def work(rows: PostgresRows) -> None:
        failing, count = random.random() < 0.3, random.randint(1, 8)
        at = random.randrange(count)
        for number in range(count):
            asked = rows.execute(f"SELECT {random.randint(0, 9)} + %(x)s::int", {"x": 1})
            if failing and number == at:
                rows.execute("SELECT 1 / 0", {})
            if random.random() < 0.3:
                asked.fetchall()

    for _ in range(60):
        # By zero cannot be divided; nothing else may be wrong.
        with suppress(errors.InvalidText):
            transact(connections, "news", PostgresRows, work)
    connections.close()


def test_all_connections_busy(url: str) -> None:
    queue = PostgresQueue(url, pool_size=1, timeout_s=0.1)
    with (
        queue._connections.borrowed(),
        refused(errors.StoreUnavailable, message="all 1 connections", remedy="POSTGRES_POOL_SIZE"),
    ):
        queue.paused()
    queue.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull("could not extend file"), errors.DiskFull),
        (psycopg.errors.OutOfMemory("out of memory"), errors.StoreUnavailable),
        (psycopg.errors.AdminShutdown("terminating"), errors.StoreUnavailable),
        (psycopg.errors.CannotConnectNow("the database system is starting up"), errors.StoreUnavailable),
        (psycopg.errors.UntranslatableCharacter("no equivalent"), errors.InvalidText),
    ],
)
def test_what_cannot_be_made_to_happen_here(error: psycopg.Error, kind: type[errors.PenstockError]) -> None:
    assert kind is type(translate_error(error, "postgresql://host/db"))


def test_a_server_that_may_lose_what_it_acknowledged_says_so(url: str, own: Own) -> None:
    queue = PostgresQueue(url)
    found = own.execute("SHOW fsync").fetchone()
    assert found is not None
    assert (found[0] == "off") is any("fsync = off" in warning for warning in queue.check())
    queue.close()


# A server that goes away.


def test_what_libpq_says_several_times_is_said_once() -> None:
    with pytest.raises(errors.StoreUnavailable) as refusal:
        Penstock("postgresql://u@127.0.0.1:1/db")

    assert "postgresql://u@127.0.0.1:1/db cannot be reached (Connection refused)" == refusal.value.message
