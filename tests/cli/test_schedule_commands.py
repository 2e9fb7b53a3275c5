"""``penstock schedule``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import Run


def test_schedules_are_added_listed_changed_and_removed(run: Run, ask: Any, tmp_path: Path):
    assert "There are no schedules" in run("schedule", "list").output
    (tmp_path / "notes").mkdir()

    added = run("schedule", "add", "0 3 * * *", "index", str(tmp_path / "notes"), "--tz", "Europe/Berlin")
    assert "Schedule index-notes added" in added.output
    assert " 03:00:00 +0" in added.output
    made = ask("schedule", "add", "every 15m", "call", "refresh", '{"full": true}', "--missed", "skip")
    assert ("refresh", "skip", {"full": True}) == (made["name"], made["missed"], made["payload"]["payload"])
    assert ["index-notes", "refresh"] == [one["name"] for one in ask("schedule", "list")["schedules"]]
    assert "every 15m" in run("schedule", "list").output

    assert "in Europe/Berlin" in run("schedule", "show", "index-notes").output
    assert 3 == run("schedule", "next", "index-notes", "--count", "3").output.count(" 03:00:00 +0")
    assert "paused" in run("schedule", "pause", "refresh").output
    assert "refresh is paused." in run("schedule", "next", "refresh").output
    assert ask("schedule", "resume", "refresh")["next_at"]
    job_id = ask("schedule", "run-now", "refresh")["job_id"]
    assert job_id == ask("schedule", "show", "refresh")["last_job_id"]
    assert {"removed": "refresh"} == ask("schedule", "remove", "refresh")


def test_a_schedule_of_backups(run: Run, ask: Any, tmp_path: Path):
    made = ask("schedule", "add", "0 2 * * *", "backup", str(tmp_path), "--keep", "7", "--priority", "2")
    assert ("backup", f"backup {tmp_path}, keep 7") == (made["name"], made["does"])
    assert {"directory": str(tmp_path), "keep": 7} == made["payload"]["payload"]
    for wrong in (["{}"], ["--key", "k"], ["--collection", "c"], ["--keep", "0"]):
        run("schedule", "add", "@daily", "backup", str(tmp_path), *wrong, code=2)
    assert "for backups only" in run("schedule", "add", "@daily", "call", "f", "--keep", "1", code=2).output


def test_refusals_of_schedules(run: Run):
    assert "ERR_INVALID_SCHEDULE" in run("schedule", "add", "0 0 30 2 *", "call", "f", code=1).output
    assert "ERR_SCHEDULE_NOT_FOUND" in run("schedule", "show", "f", code=4).output
    run("schedule", "add", "@daily", "call", "f")
    assert "ERR_SCHEDULE_EXISTS" in run("schedule", "add", "@daily", "call", "f", code=5).output
    run("schedule", "add", "@hourly", "call", "f", "--replace")
    assert "for functions only" in run("schedule", "add", "@daily", "index", "/", "{}", code=2).output
