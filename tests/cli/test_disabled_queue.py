"""Commands that would run their job themselves, while ``TASK_QUEUE_ENABLED`` is false."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.worker.launch import Worker
from tests.cli.conftest import Run

COMMANDS = [
    ("index", "FOLDER"),
    ("index", "FOLDER", "--wait"),
    ("note", "The gate sticks."),
    ("delete", "FOLDER"),
    ("delete-tenant", "acme", "--yes"),
]


@pytest.fixture
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_QUEUE_ENABLED", "false")

    def refuse(worker: Worker, *_: object) -> None:
        raise AssertionError("a worker was started that can never end its job")

    monkeypatch.setattr(Worker, "run", refuse)


@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_command_returns_at_once_and_says_that_the_job_waits(
    run: Run, state: Path, tmp_path: Path, command: tuple[str, ...], ask: Callable[..., Any]
):
    arguments = [str(tmp_path) if word == "FOLDER" else word for word in command]

    done = run(*arguments)

    assert "The job waits for a worker with queue_enabled = true" in done.stderr
    (job,) = ask("jobs")["jobs"]
    assert "pending" == job["status"]
    assert job["job_id"] in done.output


@pytest.mark.usefixtures("disabled")
def test_programs_read_that_the_job_is_pending(ask: Callable[..., Any], tmp_path: Path):
    assert "pending" == ask("index", str(tmp_path))["status"]
    assert "pending" == ask("note", "The gate sticks.")["status"]
