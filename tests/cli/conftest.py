"""Fixtures: the command with a temporary state directory, and its queue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock import Penstock
from penstock.cli.main import cli
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.queue.retry import Classification
from tests.pipeline.kept_zygotes import kept_zygotes as kept_zygotes

Run = Callable[..., Result]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "AGENT_BRAIN_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path / "state"


@pytest.fixture
def run(state: Path) -> Run:
    def run(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Result:
        # One process of a worker: what a command says does not depend on it, and each takes long to start.
        # Without a number, commands in terminals and from scripts are tested.
        serial = ("--serial",) if "index" in arguments[:2] and "--processes" not in arguments else ()
        result = CliRunner().invoke(cli, ["--state", str(state), *arguments, *serial], input=stdin)
        assert code == result.exit_code, result.output
        return result

    return run


@pytest.fixture
def ask(run: Run) -> Callable[..., Any]:
    def ask(*arguments: str, **more: Any) -> Any:
        return json.loads(run("--json", *arguments, **more).stdout)

    return ask


@pytest.fixture
def app(state: Path) -> Penstock:
    return Penstock(state_dir=state)


def index(state: Path, folder: Path) -> None:
    """Index a folder for a test of another command, without the process that `penstock index` starts."""
    with Penstock(state_dir=state) as app, app.worker_thread():
        job = app.wait(app.index(folder).job_id, timeout=120)
    assert Status.DONE is job.status


def add(run: Run, text: str = "The mill runs.", *more: str) -> str:
    answer = run("--json", "queue", "add", "content", "ingest", "--text", text, *more)
    job_id: str = json.loads(answer.stdout)["job_id"]
    return job_id


def fail(app: Penstock) -> None:
    claims = app.queue.claim(ClaimRequest("w1", 10))
    cause = Classification("permanent", "ERR_PARSE")
    app.queue.settle([transitions.failed_attempt(claim, cause, "torn page") for claim in claims])
