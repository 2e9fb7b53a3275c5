"""The page of schedules: next runs, results, and what a person can do about them; names of projects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.chromium import Tab
from tests.http.live_server import LiveServer

SERVE = ("--no-worker",)
ROW = "main tr[data-id='default/{name}']"


@pytest.fixture(scope="module")
def schedules(server: LiveServer) -> None:
    for body in (
        {
            "timing": "0 3 * * *",
            "zone": "Europe/Berlin",
            "action": "index",
            "path": "files",
            "name": "nightly",
        },
        {"timing": "every 15m", "action": "call", "function": "refresh", "missed": "skip"},
    ):
        assert 201 == server.ask("POST", "/schedules", body).status


def shown(server: LiveServer, name: str) -> dict[str, Any]:
    body: dict[str, Any] = server.ask("GET", f"/schedules/{name}").body
    return body


def press(tab: Tab, name: str, words: str) -> None:
    tab.click(f"{ROW.format(name=name)} button", words)


def test_schedules_show_their_next_run_and_are_run_paused_and_resumed(
    tab: Tab, server: LiveServer, schedules: None
):
    tab.open(server.url)
    tab.sees("searchable")
    tab.press("g", "c")
    tab.sees("03:00", ROW.format(name="nightly"))
    tab.sees("Europe/Berlin", ROW.format(name="nightly"))
    tab.sees("no run yet", ROW.format(name="refresh"))

    press(tab, "nightly", "Run now")
    tab.sees("Queued.", "#toasts")
    tab.sees("pending", ROW.format(name="nightly"))
    job = shown(server, "nightly")["last_job_id"]
    server.ask("DELETE", f"/index/jobs/{job}")
    # The event of the job is enough: nobody reads the page again.
    tab.sees("Cancelled by user", ROW.format(name="nightly"))

    press(tab, "refresh", "Pause")
    tab.sees("paused", ROW.format(name="refresh"))
    assert shown(server, "refresh")["paused"]
    press(tab, "refresh", "Resume")
    tab.wait(f"!document.querySelector(\"{ROW.format(name='refresh')}\").innerText.includes('paused')")
    assert not shown(server, "refresh")["paused"]
    tab.click(f"{ROW.format(name='nightly')} a")
    tab.sees("History")
    assert server.ask("GET", f"/index/jobs/{job}").body["folder_path"] in tab.text("h1")


def test_a_schedule_is_removed_only_after_a_question(tab: Tab, server: LiveServer, schedules: None):
    server.ask("POST", "/schedules", {"timing": "@daily", "action": "call", "function": "old"})
    tab.open(f"{server.url}/#/schedules")
    tab.sees("old", ROW.format(name="old"))
    press(tab, "old", "Remove")
    tab.sees("Remove the schedule old?", "dialog")
    assert "Keep it" == tab.evaluate("document.activeElement.innerText")
    tab.press("Escape")
    tab.wait("!document.querySelector('dialog')")
    assert "@daily" == shown(server, "old")["timing"]
    press(tab, "old", "Remove")
    tab.click("dialog button", "Remove schedule")
    tab.wait(f'!document.querySelector("{ROW.format(name="old")}")')
    assert 404 == server.ask("GET", "/schedules/old").status


def test_a_project_is_shown_by_its_name(tab: Tab, server: LiveServer):
    heads = server.folder / "files" / "weir" / ".git" / "refs" / "heads"
    heads.mkdir(parents=True)
    (heads.parents[1] / "HEAD").write_text("ref: refs/heads/main\n")
    (heads / "main").write_text("0" * 40)
    job = server.ask("POST", "/index/", {"folder_path": "files/weir", "project": True}).body["job_id"]
    (project,) = server.ask("GET", "/projects").body["projects"]
    tab.open(f"{server.url}/#/jobs")
    tab.sees(project["name"], f"tr[data-id={job}] .tenant")
    tab.click(f"tr[data-id={job}] a")
    tab.sees(project["name"], ".crumbs")
    assert project["tenant_id"] not in tab.text(".crumbs")
