"""Databases with objects of another program, and schemas applied in part."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.servers import postgres

QUEUE, CATALOG = ("queue", "list"), ("documents", "list")
FOREIGN = {
    "CREATE TABLE unified_queue (a int)": (QUEUE, "a table named unified_queue"),
    "CREATE VIEW task_queue AS SELECT 1 AS a": (QUEUE, "a view named task_queue"),
    "CREATE TABLE queue_pause (a int)": (QUEUE, "a table named queue_pause"),
    "CREATE TABLE own (a int); CREATE INDEX idx_unified_queue_lock ON own (a)": (
        QUEUE,
        "an index named idx_unified_queue_lock",
    ),
    "CREATE TABLE documents (a int)": (CATALOG, "a table named documents"),
    "CREATE VIEW sources AS SELECT 1 AS a": (CATALOG, "a view named sources"),
}
FOREIGN_IN_POSTGRES = FOREIGN | {
    "CREATE TABLE penstock_migration (number text)": (QUEUE, "a table named penstock_migration"),
    "CREATE TABLE catalog_migration (number text)": (CATALOG, "a table named catalog_migration"),
    "CREATE TYPE task_status AS ENUM ('a')": (CATALOG, "a type named task_status"),
    "CREATE TABLE task_status (a int)": (CATALOG, "a table named task_status"),
    "CREATE DOMAIN documents AS text": (CATALOG, "a type named documents"),
    "CREATE SEQUENCE catalog_row": (CATALOG, "a sequence named catalog_row"),
    "CREATE FUNCTION catalog_moved() RETURNS int LANGUAGE sql AS 'SELECT 1'": (
        CATALOG,
        "a function named catalog_moved",
    ),
    "CREATE TEXT SEARCH CONFIGURATION catalog_english (COPY = pg_catalog.english)": (
        CATALOG,
        "a text search configuration named catalog_english",
    ),
}
PARTIAL = {
    "DROP TABLE queue_pause": (QUEUE, "queue_pause"),
    "DROP VIEW task_queue": (QUEUE, "task_queue"),
    "DELETE FROM penstock_migration": (QUEUE, "unified_queue"),
    "DROP INDEX idx_sources_path": (CATALOG, "idx_sources_path"),
    "DROP TABLE catalog_walk": (CATALOG, "catalog_walk"),
    "DELETE FROM catalog_migration": (CATALOG, "already has a t"),
    "ALTER TABLE penstock_migration RENAME number TO version": (QUEUE, "number"),
}


def refused(url: str, state: Path, *command: str) -> str:
    """Run a refused command and return the error line."""
    ran = CliRunner().invoke(cli, ["--url", url, "--state", str(state), *command])
    assert (7, "") == (ran.exit_code, ran.stdout), (ran.output, ran.exception)
    assert isinstance(ran.exception, SystemExit)
    assert "ERR_SCHEMA_MISMATCH" in ran.stderr
    (line,) = ran.stderr.splitlines()
    return line


@pytest.mark.parametrize("statement", FOREIGN)
def test_a_sqlite_file_with_another_programs_objects_is_refused(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.db"
    with sqlite3.connect(file) as own:
        own.executescript(statement)
    command, named = FOREIGN[statement]
    before = own.execute("SELECT type, name FROM sqlite_master ORDER BY name").fetchall()
    if command is CATALOG:
        # Of a queue that lives elsewhere, so that only the catalog would be in the file.
        monkeypatch.setenv("PENSTOCK_CATALOG_URL", f"sqlite:///{file}")
    line = refused(f"sqlite:///{file}" if command is QUEUE else "memory://", tmp_path, *command)

    assert f"already has {named} that is not Penstock's" in line
    assert "Name another file in its URL" in line
    assert before == own.execute("SELECT type, name FROM sqlite_master ORDER BY name").fetchall()
    own.close()


@pytest.mark.parametrize("statement", PARTIAL)
def test_a_sqlite_file_with_a_part_of_the_schema_is_refused(statement: str, tmp_path: Path) -> None:
    command, named = PARTIAL[statement]
    url = f"sqlite:///{tmp_path}/queue.db"
    for each in (QUEUE, CATALOG):
        assert 0 == CliRunner().invoke(cli, ["--url", url, "--state", str(tmp_path), *each]).exit_code
    own = sqlite3.connect(tmp_path / "queue.db")
    own.execute(statement)
    own.commit()
    own.close()

    assert named in refused(url, tmp_path, *command)


@pytest.fixture
def url() -> str:
    return postgres.fresh_store("foreign")


def objects(own: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return own.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY 1"
    ).fetchall()


@pytest.mark.parametrize("statement", FOREIGN_IN_POSTGRES)
def test_a_database_with_another_programs_objects_is_refused(
    statement: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, named = FOREIGN_IN_POSTGRES[statement]
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(statement.encode())
        before = objects(own)
        if command is CATALOG:
            monkeypatch.setenv("PENSTOCK_CATALOG_URL", url)
        line = refused(url if command is QUEUE else "memory://", tmp_path, *command)

        assert f"already has {named} that is not Penstock's" in line
        assert "add ?schema=NAME to its URL" in line
        assert before == objects(own)


@pytest.mark.parametrize("statement", PARTIAL)
def test_a_database_with_a_part_of_the_schema_is_refused(statement: str, url: str, tmp_path: Path) -> None:
    command, named = PARTIAL[statement]
    for each in (QUEUE, CATALOG):
        assert 0 == CliRunner().invoke(cli, ["--url", url, "--state", str(tmp_path), *each]).exit_code
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(statement.encode())

    line = refused(url, tmp_path, *command)
    assert named in line
    assert "?schema=NAME" in line
