"""``penstock index A B``: all paths are checked first, one answer, one exit code; and ``--quiet``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.index import index_each
from penstock.cli.session import Session
from penstock.queue.payloads import serial_lock
from tests.cli.conftest import Run


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "notes", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "mill.md").write_text("The mill runs at dawn.\n")
    (tmp_path / "notes" / "gate.md").write_text("The gate sticks.\n")
    return tmp_path


def paths_of(jobs: list[dict[str, Any]], root: Path) -> list[str]:
    return [str(Path(job["payload"]["folder_path"]).relative_to(root)) for job in reversed(jobs)]


def test_a_missing_path_is_refused_before_anything_is_queued(
    run: Run, ask: Callable[..., Any], folders: Path
):
    told = run("index", "docs", "notse", "notes", "--no-wait", code=1).stderr

    assert "notse" in told
    assert "ERR_PATH_NOT_FOUND" in told
    assert [] == ask("jobs")["jobs"]


def run_weak(folders: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside a directory that it may not read, also where the tests run as root."""
    (folders / "closed" / "in").mkdir(parents=True)
    (folders / "closed").chmod(0)
    weak = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    here = [sys.executable, "-m", "penstock", "--state", str(folders / "state")]
    return subprocess.run([*weak, *here, *command], capture_output=True, text=True, timeout=60)


READS_EVERYTHING = os.geteuid() == 0 and not shutil.which("setpriv")


@pytest.mark.skipif(READS_EVERYTHING, reason="root may read every path")
@pytest.mark.parametrize("name", ["queue.db", "in/queue.db"])
def test_a_store_in_a_directory_that_may_not_be_read_is_one_line(folders: Path, name: str):
    told = run_weak(folders, "status", "--url", f"sqlite:///closed/{name}")

    assert 7 == told.returncode
    assert "ERR_STORE_DENIED" in told.stderr
    assert 1 == len(told.stderr.splitlines())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("index", "ERR_PATH_NOT_FOUND"),
        ("similar", "ERR_UNKNOWN_DOCUMENT"),
        ("delete", "ERR_UNKNOWN_DOCUMENT"),
        ("watch", "ERR_PATH_NOT_FOUND"),
        ("backup", "ERR_STORE"),
        ("backup --keep 1", "ERR_INVALID_REQUEST"),
        ("import unified-queue", "ERR_PATH_NOT_FOUND"),
        ("import job-journal", "ERR_PATH_NOT_FOUND"),
        ("import penstock", "ERR_IMPORT_REFUSED"),
        ("library add mill --from", "ERR_PATH_NOT_FOUND"),
        ("project move docs", "ERR_INVALID_REQUEST"),
        ("rename docs", "ERR_UNKNOWN_DOCUMENT"),
    ],
)
@pytest.mark.parametrize("name", ["closed/in/a.md", "x" * 300])
@pytest.mark.skipif(READS_EVERYTHING, reason="root may read every path")
def test_a_path_that_may_not_be_read_is_one_line(folders: Path, name: str, command: str, code: str):
    told = run_weak(folders, *command.split(), name)

    assert 0 != told.returncode
    assert code in told.stdout + told.stderr
    assert "Traceback" not in told.stderr


def test_a_refused_watch_prints_only_the_error(run: Run, folders: Path):
    refused = run("--json", "watch", "docs", "missing", code=1)

    assert "ERR_PATH_NOT_FOUND" == json.loads(refused.stdout)["error"]["code"]


def test_each_path_is_one_request_in_order(run: Run, ask: Callable[..., Any], folders: Path):
    answers = ask("index", "docs", "notes", "./docs", "--no-wait", "--collection", "handbook")

    assert ["./docs", "notes"] == [answer["path"] for answer in answers]
    jobs = ask("jobs")["jobs"]
    assert ["docs", "notes"] == paths_of(jobs, folders)
    assert [answer["job_id"] for answer in answers] == [job["job_id"] for job in reversed(jobs)]
    assert {"handbook"} == {job["collection"] for job in jobs}
    # One path answers as before.
    assert ask("index", "docs", "--no-wait", "--collection", "handbook")["job_id"] == answers[0]["job_id"]


def test_a_dry_run_shows_every_path(run: Run, ask: Callable[..., Any], folders: Path):
    shown = run("index", "docs", "notes", "--dry-run").stdout

    assert shown.startswith("docs:\n1 file (")
    assert "\nnotes:\n1 file (" in shown
    assert shown.endswith("\n2 of 2 paths compared.\n")
    assert [1, 1] == [answer["files"] for answer in ask("index", "docs", "notes", "--dry-run")]
    assert [] == ask("jobs")["jobs"]


def test_a_refused_path_does_not_stop_the_others(
    run: Run, ask: Callable[..., Any], folders: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "1")
    result = run("index", "docs", "notes", "docs/mill.md", "--no-wait", code=6)

    assert 2 == result.stderr.count("ERR_QUEUE_FULL")
    assert result.stdout.endswith("1 of 3 paths done, 2 failed (notes, docs/mill.md).\n")
    assert ["docs"] == paths_of(ask("jobs")["jobs"], folders)
    answers = ask("index", "docs", "notes", "--no-wait", code=6)
    assert ["docs", "notes"] == [answer["path"] for answer in answers]
    assert "ERR_QUEUE_FULL" == answers[1]["error"]["code"]


def test_ctrl_c_stops_all(folders: Path, state: Path, capsys: pytest.CaptureFixture[str]):
    session, begun = Session(), []
    session.overrides["state_dir"] = str(state)

    def index(path: str) -> None:
        begun.append(path)
        if path == "notes":
            raise SystemExit(INTERRUPTED)

    with pytest.raises(SystemExit) as end:
        index_each(session, ["docs", "notes", "empty"], {}, index, "done")
    session.close()

    assert (["docs", "notes"], INTERRUPTED) == (begun, end.value.code)
    assert capsys.readouterr().out.endswith("\n1 of 3 paths done, 2 not finished (notes, empty).\n")


def test_work_is_done_path_by_path_and_quietly(run: Run, ask: Callable[..., Any], folders: Path):
    result = run("index", "-q", "--serial", "docs", "empty", code=1)

    # Of the path that is done nothing is said; the other one failed.
    assert ("", 1) == (result.stderr, len(result.stdout.splitlines()))
    assert "ERR_NOTHING_TO_INDEX" in result.stdout
    assert 1 == len(ask("documents", "list")["documents"])


def test_serial_jobs_have_the_lock_of_their_collection(run: Run, app: Penstock, folders: Path):
    run("index", "--serial", "--no-wait", "docs", "notes")
    run("index", "--processes", "1", "--no-wait", "empty")

    locks = {Path(job.payload["folder_path"]).name: job.lock_key for job in app.jobs()}
    assert [serial_lock("default", "default")] * 2 == [locks["docs"], locks["notes"]]
    assert locks["empty"] != locks["docs"]
