"""Sources named wrongly, in use, or without rights: one line says what is wrong, and nothing changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import Penstock
from penstock.cli.main import cli
from tests.legacy.shapes import queue_file
from tests.servers import postgres
from tests.servers.redis import server_url

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--state", str(tmp_path / "state"), "import", *arguments])
        assert code == result.exit_code, result.output
        return result

    return run


def _text(place: Path) -> str:
    (place / "readme.txt").write_text("not a database, but long enough to be one" * 20)
    return str(place / "readme.txt")


def _foreign(place: Path) -> str:
    connection = sqlite3.connect(place / "foreign.db")
    connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    return str(place / "foreign.db")


def _own(place: Path) -> str:
    Penstock(state_dir=place / "state").stats()
    return str(next((place / "state").glob("*.db")))


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("unified-queue", lambda _: "/nowhere/queue.db", "does not exist"),
        ("unified-queue", lambda place: str(place), "is not a file"),
        ("unified-queue", _text, "is not an SQLite database"),
        ("unified-queue", _foreign, "has no unified queue"),
        ("legacy-queues", _foreign, "cumulative_deletions_queue"),
        ("function-tasks", _foreign, "expected a table task_queue"),
        ("unified-queue", _own, "is a store of Penstock"),
        ("function-tasks", _own, "is a store of Penstock"),
        ("unified-queue", lambda _: "redis://localhost", "cannot be read from redis://localhost"),
        ("unified-queue", lambda _: "mysql://u:secret@h/db", "cannot be read from mysql://u:***@h/db"),
        ("task-tables", lambda _: "postgresql://u:secret@127.0.0.1:1/db", "cannot be reached"),
        ("task-tables", lambda _: postgres.fresh_store("empty"), "has no documents"),
        ("redis-contract", lambda _: "redis://127.0.0.1:1/0", "cannot be reached"),
        ("redis-contract", lambda _: server_url().rpartition("/")[0] + "/63", "has no list rag:ingest:queue"),
        ("redis-contract", lambda place: str(place), "cannot be read from"),
        ("job-journal", lambda place: str(place), "has no index_queue.jsonl"),
        ("job-journal", _foreign, "is not index_queue.jsonl"),
        ("job-journal", lambda _: "postgresql://localhost/db", "cannot be read from"),
    ],
)
def test_a_wrong_source_is_refused_in_one_line(
    tmp_path: Path, run: Run, kind: str, source: Callable[[Path], str], words: str
) -> None:
    address = source(tmp_path)
    result = CliRunner().invoke(cli, ["--state", str(tmp_path / "state"), "import", kind, address])
    assert result.exit_code in (1, 7), result.output
    assert words in result.output
    assert 1 == len(result.output.splitlines())
    assert "secret" not in result.output
    assert run(kind, address, "--dry-run", code=result.exit_code).output == result.output


def test_a_file_in_use_is_read_while_others_write(tmp_path: Path, run: Run) -> None:
    source = queue_file(tmp_path / "old.db", 3)
    writer = sqlite3.connect(source, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM unified_queue")
    assert "3       0" in run("unified-queue", str(source)).output
    writer.execute("ROLLBACK")
    writer.close()


def test_a_locked_file_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.legacy.sqlite_source.BUSY_S", 0.05)
    source = queue_file(tmp_path / "old.db", 3)
    writer = sqlite3.connect(source, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert "is locked by another program" in run("unified-queue", str(source), code=7).output
    writer.close()


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="needs another user")
def test_a_source_that_can_only_be_read() -> None:
    # Not below the folder of the test, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="penstock-import-") as place:
        _import_as_another_user(Path(place))


def _import_as_another_user(place: Path) -> None:
    place.chmod(0o755)
    folder = place / "old"
    folder.mkdir()
    source = queue_file(folder / "old.db", 3)
    with sqlite3.connect(source) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    source.chmod(0o444)
    folder.chmod(0o555)
    state = place / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "--state",
        str(state / "own"),
        "import",
        "unified-queue",
        str(source),
    ]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *command]
    taken = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == taken.returncode, taken.stderr
    refused = subprocess.run([*command, "--retire"], capture_output=True, text=True, check=False)
    assert 7 == refused.returncode
    assert 1 == len(refused.stderr.splitlines())
    assert ["old.db"] == [path.name for path in folder.iterdir()]
