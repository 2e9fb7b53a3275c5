"""Upgrades of stores with data: the next migration, a kill inside of it, and a store of a later version.

Nothing was released yet. So the next version is made here: a second script, applied by the real runner to a
store that the present version has filled.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from penstock import Penstock
from penstock.catalog.sql import postgres
from penstock.catalog.sql import sqlite as sqlite_catalog
from penstock.cli.main import cli
from penstock.config import Settings
from penstock.database import postgres as postgres_schema
from penstock.database import sqlite
from penstock.database.factory import open_catalog, open_queue
from penstock.database.schema import Schema
from penstock.queue.job import JobQuery
from tests.backup.places import settings_of
from tests.servers.stores import FIRST, given_back

QUEUE_STEP = "ALTER TABLE unified_queue ADD COLUMN shade text;\nUPDATE unified_queue SET shade = 'grey';\n"
CATALOG_STEP = (
    "CREATE TABLE catalog_shade (id integer NOT NULL PRIMARY KEY);\nINSERT INTO catalog_shade VALUES (1);\n"
)
BROKEN = QUEUE_STEP + "INSERT INTO nowhere VALUES (1);\n"


@pytest.fixture(params=FIRST)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """A store filled by the present version, which no later test uses: it gets another schema."""
    made = settings_of(request.param, tmp_path / "store")
    with Penstock(settings=made) as app:
        for number in range(5):
            app.submit(item_type="content", op="ingest", payload={"content": f"note {number}"})
        with app.worker_thread():
            app.wait(app.queue.find(JobQuery())[-1].queue_id, timeout=120)
    yield made
    if request.param == "postgres":
        schema = made.url.rpartition("search_path%3D")[2]
        with psycopg.connect(made.url, autocommit=True) as raw:
            raw.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
        (tmp_path / "store" / "postgres.json").unlink()
    given_back(tmp_path / "store")


def upgraded(schema: Schema, step: str) -> Schema:
    return msgspec.structs.replace(schema, scripts=[*schema.scripts, (2, step)])


def install_next(monkeypatch: pytest.MonkeyPatch, step: str = QUEUE_STEP) -> None:
    """Make this process the next version."""
    for module in (sqlite, postgres_schema):
        monkeypatch.setattr(module, "QUEUE", upgraded(module.QUEUE, step))
    for catalog in (sqlite_catalog, postgres):
        monkeypatch.setattr(catalog, "SCHEMA", upgraded(catalog.SCHEMA, CATALOG_STEP))


def rows(settings: Settings, statement: str) -> list[tuple[object, ...]]:
    if settings.store.engine == "sqlite":
        raw = sqlite3.connect(settings.store.path)
        found = raw.execute(statement).fetchall()
        raw.close()
        return found
    with psycopg.connect(settings.url) as connection:
        return connection.execute(statement.encode()).fetchall()


def versions(settings: Settings) -> list[object]:
    return [
        value
        for ledger in ("penstock_migration", "catalog_migration")
        for (value,) in rows(settings, f"SELECT max(number) FROM {ledger}")
    ]


def test_the_next_version_keeps_all_data_and_the_former_one_refuses_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as following:
        install_next(following)
        for _ in range(2):
            queue, catalog = open_queue(settings), open_catalog(settings)
            assert 5 == len(queue.find(JobQuery()))
            assert [] == catalog.audit()
            queue.close()
            catalog.close()
    assert [2, 2] == versions(settings)
    assert [("grey", 5)] == rows(settings, "SELECT shade, count(*) FROM unified_queue GROUP BY shade")
    assert [(1,)] == rows(settings, "SELECT id FROM catalog_shade")
    result = CliRunner().invoke(cli, ["--url", settings.url, "--state", str(settings.state_dir), "jobs"])
    assert 7 == result.exit_code
    assert "has schema 2, this version knows up to 1" in result.output
    assert "Upgrade Penstock" in result.output
    assert 1 == len(result.output.splitlines())


def test_a_migration_that_fails_leaves_the_former_version(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as following:
        install_next(following, BROKEN)
        with pytest.raises(Exception, match="nowhere"):
            open_queue(settings)
    assert [1, 1] == versions(settings)
    queue = open_queue(settings)
    assert 5 == len(queue.find(JobQuery()))
    queue.close()


KILLED = """
import os, signal, sys
import msgspec
from penstock.database import {module} as module
from penstock.database.factory import open_queue
from tests.backup.places import settings_of
from pathlib import Path

class Deadly(str):
    def encode(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)
    def splitlines(self, **_):
        yield "ALTER TABLE unified_queue ADD COLUMN shade text;"
        os.kill(os.getpid(), signal.SIGKILL)

module.QUEUE = msgspec.structs.replace(
    module.QUEUE, scripts=[*module.QUEUE.scripts, (2, "CREATE TABLE shades (id integer);"), (3, Deadly("x"))]
)
open_queue(settings_of(sys.argv[1], Path(sys.argv[2])))
"""


def test_a_kill_in_the_middle_of_a_migration_leaves_the_former_version(settings: Settings) -> None:
    engine = "sqlite" if settings.store.engine == "sqlite" else "postgres"
    program = KILLED.format(module=engine)
    command = [sys.executable, "-c", program, engine, str(settings.state_dir.parent)]
    assert -9 == subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode
    queue = open_queue(settings)
    assert 5 == len(queue.find(JobQuery()))
    queue.close()
    assert [1, 1] == versions(settings)
