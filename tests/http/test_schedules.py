"""Schedules over HTTP: added, changed, run and removed, each in the tenants of its key."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.http.live_server import Answer, LiveServer

Ask = Callable[..., Answer]

SETTINGS = {"max_queue": "5"}
NIGHTLY = {"timing": "0 3 * * *", "zone": "Europe/Berlin", "action": "index", "path": "files"}


class Keys(NamedTuple):
    admin: str
    acme: str
    other: str


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> Keys:
    return Keys(
        server.make_key("admin", "admin"),
        server.make_key("acme", "write", "acme", roots=[server.folder]),
        server.make_key("other", "read", "other"),
    )


@pytest.fixture
def ask(server: LiveServer, keys: Keys) -> Ask:
    """Ask with a key for all tenants."""
    return functools.partial(server.ask, key=keys.admin)


def names(server: LiveServer, key: str) -> list[str]:
    return [one["name"] for one in server.ask("GET", "/schedules", key=key).body["schedules"]]


def test_a_schedule_is_added_changed_paused_run_and_removed(server: LiveServer, ask: Ask):
    added = ask("POST", "/schedules", NIGHTLY)
    assert 201 == added.status
    assert ("index-files", f"index {server.folder / 'files'}") == (added.body["name"], added.body["does"])

    shown = ask("GET", "/schedules/index-files?count=3").body
    assert [3] == sorted({int(one[11:13]) for one in shown["next_in_zone"]})
    assert 3 == len(shown["next"])
    changed = ask("PATCH", "/schedules/index-files", {"timing": "30 4 * * *", "missed": "skip"}).body
    assert ("30 4 * * *", "Europe/Berlin", "skip") == tuple(changed[n] for n in ("timing", "zone", "missed"))
    assert "T04:30:00" in changed["next_in_zone"][0]

    paused = ask("POST", "/schedules/index-files/pause").body
    assert (True, []) == (paused["paused"], paused["next"])
    # A change does not end the pause.
    assert ask("PATCH", "/schedules/index-files", {"timing": "@daily"}).body["paused"]
    assert ask("POST", "/schedules/index-files/resume").body["next_at"]

    receipt = ask("POST", "/schedules/index-files/run")
    assert 202 == receipt.status
    last = ask("GET", "/schedules/index-files").body
    assert (receipt.body["job_id"], "pending", 1) == tuple(
        last[n] for n in ("last_job_id", "last_status", "runs")
    )
    assert 200 == ask("DELETE", f"/index/jobs/{receipt.body['job_id']}").status
    last = ask("GET", "/schedules/index-files").body
    assert ("cancelled", "Cancelled by user") == (last["last_status"], last["last_error"])

    assert {"removed": "index-files"} == ask("DELETE", "/schedules/index-files").body
    assert (404, "ERR_SCHEDULE_NOT_FOUND") == (
        (gone := ask("DELETE", "/schedules/index-files")).status,
        gone.code,
    )


def test_the_list_has_pages(ask: Ask):
    for number in range(3):
        body = {"timing": "every 1h", "action": "call", "function": f"f{number}", "payload": {"n": number}}
        assert 201 == ask("POST", "/schedules", body).status
    first = ask("GET", "/schedules?limit=2").body
    second = ask("GET", f"/schedules?limit=2&offset={first['next']}").body

    assert [["f0", "f1"], ["f2"], None] == [
        [one["name"] for one in first["schedules"]],
        [one["name"] for one in second["schedules"]],
        second["next"],
    ]
    for number in range(3):
        ask("DELETE", f"/schedules/f{number}")


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a time that never comes": ({"timing": "0 0 30 2 *"}, 422, "ERR_INVALID_SCHEDULE"),
    "an unknown zone": ({"zone": "Mars/Olympus"}, 422, "ERR_INVALID_SCHEDULE"),
    "a zone that is a path": ({"zone": "../../etc/passwd"}, 422, "ERR_INVALID_SCHEDULE"),
    "no path": ({"path": None}, 422, "ERR_INVALID_REQUEST"),
    "both targets": ({"function": "f"}, 422, "ERR_INVALID_REQUEST"),
    "a payload for a path": ({"payload": {}}, 422, "ERR_INVALID_REQUEST"),
    "an unknown field": ({"cron": "@daily"}, 422, "ERR_INVALID_REQUEST"),
    "a path outside": ({"path": "/etc"}, 400, "ERR_PATH_OUTSIDE"),
    "a path outside by dots": ({"path": "files/../../.."}, 400, "ERR_PATH_OUTSIDE"),
    "the state directory": ({"path": "state"}, 400, "ERR_PATH_OUTSIDE"),
    "a web page": ({"path": "https://example.org/"}, 403, "ERR_WEB_OFF"),
    "a name with a slash": ({"name": "a/b"}, 422, "ERR_INVALID_NAME"),
    "an unknown rule": ({"missed": "often"}, 422, "ERR_INVALID_REQUEST"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_schedule_is_refused_and_not_stored(server: LiveServer, ask: Ask, keys: Keys, name: str):
    fields, status, code = REFUSED[name]
    answer = ask("POST", "/schedules", NIGHTLY | fields)

    assert (status, code) == (answer.status, answer.code), answer.body
    assert [] == names(server, keys.admin)


def test_a_wrong_change_leaves_the_schedule(ask: Ask):
    ask("POST", "/schedules", NIGHTLY | {"name": "kept"})
    again = ask("POST", "/schedules", NIGHTLY | {"name": "kept"})
    wrong = ask("PATCH", "/schedules/kept", {"zone": "Nowhere"})

    assert (409, "ERR_SCHEDULE_EXISTS") == (again.status, again.code)
    assert (422, "ERR_INVALID_SCHEDULE") == (wrong.status, wrong.code)
    assert "0 3 * * *" == ask("GET", "/schedules/kept").body["timing"]
    assert 201 == ask("POST", "/schedules", NIGHTLY | {"name": "kept", "replace": True}).status
    ask("DELETE", "/schedules/kept")


BACKUP = {"timing": "0 2 * * *", "action": "backup", "directory": "files", "keep": 7}


def test_only_an_admin_of_all_tenants_schedules_backups(server: LiveServer, ask: Ask, keys: Keys):
    bound = server.make_key("bound", "admin", "default")
    writer = server.make_key("writer", "write")
    for key in (keys.acme, bound, writer):
        assert (403, "ERR_NOT_ALLOWED") == (
            (refused := server.ask("POST", "/schedules", BACKUP, key=key)).status,
            refused.code,
        )
    added = ask("POST", "/schedules", BACKUP)
    assert (201, f"backup {server.folder / 'files'}, keep 7") == (added.status, added.body["does"])
    try:
        for key in (bound, writer):
            for act in ("pause", "resume", "run"):
                assert 403 == server.ask("POST", f"/schedules/backup/{act}", key=key).status
            assert 403 == server.ask("PATCH", "/schedules/backup", {"timing": "@yearly"}, key=key).status
            assert 403 == server.ask("DELETE", "/schedules/backup", key=key).status
            assert 200 == server.ask("GET", "/schedules/backup", key=key).status
        taken = NIGHTLY | {"name": "backup", "replace": True}
        assert 409 == server.ask("POST", "/schedules", taken, key=writer).status
        assert ask("POST", "/schedules/backup/pause").body["paused"]
    finally:
        ask("DELETE", "/schedules/backup")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"directory": "/etc"}, 400, "ERR_PATH_OUTSIDE"),
        ({"directory": "state"}, 400, "ERR_PATH_OUTSIDE"),
        ({"directory": "files/none"}, 404, "ERR_PATH_NOT_FOUND"),
        ({"directory": "https://example.org/"}, 404, "ERR_PATH_NOT_FOUND"),
        ({"directory": None}, 422, "ERR_INVALID_REQUEST"),
        ({"keep": 0}, 422, "ERR_INVALID_REQUEST"),
        ({"path": "files"}, 422, "ERR_INVALID_REQUEST"),
        ({"collection": "c"}, 422, "ERR_INVALID_REQUEST"),
        (
            {"action": "call", "function": "penstock.backup", "directory": None, "keep": None},
            422,
            "ERR_INVALID_NAME",
        ),
    ],
)
def test_a_wrong_schedule_of_backups_is_refused(ask: Ask, fields: dict[str, Any], status: int, code: str):
    answer = ask("POST", "/schedules", BACKUP | fields)
    assert (status, code) == (answer.status, answer.code), answer.body


def test_keys_see_and_change_schedules_of_their_tenants_only(server: LiveServer, keys: Keys):
    admin, acme, other = keys
    assert 201 == server.ask("POST", "/schedules", NIGHTLY, key=acme).status
    assert 201 == server.ask("POST", "/schedules", NIGHTLY | {"name": "own"}, key=admin).status

    assert ["index-files"] == names(server, acme)
    assert [] == names(server, other)
    assert ["index-files", "own"] == names(server, admin)
    assert 404 == server.ask("GET", "/schedules/index-files", key=other).status
    assert 403 == server.ask("GET", "/schedules/index-files?tenant_id=acme", key=other).status
    assert 404 == server.ask("DELETE", "/schedules/own", key=acme).status
    assert 403 == server.ask("POST", "/schedules/own/run?tenant_id=default", key=acme).status
    assert 403 == server.ask("POST", "/schedules", NIGHTLY | {"tenant_id": "acme"}, key=other).status
    # The job belongs to the tenant of the schedule.
    job = server.ask("POST", "/schedules/index-files/run", key=acme).body["job_id"]
    assert "acme" == server.ask("GET", f"/index/jobs/{job}", key=acme).body["tenant_id"]
    assert 404 == server.ask("GET", f"/index/jobs/{job}", key=other).status
    audit = [json.loads(line) for line in (server.state / "audit.jsonl").read_text().splitlines()]
    assert {"add schedule", "run schedule"} <= {one["action"] for one in audit}
    for key, name in ((acme, "index-files"), (admin, "own")):
        assert 200 == server.ask("DELETE", f"/schedules/{name}", key=key).status


def test_a_full_queue_refuses_a_run_by_hand(ask: Ask):
    assert 201 == ask("POST", "/schedules", NIGHTLY | {"name": "deep", "collection": "full"}).status
    waiting: list[str] = []
    while (answer := ask("POST", "/content", {"content": f"note {len(waiting)}"})).status == 202:
        waiting.append(answer.body["job_id"])
    refused = ask("POST", "/schedules/deep/run")
    assert (429, "ERR_QUEUE_FULL", 0) == (
        refused.status,
        refused.code,
        ask("GET", "/schedules/deep").body["runs"],
    )
    ask("DELETE", f"/index/jobs/{waiting.pop()}")
    assert 202 == ask("POST", "/schedules/deep/run").status
    for job_id in (*waiting, ask("GET", "/schedules/deep").body["last_job_id"]):
        ask("DELETE", f"/index/jobs/{job_id}")
    ask("DELETE", "/schedules/deep")
