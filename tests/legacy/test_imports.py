"""Imports under kills, beside own jobs, and by people who name the wrong thing."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from penstock import Penstock
from penstock.cli.main import cli
from penstock.errors import StoreError
from penstock.legacy.journal_source import JournalSource
from penstock.legacy.sqlite_source import SqliteSource
from penstock.queue.job import ClaimRequest, JobQuery, Status
from tests.legacy.server_shapes import SHAPES, messages
from tests.legacy.shapes import queue_file, unified
from tests.servers.redis import connect
from tests.servers.stores import given_back, others_later, store_url

Run = Callable[..., Result]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def run(state: Path) -> Run:
    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--state", str(state), "import", *arguments])
        assert code == result.exit_code, result.output
        return result

    return run


def jobs_of(state: Path, url: str | None = None, **query: Any) -> list[Any]:
    app = Penstock(state_dir=state, url=url)
    found = app.queue.find(JobQuery(**({"limit": 200_000} | query)))
    app.close()
    return found


def killed(url: str, state: Path, source: Path, where: str, calls: int) -> int:
    command = [
        sys.executable,
        "-m",
        "tests.legacy.killed_import",
        url,
        str(state),
        "unified-queue",
        str(source),
    ]
    return subprocess.run(
        [*command, where, str(calls)], check=False, cwd=Path(__file__).parents[2]
    ).returncode


@pytest.mark.parametrize("where", ["after restore", "after record"])
def test_a_killed_import_goes_on_where_it_ended(tmp_path: Path, state: Path, run: Run, where: str) -> None:
    source = queue_file(tmp_path / "old.db", 1_200)
    assert -9 == killed(f"sqlite:///{state}/queue.db", state, source, where, 2)
    assert 1_000 == len(jobs_of(state, f"sqlite:///{state}/queue.db"))
    answer = json.loads(
        run("unified-queue", str(source), "--json", "--url", f"sqlite:///{state}/queue.db").stdout
    )
    assert {"imported": 1_200, "merged": 0, "ended": 0, "refused": 0} == answer["counts"]
    found = jobs_of(state, f"sqlite:///{state}/queue.db")
    assert [f"/srv/{number}" for number in range(1_200)] == [job.payload["file_path"] for job in found]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "jsonl", "redis"])
def test_kills_at_random_points_neither_lose_nor_double(tmp_path: Path, state: Path, engine: str) -> None:
    source, url = queue_file(tmp_path / "old.db", 5_000), store_url(engine, tmp_path)
    for _ in range(4):
        where = random.choice(["before restore", "after restore", "after record"])
        killed(url, state, source, where, random.randint(1, 4))
    arguments = [
        "--state",
        str(state),
        "--url",
        url,
        "import",
        "unified-queue",
        str(source),
        "--verify",
        "--json",
    ]
    result = CliRunner().invoke(cli, arguments)
    assert 0 == result.exit_code, result.output
    assert 5_000 == json.loads(result.stdout)["counts"]["imported"]
    assert 5_000 == len({job.payload["file_path"] for job in jobs_of(state, url)}) == len(jobs_of(state, url))
    given_back(tmp_path)


MEASURED = """
import sys
from penstock.__main__ import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        print(*[line for line in status if line.startswith("VmHWM")], file=sys.stderr)
"""


@pytest.mark.long
@pytest.mark.parametrize(("option", "rows"), [("--dry-run", 100_000), ("--verify", 30_000)])
def test_many_rows_take_bounded_memory(tmp_path: Path, state: Path, option: str, rows: int) -> None:
    source = queue_file(tmp_path / "old.db", rows)
    command = [sys.executable, "-c", MEASURED, "--state", str(state), "import", "unified-queue", str(source)]
    done = subprocess.run([*command, option, "--json"], check=True, capture_output=True, text=True)
    # Its own memory, in KiB: the figure for children of a test process begins with that process's own.
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", done.stderr, re.MULTILINE)
    assert 100 * 1024 > int(peak)


def test_rows_keep_their_order_age_retries_and_columns(tmp_path: Path, state: Path, run: Run) -> None:
    shape = unified(tmp_path)
    run(shape.kind, shape.source, code=1)
    found = {job.queue_id: job for job in jobs_of(state)}
    waiting = found["c0ffee00-0003"]
    assert (Status.PENDING, 1, "timed out") == (waiting.status, waiting.retry_count, waiting.error_message)
    assert 2025 == waiting.created_at.year
    assert {"a": 1} == json.loads(waiting.metadata)["imported"]["columns"]["metadata"]
    assert "kept" == json.loads(waiting.metadata)["imported"]["columns"]["added_later"]
    failed = found["c0ffee00-0008"]
    assert "ERR_FAILED_BEFORE" == failed.error_code
    assert failed.finished_at is not None
    assert failed.finished_at.year > 2025, "retention counts from the import on"
    app = Penstock(state_dir=state)
    claimed = [claim.queue_id for claim in app.queue.claim(ClaimRequest("w1", 3))]
    app.close()
    assert ["c0ffee00-0001", "c0ffee00-0002", "c0ffee00-0003"] == claimed
    assert "delete" == found["c0ffee00-0001"].op, "the newer row of two wins"


def test_metadata_of_a_row_gives_no_orders(tmp_path: Path, state: Path, run: Run) -> None:
    """Keys of our own metadata, such as the place where a file is read, must not come from a row."""
    source = queue_file(tmp_path / "old.db", 1)
    with sqlite3.connect(source) as connection:
        orders = '{"arrival": {"read_from": "/etc/passwd"}, "rebuild": true}'
        connection.execute("UPDATE unified_queue SET metadata = ?", (orders,))
    connection.close()
    run("unified-queue", str(source))
    (job,) = jobs_of(state)
    assert {"imported", "asked_at"} == json.loads(job.metadata).keys()


def test_a_live_job_of_our_own_is_newer_than_an_imported_row(tmp_path: Path, state: Path, run: Run) -> None:
    app = Penstock(state_dir=state)
    own = app.submit(
        item_type="file", op="delete", payload={"file_path": "/srv/0"}, tenant_id="acme", collection="docs"
    )
    app.close()
    answer = json.loads(run("unified-queue", str(queue_file(tmp_path / "old.db", 1)), "--json").stdout)
    assert [("merged", own.job_id)] == [(row["outcome"], row["job_id"]) for row in answer["rows"]]
    (job,) = jobs_of(state)
    assert "delete" == job.op


def test_an_imported_row_is_not_run_again_after_its_job_is_gone(
    tmp_path: Path, state: Path, run: Run
) -> None:
    source = str(queue_file(tmp_path / "old.db", 2, "done"))
    run("unified-queue", source)
    app = Penstock(state_dir=state)
    assert 2 == app.purge()
    app.close()
    assert "0       0      2" in run("unified-queue", source).output
    assert [] == jobs_of(state)
    assert "no longer in the queue" in run("unified-queue", source, "--verify", code=1).output


def test_another_queue_may_have_the_same_ids(tmp_path: Path, state: Path, run: Run) -> None:
    run("unified-queue", str(queue_file(tmp_path / "old.db", 3)))
    other = queue_file(tmp_path / "other.db", 3)
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE unified_queue SET payload_json = replace(payload_json, 'srv', 'mnt')")
    connection.close()
    for _ in range(2):
        run("unified-queue", str(other))
        assert 6 == len(jobs_of(state))


def test_a_copy_of_a_queue_brings_nothing_new(tmp_path: Path, state: Path, run: Run) -> None:
    source = queue_file(tmp_path / "old.db", 3)
    run("unified-queue", str(source))
    shutil.copy(source, tmp_path / "copy.db")
    run("unified-queue", str(tmp_path / "copy.db"))
    assert 3 == len(jobs_of(state))


@pytest.mark.parametrize("name", ["unified", "journal", "documents", "messages"])
def test_a_verified_source_can_be_deleted(tmp_path: Path, state: Path, run: Run, name: str) -> None:
    shape = SHAPES[name](tmp_path)
    _delete_refused_rows(shape.kind, shape.source, shape.outcomes)
    run(shape.kind, shape.source, "--verify")
    answer = json.loads(run(shape.kind, shape.source, "--drop", "--json").stdout)
    assert answer["dropped"]
    assert answer["verified"] is True
    number = len(jobs_of(state))
    refusal = json.loads(run(shape.kind, shape.source, "--json", code=1).stdout)["error"]
    assert "ERR_IMPORT_REFUSED" == refusal["code"]
    assert number == len(jobs_of(state))


@pytest.mark.parametrize("name", ["unified", "journal"])
def test_a_row_that_comes_between_comparison_and_deletion_is_not_lost(
    tmp_path: Path, state: Path, run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = SHAPES[name](tmp_path)
    _delete_refused_rows(shape.kind, shape.source, shape.outcomes)
    run(shape.kind, shape.source, "--verify")
    owner: Any = SqliteSource if name == "unified" else JournalSource
    with monkeypatch.context() as patched:
        retire = owner.retire

        def late(source: Any) -> Any:
            _add_row(name, shape.source)
            return retire(source)

        patched.setattr(owner, "retire", late)
        refused = run(shape.kind, shape.source, "--drop", code=1).output
    assert "nothing was deleted" in refused
    before = len(jobs_of(state))
    answer = json.loads(run(shape.kind, shape.source, "--verify", "--drop", "--json").stdout)
    assert answer["dropped"]
    assert before + 1 == len(jobs_of(state))


def _add_row(name: str, source: str) -> None:
    """Add a row like a producer that nobody stopped."""
    if name == "journal":
        path = Path(source) / "jobs" / "index_queue.jsonl"
        record = json.loads(path.read_text().splitlines()[-1])
        record |= {"id": "job_00000000late", "folder_path": "/srv/late"}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return
    connection = sqlite3.connect(source)
    with connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(unified_queue)")]
        one = connection.execute("SELECT * FROM unified_queue WHERE item_type = 'file' LIMIT 1").fetchone()
        row = dict(zip(columns, one, strict=True))
        row |= {"queue_id": "late", "status": "pending", "payload_json": '{"file_path": "/srv/late"}'}
        row |= {key: "late" for key in columns if "idempotency" in key}
        marks = ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO unified_queue VALUES ({marks})", [row[each] for each in columns])
    connection.close()


def test_a_journal_that_is_rewritten_while_it_is_read_is_not_mistaken(tmp_path: Path) -> None:
    shape = SHAPES["journal"](tmp_path)
    source = JournalSource(shape.source)
    path = Path(shape.source) / "jobs" / "index_queue.jsonl"
    path.write_text("\n".join(reversed(path.read_text().splitlines())))
    with pytest.raises(StoreError, match="was changed while it was read"):
        list(source.rows())


def _delete_refused_rows(kind: str, source: str, outcomes: dict[tuple[str, str], str]) -> None:
    refused = [place for place, outcome in outcomes.items() if outcome == "refused"]
    if kind == "unified-queue":
        with sqlite3.connect(source) as connection:
            connection.executemany(
                "DELETE FROM unified_queue WHERE queue_id = ?", [(each[1],) for each in refused]
            )
        connection.close()
    elif kind == "task-tables":
        with psycopg.connect(source) as session:
            for table, row_id in refused:
                session.execute(f"DELETE FROM {table} WHERE id = %s", (row_id,))
    elif kind == "job-journal":
        path = Path(source) / "jobs" / "index_queue.jsonl"
        lines = path.read_text().split("\n")
        path.write_text("\n".join(lines[number] for number in (0, 1, 2, 5, 6, 7)) + "\n")
    else:
        from tests.servers.redis import connect

        with connect(source) as client:
            client.delete("rag:ingest:queue", "rag:ingest:job:rag-p-1-a")
            client.delete("rag:ingest:job:rag-p-7-g", "rag:ingest:job:rag-p-8-h")


@pytest.mark.parametrize("engine", others_later(("sqlite", "postgres"), first=("sqlite",)))
def test_tables_that_are_set_aside_can_be_put_back(tmp_path: Path, run: Run, engine: str) -> None:
    shape = SHAPES["unified" if engine == "sqlite" else "documents"](tmp_path)
    names = json.loads(run(shape.kind, shape.source, "--retire", "--json", code=1).stdout)["retired"]
    opened: Any = sqlite3.connect(shape.source) if engine == "sqlite" else psycopg.connect(shape.source)
    for name in names:
        opened.execute(f"ALTER TABLE {name} RENAME TO {name.removesuffix('_retired')}")
    opened.commit()
    opened.close()
    assert names == json.loads(run(shape.kind, shape.source, "--retire", "--json", code=1).stdout)["retired"]


def test_retire_and_drop_exclude_each_other(run: Run) -> None:
    run("unified-queue", "x", "--retire", "--drop", code=2)


def test_people_see_a_table_and_the_refused_rows(tmp_path: Path, run: Run) -> None:
    shape = unified(tmp_path)
    shown = run(shape.kind, shape.source, code=1).output
    assert "rows of        imported  merged  ended  refused" in shown
    assert "refused  unified_queue c0ffee00-0012: unknown status 'wandering'" in shown


def redis_rows(tmp_path: Path, *, configured: bool, code: int) -> list[dict[str, Any]]:
    """Import two messages and a dead letter, of a configured RAG and of another one."""
    shape = messages(tmp_path)
    client: Any = connect(shape.source, decode_responses=True)
    client.delete(*client.scan_iter(match="rag:ingest:*"))
    for number, rag_id in enumerate(("known_rag", "other_rag")):
        fields = {
            "job_id": f"rag-{rag_id}-1-{number:08x}",
            "rag_id": rag_id,
            "source_path": str(tmp_path / "a.txt"),
            "source_type": "txt",
            "filename": "a.txt",
            "submitted_at": "2025-01-10T20:15:30Z",
        }
        client.lpush("rag:ingest:queue", json.dumps(fields))
        failed = fields | {"job_id": f"rag-{rag_id}-2-{number:08x}", "error": "no disk"}
        client.lpush("rag:ingest:queue:dead-letter", json.dumps(failed))
    client.close()
    (tmp_path / "a.txt").write_text("The gate.")
    rags = tmp_path / "rags.yaml"
    rags.write_text("rags:\n  known_rag: {folders: [.], collection: gates, tenant: acme}\n")
    environment = {"PENSTOCK_RAG_CONFIG": str(rags)} if configured else {}
    arguments = ["--state", str(tmp_path / "state"), "import", "redis-contract", shape.source, "--json"]
    result = CliRunner(env=environment).invoke(cli, arguments)
    assert code == result.exit_code, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def test_messages_of_a_rag_that_is_not_configured_are_refused(tmp_path: Path) -> None:
    rows = {row["id"]: row for row in redis_rows(tmp_path, configured=True, code=1)}
    refused = rows["rag-other_rag-1-00000001"]
    assert ("refused", "there is no RAG 'other_rag' in the configuration; known are known_rag") == (
        refused["outcome"],
        refused["reason"],
    )
    # What has ended is history, and runs only if a person retries it.
    assert "ended" == rows["rag-other_rag-2-00000001"]["outcome"]
    with Penstock(state_dir=tmp_path / "state") as app:
        job = app.job("rag-known_rag-1-00000000")
        assert ("acme", "gates") == (job.tenant_id, job.collection)


def test_a_message_with_reindex_says_that_it_removes_nothing(tmp_path: Path) -> None:
    shape = messages(tmp_path)
    result = CliRunner().invoke(
        cli, ["--state", str(tmp_path / "state"), "import", "redis-contract", shape.source, "--json"]
    )
    reasons = {row["id"]: row["reason"] for row in json.loads(result.stdout)["rows"]}
    assert "removes no others" in reasons["rag-p-2-b"]
    assert "removes no others" not in reasons["rag-p-4-d"]


def test_without_a_configuration_the_row_of_a_message_says_so(tmp_path: Path) -> None:
    rows = {row["id"]: row for row in redis_rows(tmp_path, configured=False, code=0)}
    row = rows["rag-other_rag-1-00000001"]
    assert "imported" == row["outcome"]
    assert "RAG other_rag is not checked" in row["reason"]
