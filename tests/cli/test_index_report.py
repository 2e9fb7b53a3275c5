"""The report of ``index``: what was left out, what is resumed; the same in ``jobs`` and ``queue show``."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.queue.job import WorkerReport
from tests.cli.conftest import Run
from tests.documents.conftest import IndexedFolder
from tests.worker.worker_processes import until

Ask = Callable[..., Any]


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    for name in ("a.md", "b.md"):
        (made / name).write_text("Water drives the wheel.")
    return made


def leave_out(folder: Path) -> None:
    for number in range(3):
        (folder / f".hidden{number}").write_text("x")
        (folder / f"tool{number}.py").write_text("print('mill')")
    for number in range(2):
        (folder / f"sound{number}.mp3").write_bytes(b"x")
    (folder / "gate.pem").write_text("x")
    (folder / "pipe.md").symlink_to(folder / "nowhere")


def test_the_summary_names_the_most_frequent_reasons(run: Run, folder: Path):
    leave_out(folder)
    shown = run("index", str(folder)).stdout.splitlines()
    assert re.fullmatch(r"2 files indexed, 2 chunks in \d+\.\d s\.", shown[0])
    expected = "3 source files left out (--include-code); also 3 hidden, 2 of types without text, 2 others."
    assert expected == shown[1]


def interrupt(app: Penstock, ask: Ask, folder: Path) -> str:
    """Leave a folder job of 2 files with one of them done. Returns the job's id."""
    job_id: str = ask("index", str(folder), "--no-wait")["job_id"]
    with IndexedFolder(app, folder).manual_worker() as worker:
        worker.run_jobs(1)
        worker.run_jobs(1)
    return job_id


def test_a_running_job_shows_its_progress(run: Run, ask: Ask, app: Penstock, folder: Path):
    leave_out(folder)
    job_id = interrupt(app, ask, folder)

    assert re.search(rf"{job_id} +running \(50 %\) ", run("jobs").stdout)
    shown = run("queue", "show", job_id).stdout
    assert "\nProgress  1 of 2 files (50 %), 1 chunk\n" in shown
    assert "\nLeft out  3 source files (--include-code), 3 hidden, 2 of types without text" in shown
    (listed,) = ask("jobs")["jobs"]
    names = "files_processed files_total percent_complete chunks_created failed stage".split()
    assert [1, 2, 50.0, 1, 0, "indexing"] == [listed["progress"][name] for name in names]
    assert listed["progress"] == ask("queue", "show", job_id)["progress"]
    assert (1, True, None) == (
        listed["total_chunks"],
        listed["running_time_ms"] >= 0,
        listed["execution_time_ms"],
    )


def test_an_ended_job_shows_its_result(run: Run, ask: Ask, folder: Path):
    leave_out(folder)
    answer = ask("index", str(folder))
    reasons = {"code": 3, "hidden": 3, "binary": 2, "link_broken": 1, "secret": 1}
    assert (reasons, 10, 2) == tuple(answer["counts"][name] for name in ("skipped_by", "skipped", "indexed"))
    assert (False, False, 1) == (answer["resumed"], answer["dedupe_hit"], answer["run"])

    shown = run("queue", "show", answer["job_id"]).stdout
    assert "\nProgress  2 of 2 files (100 %), 2 chunks\n" in shown
    assert "\nResult    2 files indexed, 2 chunks\n" in shown
    job = ask("jobs", answer["job_id"])
    assert [2, 2, 0, 2] == [job["result"][name] for name in ("total", "done", "failed", "chunks")]
    assert (reasons, reasons) == (job["progress"]["skipped"], job["result"]["skipped_by"])
    assert (2, 100.0) == (job["total_chunks"], job["progress"]["percent_complete"])
    assert (None, True) == (job["running_time_ms"], job["execution_time_ms"] >= 0)


def test_a_repeated_command_resumes_and_reports_what_was_done_since(
    run: Run, ask: Ask, app: Penstock, folder: Path
):
    interrupt(app, ask, folder)
    done = run("index", str(folder))
    assert "Resuming: 1 of 2 files done before.\n" in done.stderr
    assert "Duplicate" not in done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"1 file indexed, 1 chunk, 1 unchanged in \d+\.\d s\.", first)
    assert "Resumed: files that were done before this command count as unchanged." == second


@pytest.mark.parametrize("as_json", [False, True])
def test_a_resumed_command_counts_failures_since_the_request_as_new(
    run: Run, ask: Ask, app: Penstock, folder: Path, as_json: bool
):
    """The interrupted run reads one of two damaged files, the resumed one the other."""
    for path in folder.iterdir():
        path.write_bytes(b"\x7fELF\x00\x01")
    interrupt(app, ask, folder)

    if as_json:
        answer = ask("index", str(folder), code=1)
        counts = answer["counts"]
        assert (2, 0) == (counts["failed"], counts["failed_before"])
        assert (2, []) == (len(answer["failures"]), answer["failed_before"])
    else:
        first = run("index", str(folder), code=1).stdout.splitlines()[0]
        assert re.fullmatch(r"0 files indexed, 2 failed in \d+\.\d s\.", first)
    # The next command reads nothing again, and is no failure.
    assert "2 cannot be read (unchanged)" in run("index", str(folder)).stdout


def test_a_command_that_does_not_wait_does_not_claim_to_watch(
    run: Run, ask: Ask, app: Penstock, folder: Path
):
    job_id = interrupt(app, ask, folder)
    said = run("index", str(folder), "--no-wait").stderr
    assert f"Duplicate: job {job_id} already running\n" in said
    assert "watching" not in said


def test_a_command_that_does_not_wait_says_that_no_worker_runs(run: Run, app: Penstock, folder: Path):
    hint = "No worker is running. Start one with: penstock worker\n"
    assert run("index", str(folder), "--no-wait").stderr.endswith(hint)
    app.queue.report(WorkerReport(worker_id="w2", host="elsewhere", pid=1, started_at=clock.now()))
    assert hint not in run("index", str(folder), "--no-wait").stderr


def test_code_of_a_source_tree_is_included_and_the_summary_says_so(run: Run, ask: Ask, folder: Path):
    (folder / "tool.py").write_text("print('mill')")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    reason = "the folder is in a git repository"
    decided = f"Code is included: {reason} (--no-code leaves it out)."

    assert decided in run("index", str(folder), "--dry-run").stdout.splitlines()
    shown = run("index", str(folder)).stdout
    assert (True, True) == ("3 files indexed" in shown, decided in shown.splitlines())
    answer = ask("index", str(folder), "--no-include-code")
    assert (None, False) == (answer["code_included_because"], answer["result"]["include_code"])
    assert 1 == answer["counts"]["skipped_by"]["code"]


def test_a_command_that_waits_for_a_worker_says_that_it_watches(
    run: Run, ask: Ask, app: Penstock, folder: Path
):
    job_id = interrupt(app, ask, folder)
    app.queue.report(WorkerReport(worker_id="w2", host="elsewhere", pid=1, started_at=clock.now()))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(run, "index", str(folder), "--wait")
        until(lambda: app.job(job_id).followup_json)
        with IndexedFolder(app, folder).manual_worker() as worker:
            worker.drain()
        done = command.result()
    assert "Duplicate detected - watching existing job\n" in done.stderr
    assert "Follow it with" not in done.stderr  # the command follows the job itself
    assert "1 file indexed, 1 chunk, 1 unchanged in" in done.stdout
