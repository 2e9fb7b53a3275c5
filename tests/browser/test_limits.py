"""Limits by key on the page of workers: what they hold, and how a person changes and removes them."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Tab
from tests.http.live_server import LiveServer

SERVE = ("--no-worker",)
ROW = "main tr[data-id='{key}']"


@pytest.fixture(scope="module")
def limits(server: LiveServer) -> None:
    assert 200 == server.ask("PUT", "/limits/mill", {"concurrent": 1, "rate": "60/min"}).status
    assert 200 == server.ask("PUT", "/limits/weir", {"concurrent": 1}).status
    for key, name in (("mill", "a.txt"), ("mill", "b.txt"), ("weir", "c.txt"), ("weir", "d.txt")):
        (server.folder / "files" / name).write_text("The mill runs at dawn.")
        body = {"folder_path": f"files/{name}", "limit": key}
        assert 202 == server.ask("POST", "/index/", body).status


def test_a_limit_shows_what_it_holds_and_is_set_changed_and_removed(
    tab: Tab, server: LiveServer, limits: None
):
    tab.open(f"{server.url}/#/workers")
    tab.sees("60/min", ROW.format(key="mill"))
    assert ["1", "60/min", "1", "1"] == tab.evaluate(
        f'[...document.querySelectorAll("{ROW.format(key="mill")} td.num")].map(one => one.innerText.trim())'
    )

    tab.click("main button", "Set limit")
    tab.sees("Set a limit", "dialog")
    tab.type("dialog input[name=key]", "gpu")
    tab.type("dialog input[name=rate]", "often")
    tab.click("dialog button", "Set limit")
    tab.sees("is not a number of starts in a period", "dialog")
    tab.errors[:] = [one for one in tab.errors if "Failed to load resource" not in one]
    tab.type("dialog input[name=rate]", "5/s")
    tab.click("dialog button", "Set limit")
    tab.sees("5/s", ROW.format(key="gpu"))

    tab.click(f"{ROW.format(key='mill')} button", "Change")
    tab.sees("Change the limit mill", "dialog")
    tab.type("dialog input[name=concurrent]", "2")
    tab.click("dialog button", "Set limit")
    tab.wait("!document.querySelector('dialog')")
    shown = server.ask("GET", "/limits/mill").body
    assert (2, "60/min") == (shown["concurrent"], shown["rate"])

    tab.click(f"{ROW.format(key='gpu')} button", "Remove")
    tab.sees("Remove the limit gpu?", "dialog")
    assert "Keep it" == tab.evaluate("document.activeElement.innerText")
    tab.click("dialog button", "Remove limit")
    tab.wait(f'!document.querySelector("{ROW.format(key="gpu")}")')
    assert 404 == server.ask("GET", "/limits/gpu").status


def test_a_job_names_its_limit(tab: Tab, server: LiveServer, limits: None):
    job = next(
        one
        for one in server.ask("GET", "/index/jobs/?held=limit").body["jobs"]
        if one["reason"] == "held: limit weir"
    )
    tab.open(f"{server.url}/#/jobs/{job['job_id']}")
    tab.sees("Limit weir: 1 job at once")
    tab.click("main .facts a", "weir")
    tab.sees("Limits by key")
