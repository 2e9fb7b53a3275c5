"""Limits over HTTP: set, listed and removed, only by keys for all tenants."""

from __future__ import annotations

from tests.http.live_server import LiveServer


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
