"""``?schema=NAME`` in the URL: created, used by the queue and the catalog, and apart from all others."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from penstock import Penstock, config
from penstock.catalog.values import Filters
from penstock.cli.main import cli
from penstock.errors import InvalidSetting, StoreDenied
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Scope
from penstock.queue.postgres.queue import PostgresQueue
from penstock.store_url import StoreUrl
from tests.catalog.conftest import put
from tests.servers import postgres
from tests.stores.new_jobs import new
from tests.stores.test_postgres import _left_clean

PATIENCE = 120.0


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Two unused schema names."""
    names = [f"own_{secrets.token_hex(6)}" for _ in range(2)]
    yield names
    with psycopg.connect(postgres.shared_url(), autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def url_of(name: str) -> str:
    url = postgres.shared_url()
    return f"{url}{'&' if '?' in url else '?'}schema={name}"


def application(name: str, place: Path, **options: Any) -> Penstock:
    settings = config.load(
        environ={}, url=url_of(name), state_dir=place / name, embedder="hashing", **options
    )
    return Penstock(settings=settings)


def tables(name: str) -> set[str]:
    with psycopg.connect(postgres.shared_url()) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (name,))
        return {table for (table,) in found}


def test_the_schema_is_created_and_holds_the_queue_and_the_catalog(names: list[str], tmp_path: Path) -> None:
    public = tables("public")
    with application(names[0], tmp_path) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "x"})
        put(app.documents.catalog)

    assert {"unified_queue", "penstock_migration", "documents", "catalog_migration"} <= tables(names[0])
    assert public == tables("public")


@pytest.mark.parametrize("pooled", [False, True])
def test_two_schemas_of_one_database_know_nothing_of_each_other(
    names: list[str], tmp_path: Path, pooled: bool
) -> None:
    one, two = (application(name, tmp_path, postgres_pooler=pooled) for name in names)
    with one, two:
        if pooled:
            for app in (one, two):
                app.queue._connections._give_back = _left_clean  # type: ignore[attr-defined]
        job = new(1, lock_key="disk")
        for app in (one, two):
            # The same id, key, lock and path in both.
            app.queue.add([job])
            put(app.documents.catalog, "/a.md")
        one.queue.pause(Scope("nobody"))
        one.queue.add([new(2)])
        held = [app.queue.claim(ClaimRequest("w", 10)) for app in (one, two)]
        two.queue.settle([transitions.done(claim) for claim in held[1]])

        assert [2, 1] == [len(claims) for claims in held]
        assert [1, 0] == [len(app.queue.paused()) for app in (one, two)]
        assert [{("in_progress",): 2}, {("done",): 1}] == [
            app.queue.count(JobQuery(), by=("status",)) for app in (one, two)
        ]
        put(one.documents.catalog, "/b.md")
        for app, expected in ((one, 2), (two, 1)):
            with app.documents.catalog.snapshot() as snapshot:
                assert expected == len(snapshot.keyword("text", Filters(tenant_id="acme")))


def test_news_of_one_schema_wake_nobody_in_another(names: list[str]) -> None:
    one, two = (PostgresQueue(url_of(name)) for name in names)
    for queue in (one, two):
        while queue.wait(0):
            pass
    one.add([new(1)])

    assert one.wait(PATIENCE)
    assert not two.wait(0.1)
    one.close()
    two.close()


def test_openers_that_come_together_create_one_schema(names: list[str]) -> None:
    start = threading.Barrier(6)

    def open_one(number: int) -> None:
        start.wait(PATIENCE)
        queue = PostgresQueue(url_of(names[0]))
        queue.add([new(number)])
        queue.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(open_one, range(6)))
    queue = PostgresQueue(url_of(names[0]))
    assert {(): 6} == queue.count(JobQuery())
    queue.close()


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_job_joins_a_transaction_with_another_search_path(names: list[str], autocommit: bool) -> None:
    queue = PostgresQueue(url_of(names[0]))
    with psycopg.connect(postgres.shared_url(), autocommit=autocommit) as own:
        before = own.execute("SHOW search_path").fetchone()
        with own.transaction():
            queue.add([new(1, dedupe=False)], connection=own)
            assert before == own.execute("SHOW search_path").fetchone()
        queue.add([new(2, dedupe=False)], connection=own)
        assert before == own.execute("SHOW search_path").fetchone()

    assert {(): 2} == queue.count(JobQuery())
    queue.close()


def test_the_url_with_its_schema_is_shown_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://u:secret@127.0.0.1:1/db?sslmode=disable&schema=jobs"
    ran = CliRunner().invoke(cli, ["--url", url, "--state", str(tmp_path), "config", "show"])
    assert "postgresql://u:***@127.0.0.1:1/db?sslmode=disable&schema=jobs" in ran.stdout
    ran = CliRunner().invoke(cli, ["--url", url, "--state", str(tmp_path), "queue", "list"])

    assert 7 == ran.exit_code
    assert "postgresql://u:***@127.0.0.1:1/db (schema jobs) cannot be reached" in ran.stderr


@pytest.mark.parametrize(
    "bad", ["", "Jobs", "pg_jobs", "a-b", "1a", "a b", "x" * 64, "a;drop", "%22a%22", "a&schema=b"]
)
def test_a_name_that_cannot_be_used_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSetting, match="schema=") as refusal:
        PostgresQueue(f"postgresql://u:secret@127.0.0.1:1/db?schema={bad}")
    assert "secret" not in str(refusal.value)


def test_a_url_keeps_what_is_not_ours() -> None:
    assert ("postgresql://h/d", "a") == StoreUrl("postgresql://h/d?schema=a").split_schema()
    assert ("postgresql://h/d?x=1&y=2", "a") == StoreUrl("postgresql://h/d?x=1&schema=a&y=2").split_schema()
    assert ("postgresql://h/d?x=1", None) == StoreUrl("postgresql://h/d?x=1").split_schema()


def test_a_schema_wins_over_a_search_path_in_the_options(names: list[str]) -> None:
    queue = PostgresQueue(url_of(names[0]) + "&options=-csearch_path%3Dpublic")
    assert "unified_queue" in tables(names[0])
    queue.close()


def test_a_user_who_may_not_create_schemas_may_use_one(names: list[str]) -> None:
    role = f"role_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.shared_url(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            url = url_of(names[0]).replace("://penstock@", f"://{role}@")
            with pytest.raises(StoreDenied, match="permission denied"):
                PostgresQueue(url)
            admin.execute(f"CREATE SCHEMA {names[0]} AUTHORIZATION {role}".encode())
            PostgresQueue(url).close()
            assert "unified_queue" in tables(names[0])
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
            admin.execute(f"DROP ROLE {role}".encode())
