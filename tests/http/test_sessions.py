"""Sessions of browsers on a live server, the sender of a request, and the files of the dashboard."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from penstock.http import pages
from tests.http.live_server import Answer, LiveServer

COOKIE = "penstock_session"


def begin(server: LiveServer, key: str) -> tuple[Answer, str]:
    """The answer, and the header with the cookie."""
    answer = server.ask("POST", "/session", {"key": key})
    return answer, answer.headers.get("set-cookie", "").partition(";")[0]


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> tuple[str, str]:
    me = server.ask("GET", "/me").body
    everything = {"scopes": ["read", "write", "admin"], "tenants": ["*"], "roots": []}
    assert {"name": None, "auth": "none", **everything} == me
    return server.make_key("writer", "write", "acme", "globex"), server.make_key("reader")


def test_a_key_shows_what_it_may_do(server: LiveServer, keys: tuple[str, str]):
    assert {
        "name": "writer",
        "scopes": ["read", "write"],
        "tenants": ["acme", "globex"],
        "roots": [],
        "auth": "key",
    } == server.ask("GET", "/me", key=keys[0]).body
    assert ["*"] == server.ask("GET", "/me", key=keys[1]).body["tenants"]
    assert 401 == server.ask("GET", "/me").status


def test_a_cookie_counts_as_its_key_until_the_session_ends(server: LiveServer, keys: tuple[str, str]):
    answer, cookie = begin(server, keys[0])
    assert 204 == answer.status
    attributes = answer.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert keys[0] not in answer.headers["set-cookie"]

    me = server.ask("GET", "/me", headers={"Cookie": cookie}).body
    assert ("writer", "session", ["acme", "globex"]) == (me["name"], me["auth"], me["tenants"])
    assert 204 == server.ask("DELETE", "/session", headers={"Cookie": cookie}).status
    assert 401 == server.ask("GET", "/me", headers={"Cookie": cookie}).status
    assert 204 == server.ask("DELETE", "/session", headers={"Cookie": cookie}).status


def test_a_change_by_cookie_needs_the_origin_of_the_server(server: LiveServer, keys: tuple[str, str]):
    _, cookie = begin(server, keys[0])
    note = {"content": "A note.", "tenant_id": "acme"}

    refused = server.ask("POST", "/content", note, headers={"Cookie": cookie})
    assert (403, "ERR_ORIGIN_REFUSED") == (refused.status, refused.code)
    other = {"Cookie": cookie, "Origin": "http://elsewhere.example"}
    assert 403 == server.ask("POST", "/content", note, headers=other).status
    own = {"Cookie": cookie, "Origin": server.url}
    assert 202 == server.ask("POST", "/content", note, headers=own).status
    fetched = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    assert 202 == server.ask("POST", "/content", note, headers=fetched).status


def test_an_unknown_key_begins_no_session(server: LiveServer, keys: tuple[str, str]):
    answer, cookie = begin(server, keys[0][:-1])

    assert (401, "ERR_KEY_REQUIRED", "") == (answer.status, answer.code, cookie)
    forged = {"Cookie": f"{COOKIE}=penstock"}
    assert 401 == server.ask("GET", "/me", headers=forged).status
    assert 422 == server.ask("POST", "/session", {"key": ""}).status


def test_a_session_outlives_the_server_but_not_its_key(server: LiveServer, keys: tuple[str, str]):
    _, cookie = begin(server, server.make_key("leaver"))
    assert 0 == server.stop()
    stored = (server.state / "sessions.json").read_text()
    assert cookie.partition("=")[2] not in stored
    assert 1 <= len(json.loads(stored.partition("\n")[0]))
    server.start("--no-worker")
    assert "leaver" == server.ask("GET", "/me", headers={"Cookie": cookie}).body["name"]

    revoke = server.command("keys", "revoke", "leaver")
    subprocess.run(revoke, env=server.environment(), check=True, capture_output=True)
    assert 401 == server.ask("GET", "/me", headers={"Cookie": cookie}).status


def test_the_page_and_its_files_need_no_key(server: LiveServer, keys: tuple[str, str]):
    files = pages.paths()
    if not files:
        assert 401 == server.ask("GET", "/").status
        assert 404 == server.ask("GET", "/", key=keys[1]).status
        return
    for path in files:
        answer = server.raw("GET", path)
        assert (200, "nosniff") == (answer.status, answer.headers["x-content-type-options"])
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        again = server.raw("GET", path, headers={"If-None-Match": answer.headers["etag"]})
        assert (304, b"") == (again.status, again.body)
    assert 401 == server.ask("GET", "/dashboard/../index.html").status
    assert 405 == server.ask("POST", "/", key=keys[1]).status


def test_only_files_of_the_folder_are_routes(tmp_path: Path):
    assert {} == pages.paths(tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "parts.d").mkdir()
    (tmp_path / "parts.d" / "a.js").write_text("1")

    assert ["/", "/index.html", "/parts.d/a.js"] == sorted(pages.paths(tmp_path))
    sent = pages.respond_file(tmp_path / "parts.d" / "a.js", None)
    assert "text/javascript; charset=utf-8" == sent.headers["content-type"]
