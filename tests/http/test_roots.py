"""Roots of keys: which paths of the server a request may name, at every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.http.live_server import Answer, LiveServer
from tests.mcp.test_over_http import connected

SERVE = ("--processes", "1")
SETTINGS = {"allow_external": "true", "allow_web": "true", "web_private": "true"}
SECRET = "globex/secret.md"


class Keys(NamedTuple):
    admin: str
    bare: str
    """Bound to acme, without roots."""
    acme: str
    """Bound to acme, with its folder as root."""
    rooted: str
    """Not bound to tenants, with two roots."""


@pytest.fixture(scope="module")
def keys(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Keys:
    for name in ("acme", "globex", "shared", "lent"):
        (server.folder / name).mkdir()
    (server.folder / "acme" / "mill.md").write_text("The mill of acme grinds barley.")
    (server.folder / SECRET).write_text("The sluice of globex is hidden.")
    (server.folder / "lent" / "oats.md").write_text("Oats, lent to acme.")
    (server.folder / "shared" / "all.md").write_text("The river is for all.")
    (server.folder / "acme" / "link.md").symlink_to("../globex/secret.md")
    (server.folder / "acme" / "out").symlink_to("../globex")
    return Keys(
        server.make_key("admin", "admin"),
        server.make_key("bare", "write", "acme"),
        server.make_key("acme", "write", "acme", roots=[server.folder / "acme"]),
        server.make_key("rooted", "write", roots=[server.folder / "acme", server.folder / "shared"]),
    )


DOORS: dict[str, Callable[[str], tuple[str, str, Any]]] = {
    "index": lambda path: ("POST", "/index/", {"folder_path": path}),
    "index external": lambda path: ("POST", "/index/?allow_external=true", {"path": path}),
    "add": lambda path: ("POST", "/index/add", {"folder_path": path}),
    "schedule": lambda path: ("POST", "/schedules", {"timing": "@daily", "action": "index", "path": path}),
    "library": lambda path: ("POST", "/library", {"requirement": "mill==1", "source": path}),
    "rename from": lambda path: ("POST", "/documents/rename", {"old_path": path, "new_path": "acme/new.md"}),
    "rename to": lambda path: ("POST", "/documents/rename", {"old_path": "acme/mill.md", "new_path": path}),
    "remove": lambda path: ("POST", "/documents/remove", {"path_or_id": path}),
    "why": lambda path: ("GET", f"/why?path={path}", None),
    "history": lambda path: ("GET", f"/history?document={path}", None),
    "similar": lambda path: ("POST", "/similar", {"path_or_id": path}),
}


def ask(server: LiveServer, key: str, door: str, path: str) -> Answer:
    method, route, body = DOORS[door](path)
    return server.ask(method, route, body, key=key)


@pytest.mark.parametrize("door", DOORS)
def test_a_bound_key_without_roots_names_no_path(server: LiveServer, keys: Keys, door: str):
    for path in (SECRET, f"{server.folder}/{SECRET}", f"{server.folder}/none.md", "/etc/passwd", "/etc/none"):
        answer = ask(server, keys.bare, door, path)
        assert (403, "ERR_NOT_ALLOWED") == (answer.status, answer.code), path
        assert "--root" in answer.body["remedy"]
        assert "secret" not in answer.body["detail"].replace(path, "")


@pytest.mark.parametrize("door", DOORS)
def test_a_key_with_roots_names_paths_below_them_only(server: LiveServer, keys: Keys, door: str):
    for path in (
        f"{server.folder}/{SECRET}",
        f"{server.folder}/globex/none.md",
        f"{server.folder}/acme/../globex/secret.md",
        f"{server.folder}/acme/out/secret.md",
        f"{server.folder}",
        f"{server.folder}/acme-2/",
        "../globex/secret.md",
        "out/secret.md",
        "/etc/passwd",
        f"{server.state}/keys.json",
    ):
        for key in (keys.acme, keys.rooted):
            answer = ask(server, key, door, path)
            assert (400, "ERR_PATH_OUTSIDE") == (answer.status, answer.code), path
            assert (
                f"Path '{path}' is outside project. Use --allow-external to override."
                == answer.body["detail"]
            )
            assert "--root" in answer.body["remedy"]


@pytest.mark.parametrize("door", ["index", "index external", "add", "schedule", "library"])
def test_a_link_out_of_the_root_is_followed_before_the_comparison(server: LiveServer, keys: Keys, door: str):
    answer = ask(server, keys.acme, door, f"{server.folder}/acme/link.md")

    assert (400, "ERR_PATH_OUTSIDE") == (answer.status, answer.code)


def test_a_key_with_roots_works_below_them(server: LiveServer, keys: Keys):
    # A relative path begins at the first root of the key.
    job = server.index("mill.md", key=keys.acme)
    assert 202 == job.status, job.body
    assert "done" == server.ended(job.body["job_id"], key=keys.acme)["status"]
    path = f"{server.folder}/acme/mill.md"
    reason = server.ask("GET", f"/why?path={path}", key=keys.acme).body
    assert ("indexed", path) == (reason["verdict"], reason["path"])
    assert "unknown" == server.ask("GET", "/why?path=never.md", key=keys.acme).body["verdict"]
    assert 200 == server.ask("GET", f"/history?document={path}", key=keys.acme).status
    assert 200 == ask(server, keys.acme, "similar", path).status
    for name in (f"{server.folder}/shared/all.md", f"{server.folder}/acme/mill.md"):
        assert 202 == server.index(name, key=keys.rooted).status
    # A document of its own tenant may be named, wherever its file is; none of another one.
    assert "indexed" == server.ask("GET", f"/why?path={path}", key=keys.bare).body["verdict"]
    assert 200 == ask(server, keys.bare, "similar", path).status
    assert 202 == ask(server, keys.bare, "remove", path).status


def test_a_bound_key_without_roots_uploads_and_adds_notes(server: LiveServer, keys: Keys):
    note = server.ask("POST", "/content", {"content": "A note."}, key=keys.bare)
    sent = server.ask(
        "POST", "/files?name=gate.md", iter([b"The gate."]), key=keys.bare, headers={"Content-Length": "9"}
    )
    assert (202, 202) == (note.status, sent.status), sent.body
    path = sent.body["path"]
    # Its path is known before the file was read, and after it was removed.
    assert server.ask("GET", f"/why?path={path}", key=keys.bare).body["verdict"] in ("waiting", "indexed")
    assert "done" == server.ended(sent.body["job_id"], key=keys.bare)["status"]
    removed = ask(server, keys.bare, "remove", path)
    assert 202 == removed.status
    assert "done" == server.ended(removed.body["job_id"], key=keys.bare)["status"]
    assert 200 == ask(server, keys.bare, "history", path).status
    assert 403 == ask(server, keys.bare, "index", path).status


def test_an_installed_library_needs_a_key_without_bounds(server: LiveServer, keys: Keys):
    for key in (keys.bare, keys.acme, keys.rooted):
        refused = server.ask("POST", "/library?allow_external=true", {"requirement": "msgspec"}, key=key)
        assert (422, "ERR_INVALID_REQUEST") == (refused.status, refused.code)


def test_web_pages_are_below_roots_that_are_hosts(server: LiveServer, keys: Keys):
    page = "http://127.0.0.1:9/mill"
    web = server.make_key("web", "write", "acme", roots=["http://127.0.0.1:9"])

    assert 403 == server.index(page, key=keys.bare).status
    for key, path in (
        (keys.acme, page),
        (web, "http://127.0.0.1:10/"),
        (web, "http://localhost:9/"),
        (web, "a.md"),
    ):
        answer = server.index(path, key=key)
        assert (400, "ERR_PATH_OUTSIDE") == (answer.status, answer.code)
    for route, body in (
        ("/index/", {"path": page}),
        ("/library", {"requirement": "m==1", "source": page}),
    ):
        other = server.ask("POST", route, {**body, "hosts": ["localhost"]}, key=web)
        assert (400, "ERR_PATH_OUTSIDE") == (other.status, other.code)
        allowed = server.ask("POST", route, body, key=web)
        assert 202 == allowed.status
        server.ask("DELETE", f"/index/jobs/{allowed.body['job_id']}", key=web)


def test_a_schedule_keeps_the_paths_of_the_key_that_made_it(server: LiveServer, keys: Keys):
    body = {"timing": "@yearly", "action": "index", "path": f"{server.folder}/lent", "tenant_id": "acme"}
    assert 201 == server.ask("POST", "/schedules", {**body, "name": "ours"}, key=keys.admin).status
    # Another key of the tenant runs it as it is, and cannot lead it elsewhere, nor take its path over.
    run = server.ask("POST", "/schedules/ours/run", key=keys.acme)
    assert 202 == run.status
    assert "done" == server.ended(run.body["job_id"], key=keys.acme)["status"]
    again = {"timing": "@daily", "action": "index", "name": "ours", "replace": True}
    for path in (f"{server.folder}/lent", f"{server.folder}/shared"):
        refused = server.ask("POST", "/schedules", {**again, "path": path}, key=keys.acme)
        assert (400, "ERR_PATH_OUTSIDE") == (refused.status, refused.code)
    assert (
        422 == server.ask("PATCH", "/schedules/ours", {"path": f"{server.folder}/acme"}, key=keys.acme).status
    )
    shown = server.ask("GET", "/schedules/ours", key=keys.acme).body
    assert f"index {server.folder}/lent" == shown["does"]


def test_agents_over_http_are_bound_by_the_roots(server: LiveServer, keys: Keys):
    secret = f"{server.folder}/{SECRET}"
    with connected(server, keys.bare) as agent:
        for tool, field in (("index_path", "path"), ("why", "path"), ("read_document", "path_or_id")):
            for path in (secret, f"{server.folder}/acme/link.md", "/etc/passwd", "acme"):
                assert "ERR_NOT_ALLOWED" in agent.refusal(tool, **{field: path}), (tool, path)
    with connected(server, keys.acme) as agent:
        for tool, field in (("index_path", "path"), ("why", "path"), ("read_document", "path_or_id")):
            for path in (secret, "../globex/secret.md", "out/secret.md", "/etc/passwd"):
                assert "ERR_PATH_OUTSIDE" in agent.refusal(tool, **{field: path}), (tool, path)
        assert "done" in agent.call("index_path", path="mill.md", wait=True)
        assert "barley" in agent.call("read_document", path_or_id="mill.md")


def test_roots_are_shown(server: LiveServer, keys: Keys):
    assert [f"{server.folder}/acme"] == server.ask("GET", "/me", key=keys.acme).body["roots"]
    assert [] == server.ask("GET", "/me", key=keys.bare).body["roots"]


def test_a_root_of_a_key_outside_the_roots_of_the_server_allows_nothing(
    server: LiveServer, keys: Keys, tmp_path: Path
):
    (tmp_path / "a.md").write_text("a")
    key = server.make_key("outside", "write", roots=[tmp_path])

    refused = server.index(tmp_path / "a.md", key=key)
    assert (400, "ERR_PATH_OUTSIDE") == (refused.status, refused.code)
    # Unless the setting and the request allow paths outside.
    allowed = server.ask("POST", "/index/?allow_external=true", {"path": "a.md"}, key=key)
    assert 202 == allowed.status, allowed.body
