"""Limits over HTTP: set, listed and removed, only by keys for all tenants."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidLimit
from penstock.service.limits import tenant_limit
from tests.http.live_server import LiveServer

SERVE = ("--no-worker", "--app", "mill_tasks")
FILES = {
    "mill_tasks.py": """
from pathlib import Path

from penstock import Penstock

app = Penstock(state_dir=Path(__file__).parent / "state")


@app.function("embed", limit="paid")
def embed(payload): ...


@app.function("double")
def double(payload): ...
"""
}


def test_a_limit_is_set_listed_and_removed(server: LiveServer):
    admin = server.make_key("limits-admin", "admin")
    made = server.ask("PUT", "/limits/api", {"rate": "60/min", "concurrent": 4}, key=admin)
    assert (200, "60/min", 4) == (made.status, made.body["rate"], made.body["concurrent"])
    assert [made.body] == server.ask("GET", "/limits", key=admin).body["limits"]
    assert made.body == server.ask("GET", "/limits/api", key=admin).body
    assert {"removed": "api"} == server.ask("DELETE", "/limits/api", key=admin).body
    for method in ("GET", "DELETE"):
        gone = server.ask(method, "/limits/api", key=admin)
        assert (404, "ERR_LIMIT_NOT_FOUND") == (gone.status, gone.body["code"])


def test_wrong_limits_are_refused(server: LiveServer):
    admin = server.make_key("limits-wrong", "admin")
    for body in (
        {},
        {"rate": "often"},
        {"concurrent": 0},
        {"concurrent": True},
        {"concurrent": 1, "burst": 2},
    ):
        assert 422 == server.ask("PUT", "/limits/api", body, key=admin).status, body
    assert [] == server.ask("GET", "/limits", key=admin).body["limits"]


def test_keys_of_tenants_and_writers_change_no_limits(server: LiveServer):
    bound = server.make_key("limits-acme", "admin", "acme")
    writer = server.make_key("limits-writer", "write")
    for key in (bound, writer):
        assert 403 == server.ask("PUT", "/limits/api", {"concurrent": 1}, key=key).status
        assert 403 == server.ask("DELETE", "/limits/api", key=key).status
    assert 403 == server.ask("GET", "/limits", key=bound).status
    assert 200 == server.ask("GET", "/limits", key=writer).status


def test_jobs_of_a_bound_key_count_for_limits_of_their_tenant(server: LiveServer):
    admin = server.make_key("limits-all", "admin")
    acme = server.make_key("limits-of-acme", "write", "acme", roots=[server.folder])
    path = str(server.folder / "files")
    named: dict[str, str | None] = {}
    requests: dict[str, tuple[str, object]] = {
        "index": ("/index", {"path": path, "limit": "gpu"}),
        "add": ("/index/add?force=true", {"path": path, "limit": "gpu"}),
        "call": ("/functions/double", {"payload": {}, "limit": "gpu"}),
        "upload": ("/files?name=a.md&limit=gpu", iter([b"The gate."])),
        "own limit": ("/functions/embed", {"payload": {}}),
    }
    for name, (route, body) in requests.items():
        for key, of in ((acme, "acme"), (admin, "all")):
            again = iter([b"The gate."]) if name == "upload" else body
            length = {"Content-Length": "9"} if name == "upload" else {}
            sent = server.ask("POST", route, again, key=key, headers=length)
            assert 202 == sent.status, (name, sent.body)
            job = server.ask("GET", f"/index/jobs/{sent.body['job_id']}", key=key).body
            named[f"{name} by {of}"] = job["limit_key"]
            server.ask("DELETE", f"/index/jobs/{sent.body['job_id']}", key=key)

    for name in ("index", "add", "call", "upload"):
        assert ("acme:gpu", "gpu") == (named[f"{name} by acme"], named[f"{name} by all"])
    # The application's limit counts for all tenants: it is of the machine or the service that it protects.
    assert ("paid", "paid") == (named["own limit by acme"], named["own limit by all"])


def test_a_bound_key_neither_takes_slots_of_others_nor_leaves_the_limit_of_a_function(server: LiveServer):
    admin = server.make_key("limits-owner", "admin")
    acme = server.make_key("limits-guest", "write", "acme")
    assert 200 == server.ask("PUT", "/limits/shared", {"concurrent": 1}, key=admin).status
    call = {"payload": {}, "limit": "shared"}
    jobs = [server.ask("POST", "/functions/double", call, key=acme).body["job_id"] for _ in range(3)]
    assert (0, 0) == tuple(
        server.ask("GET", "/limits/shared", key=admin).body[name] for name in ("slots", "waiting")
    )
    for job in jobs:
        assert "limit" not in str(server.ask("GET", f"/index/jobs/{job}", key=acme).body["reason"])

    evading = server.ask("POST", "/functions/embed", call, key=acme)
    assert (403, "ERR_NOT_ALLOWED") == (evading.status, evading.code)
    assert 202 == server.ask("POST", "/functions/embed", call, key=admin).status
    assert 403 == server.ask("GET", "/limits/shared", key=acme).status
    server.ask("DELETE", "/limits/shared", key=admin)


def test_names_of_limits_of_tenants_are_distinct_and_can_stand_in_a_url():
    cases = [("acme", "gpu"), ("acme:gpu", "x"), ("acme", "gpu:x"), ("a", "cme:gpu"), ("ours/mill", "gpu")]
    cases += [("ours~2f~mill", "gpu"), ("mühle 1?", "gpu"), ("x" * 255, "gpu"), ("x" * 254 + "y", "gpu")]
    found = [tenant_limit(*case) for case in cases]

    assert len(cases) == len(set(found))
    assert "acme:gpu" == found[0]
    assert "ours~2f~mill:gpu" == found[4]
    assert all(len(one) <= 200 and not set(one) & set(" /?#%") for one in found)
    for wrong in ("", "a b", "..", "a/b", "x" * 200):
        with pytest.raises(InvalidLimit):
            tenant_limit("acme", wrong)
