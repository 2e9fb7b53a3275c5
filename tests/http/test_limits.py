"""Limits of one key, and a server without keys on purpose."""

from __future__ import annotations

from tests.http.live_server import LiveServer

SETTINGS = {"rate_limit": "30", "allow_external": "true", "hosts": "mill.example"}


def test_a_key_that_sends_too_much_has_to_wait_and_others_have_not(server: LiveServer):
    greedy, modest = server.make_key("greedy"), server.make_key("modest")

    answers = [server.ask("GET", "/health/status", key=greedy) for _ in range(40)]

    (refused, *_) = [answer for answer in answers if answer.status != 200]
    assert (429, "ERR_RATE_LIMITED") == (refused.status, refused.code)
    assert 1 <= int(refused.headers["retry-after"]) <= 2
    assert 200 == server.ask("GET", "/health/status", key=modest).status
    assert 401 == server.ask("GET", "/health/status").status


def test_allow_external_counts_where_the_settings_allow_it(server: LiveServer):
    key = server.make_key("writer", "write")
    body = {"folder_path": "/usr/bin"}

    assert 400 == server.ask("POST", "/index/", body, key=key).status
    assert 202 == server.ask("POST", "/index/?allow_external=true", body, key=key).status
    state = server.ask("POST", "/index/?allow_external=true", {"folder_path": str(server.state)}, key=key)
    assert (400, "ERR_PATH_OUTSIDE") == (state.status, state.code)


def test_a_name_of_the_settings_is_a_name_of_the_server(server: LiveServer):
    assert 200 == server.ask("GET", "/health", headers={"Host": "mill.example"}).status
    assert 421 == server.ask("GET", "/health", headers={"Host": "mil.example"}).status
