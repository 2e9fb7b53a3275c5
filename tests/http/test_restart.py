"""Restart of a server: its jobs go on, whether it was stopped or killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.http.live_server import LiveServer, until


def write_folders(server: LiveServer) -> list[Path]:
    folders = [server.folder / "files" / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        for number in range(40):
            (folder / f"{number}.md").write_text(f"# Part {number}\n\nText {number} of {folder.name}.\n")
    return folders


@pytest.mark.parametrize("signal", ["kill", "stop"])
def test_three_jobs_are_done_although_the_server_is_restarted_in_their_midst(tmp_path: Path, signal: str):
    server = LiveServer(tmp_path)
    try:
        folders = write_folders(server)
        jobs = [server.index(folder).body["job_id"] for folder in folders]
        until(
            lambda: server.ask("GET", "/queue/stats").body["by_status"],
            lambda counts: counts["done"] >= 1,
        )
        if signal == "kill":
            server.kill()
        else:
            assert 0 == server.stop()

        server.start()
        ended = [server.ended(job_id) for job_id in jobs]

        assert ["done"] * 3 == [job["status"] for job in ended]
        assert [40] * 3 == [job["progress"]["files_processed"] for job in ended]
        listed = server.ask("GET", "/documents?limit=1000").body["documents"]
        assert 120 == len({one["path"] for one in listed}) == len(listed)
    finally:
        server.stop()


def test_stop_ends_the_server_and_says_when_there_is_none(tmp_path: Path):
    server = LiveServer(tmp_path, "--no-worker")

    done = subprocess.run(server.command("stop"), env=server.environment(), capture_output=True)
    code = server.wait()
    again = subprocess.run(server.command("stop"), env=server.environment(), capture_output=True)

    assert 0 == done.returncode == code, done.stderr
    assert (4, True) == (again.returncode, b"ERR_SERVER_NOT_RUNNING" in again.stdout + again.stderr)


def test_a_running_job_is_cancelled_at_a_checkpoint(tmp_path: Path):
    server = LiveServer(tmp_path)
    try:
        (server.folder / "files" / "large").mkdir()
        for number in range(600):
            (server.folder / "files" / "large" / f"{number}.md").write_text(f"Text {number}.")
        job_id = server.index("files/large").body["job_id"]
        until(lambda: server.ask("GET", f"/index/jobs/{job_id}").body, lambda job: job["status"] == "running")
        status = server.ask("GET", "/health/status").body

        answer = server.ask("DELETE", f"/index/jobs/{job_id}")
        job = server.ended(job_id)

        assert (True, job_id) == (status["indexing_in_progress"], status["current_job_id"])
        assert answer.status in (200, 202)
        assert answer.status == 200 or (
            "cancel_requested",
            "Worker will stop at next checkpoint",
        ) == (answer.body["status"], answer.body["message"])
        assert ("cancelled", "Cancelled by user") == (job["status"], job["error"])
    finally:
        server.stop()
