"""Restart of a server: its jobs go on, whether it was stopped or killed."""

from __future__ import annotations

import json
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


def stop_by_command(server: LiveServer) -> None:
    """Stop the server with ``penstock stop``; a second one finds none."""
    command = server.command("stop")
    done = subprocess.run(command, env=server.environment(), capture_output=True)
    code = server.wait()
    again = subprocess.run(command, env=server.environment(), capture_output=True)

    assert 0 == done.returncode == code, done.stderr
    assert (server.url, True) == (json.loads(done.stdout)["url"], json.loads(done.stdout)["ended"])
    assert (4, True) == (again.returncode, b"ERR_SERVER_NOT_RUNNING" in again.stdout + again.stderr)


@pytest.mark.parametrize("end", [LiveServer.kill, pytest.param(stop_by_command, marks=pytest.mark.long)])
def test_three_jobs_are_done_although_the_server_is_restarted_in_their_midst(tmp_path: Path, end):
    server = LiveServer(tmp_path)
    try:
        folders = write_folders(server)
        jobs = [server.index(folder).body["job_id"] for folder in folders]
        until(
            lambda: server.ask("GET", "/queue/stats").body["by_status"],
            lambda counts: counts["done"] >= 1,
        )
        end(server)

        server.start()
        ended = [server.ended(job_id) for job_id in jobs]

        assert ["done"] * 3 == [job["status"] for job in ended]
        assert [40] * 3 == [job["progress"]["files_processed"] for job in ended]
        listed = server.ask("GET", "/documents?limit=1000").body["documents"]
        assert 120 == len({one["path"] for one in listed}) == len(listed)
    finally:
        server.stop()
