"""All shapes: every row accounted for, nothing twice, the source as it was."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from penstock import Penstock
from penstock.cli.main import cli
from penstock.queue.job import Job, JobQuery
from tests.legacy.server_shapes import SHAPES
from tests.legacy.shapes import Shape
from tests.servers.redis import contents
from tests.servers.stores import given_back, others_later, store_url

Ask = Callable[..., Any]


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path: Path) -> Shape:
    return SHAPES[request.param](tmp_path)


@pytest.fixture
def target(tmp_path: Path) -> list[str]:
    return ["--state", str(tmp_path / "state")]


@pytest.fixture
def ask(target: list[str]) -> Ask:
    def ask(shape: Shape, *options: str, code: int = 1) -> Any:
        arguments = [*target, "import", shape.kind, shape.source, "--json", *options]
        result = CliRunner().invoke(cli, arguments)
        assert code == result.exit_code, result.output
        return json.loads(result.stdout)

    return ask


def outcomes(answer: Any) -> dict[tuple[str, str], str]:
    assert len(answer["rows"]) == sum(answer["counts"].values())
    return {(row["table"], row["id"]): row["outcome"] for row in answer["rows"]}


def jobs(target: list[str], tmp_path: Path) -> list[Job]:
    app = Penstock(
        state_dir=tmp_path / "state", url=dict(zip(target[::2], target[1::2], strict=True)).get("--url")
    )
    found = app.queue.find(JobQuery(limit=1000))
    app.close()
    return found


def state_of(shape: Shape) -> Any:
    """Everything that the source holds."""
    if shape.source.startswith("redis"):
        return contents(shape.source, "rag:*")
    if shape.source.startswith("postgres"):
        with psycopg.connect(shape.source) as connection:
            tables = ("documents", "task_queue_page", "task_queue_chunk")
            return [connection.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() for name in tables]
    path = Path(shape.source)
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_a_dry_run_reports_each_row_and_writes_nothing(shape: Shape, ask: Ask, tmp_path: Path) -> None:
    before = state_of(shape)
    answer = ask(shape, "--dry-run")
    assert shape.outcomes == outcomes(answer)
    assert all(row["reason"] for row in answer["rows"] if row["outcome"] == "refused")
    assert before == state_of(shape)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("engine", others_later(("sqlite", "postgres", "jsonl", "redis"), first=("sqlite",)))
def test_every_row_is_imported_once(
    shape: Shape, ask: Ask, target: list[str], tmp_path: Path, engine: str
) -> None:
    if engine != "sqlite":
        target += ["--url", store_url(engine, tmp_path)]
    before = state_of(shape)
    answer = ask(shape)
    assert shape.outcomes == outcomes(answer)
    found = {job.queue_id: job for job in jobs(target, tmp_path)}
    by_outcome = Counter(outcomes(answer).values())
    assert by_outcome["imported"] + by_outcome["ended"] == len(found)
    for row in answer["rows"]:
        if row["outcome"] != "refused":
            job = found[row["job_id"]]
            assert job.ended is (row["outcome"] == "ended") or row["outcome"] == "merged"
    errors = {job.queue_id: job.error_message for job in found.values() if job.status == "failed"}
    errors |= {job.payload.get("file_path", ""): job.error_message for job in found.values() if job.ended}
    assert shape.errors.items() <= errors.items()

    again = ask(shape)
    assert shape.outcomes == outcomes(again)
    assert found == {job.queue_id: job for job in jobs(target, tmp_path)}
    assert before == state_of(shape)
    given_back(tmp_path)


def test_what_was_refused_prevents_the_deletion_of_the_source(shape: Shape, ask: Ask) -> None:
    before = state_of(shape)
    refusal = ask(shape, "--drop")["error"]
    assert "not verified" in refusal["message"]
    answer = ask(shape, "--verify")
    assert answer["verified"] is False
    assert answer["counts"]["refused"] == len(answer["differences"])
    refusal = ask(shape, "--verify", "--drop")["error"]
    assert "ERR_IMPORT_REFUSED" == refusal["code"]
    assert before == state_of(shape)


def test_a_retired_source_is_read_again_and_adds_nothing(
    shape: Shape, ask: Ask, target: list[str], tmp_path: Path
) -> None:
    answer = ask(shape, "--retire")
    assert answer["retired"]
    assert all("retired" in name for name in answer["retired"])
    found = jobs(target, tmp_path)
    assert shape.outcomes == outcomes(ask(shape))
    assert found == jobs(target, tmp_path)
