"""Every route, asked by every kind of sender: one table of statuses. A route without a row fails the test."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.routing import Route

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.http import pages
from penstock.queue.job import Status
from penstock.service.keys import Keys
from tests.http.live_server import WAIT_S, LiveServer, next_peer, until
from tests.pipeline.sample_documents import pdf

TASKS = """
from pathlib import Path

from penstock import Penstock

app = Penstock(state_dir=Path(__file__).parent / "state")


@app.function("double")
def double(payload): ...
"""
OUTSIDE = ("nobody", "wrong", "revoked", "proxied")
"""No key, an unknown one, a revoked one, and no key through a proxy."""
INSIDE = ("read", "write", "acme", "rooted", "other", "admin", "cookie", "page", "foreign")
"""Keys: of all tenants, with the scopes read and write; admin of acme; write of acme with its folder as root;
admin of another tenant; admin of all tenants. Its session by a cookie: without an Origin, with the
Origin of the server, and with another one."""


class Row(NamedTuple):
    """A request, and the statuses for the senders of ``INSIDE``; those of ``OUTSIDE`` get 401.

    ``route``: the path as the server knows it. ``path``: the path that is sent; by default the same. Both
    have names of things of the tenant acme in braces. ``fresh`` makes one that the request uses up.
    """

    method: str
    route: str
    inside: str
    path: str | None = None
    body: Any = None
    fresh: str | None = None
    outside: str = "401 401 401 401"


ALL = "200 200 200 200 200 200 200 200 403"
"""Everybody reads: the answer has only what the key may see."""
OF_ACME = "200 200 200 200 404 200 200 200 403"
"""A thing of acme does not exist for another tenant."""
NAMED = "200 200 200 200 403 200 200 200 403"
"""The request names the tenant acme."""
ASKED = "200 200 200 200 403 200 403 200 403"
"""A question by POST that names the tenant acme."""
UNBOUND = "200 200 403 403 403 200 200 200 403"
WRITTEN = "403 202 202 202 403 202 403 202 403"
WRITTEN_TO = "403 202 202 202 404 202 403 202 403"
WITH_PATH = "403 202 403 202 403 202 403 202 403"
"""Names a path in the folder of acme: a bound key needs it as root."""
CHANGED = "403 200 200 200 403 200 403 200 403"
ADMINS = "403 403 403 403 403 202 403 202 403"
ADMINS_AT_ONCE = ADMINS.replace("202", "200")
OPEN = "200 200 200 200"

NOTE = {"content": "A note.", "tenant_id": "acme"}
SCHEDULE = {"timing": "@yearly", "tenant_id": "acme", "name": "nightly", "replace": True}
CALL = {**SCHEDULE, "action": "call", "function": "double"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "mill", "version": "1"},
    },
}
TABLE = [
    Row("GET", "/health", ALL, outside=OPEN),
    Row("GET", "/health/status", ALL),
    Row("GET", "/health/ready", ALL),
    Row("GET", "/metrics", ALL),
    Row("GET", "/openapi.json", ALL),
    Row("GET", "/me", ALL),
    Row(
        "POST", "/session", "204 204 204 204 204 204 204 204 403", body="{session}", outside="204 204 204 204"
    ),
    Row("DELETE", "/session", "204 204 204 204 204 204 204 204 403", outside="204 204 204 204"),
    Row("POST", "/mcp", "200 200 200 200 200 200 403 200 403", body=INITIALIZE),
    Row("GET", "/mcp", ALL.replace("200", "400")),
    Row("DELETE", "/mcp", ASKED.replace("200", "400").replace("403 400 403 400", "400 400 403 400")),
    Row("GET", "/events", ALL),
    Row("GET", "/index/jobs", NAMED, "/index/jobs?tenant_id=acme"),
    Row("POST", "/index/jobs/retry", CHANGED, body={"filter": {"tenant_id": "acme"}, "dry_run": True}),
    Row("POST", "/index/jobs/cancel", CHANGED, body={"filter": {"tenant_id": "acme"}, "dry_run": True}),
    Row("GET", "/index/jobs/{job_id}", OF_ACME),
    Row("GET", "/index/jobs/{job_id}/outcome", OF_ACME),
    Row("GET", "/index/jobs/{job_id}/events", OF_ACME),
    Row("DELETE", "/index/jobs/{job_id}", "403 200 200 200 404 200 403 200 403", fresh="pending job"),
    Row("POST", "/index/jobs/{job_id}/retry", WRITTEN_TO, fresh="cancelled job"),
    Row("POST", "/index", WITH_PATH, body={"path": "{file}", "tenant_id": "acme"}),
    Row("POST", "/index/add", WITH_PATH, body={"path": "{file}", "tenant_id": "acme"}),
    Row("POST", "/content", WRITTEN, body=NOTE),
    Row("GET", "/functions", ALL),
    Row("POST", "/functions/{name}", WRITTEN, "/functions/double", {"payload": {}, "tenant_id": "acme"}),
    Row("GET", "/documents", NAMED, "/documents?tenant_id=acme"),
    Row("GET", "/documents/{source_id}", OF_ACME),
    Row("GET", "/documents/{source_id}/tree", OF_ACME),
    Row("GET", "/documents/{source_id}/pages/{page}", OF_ACME),
    Row("GET", "/documents/{source_id}/pages/{page}/image", OF_ACME),
    Row("GET", "/documents/{source_id}/pages/{page}/frames", OF_ACME),
    Row("DELETE", "/documents/{source_id}", WRITTEN_TO),
    Row("POST", "/documents/remove", WRITTEN, body={"path_or_id": "{file}", "tenant_id": "acme"}),
    Row("POST", "/documents/remove", WRITTEN, body={"path_or_id": "{source_id}", "tenant_id": "acme"}),
    # An id without a tenant names a document of any tenant of the key.
    Row("POST", "/documents/remove", WRITTEN_TO, body={"path_or_id": "{source_id}"}),
    Row(
        "POST",
        "/documents/rename",
        WITH_PATH,
        body={"old_path": "{file}", "new_path": "{folder}/new.pdf", "tenant_id": "acme"},
    ),
    Row("GET", "/projects", ALL),
    Row("GET", "/why", NAMED, "/why?path={file}&tenant_id=acme"),
    Row("GET", "/why", "200 200 403 200 403 200 200 200 403", "/why?path={folder}/none&tenant_id=acme"),
    Row("GET", "/history", NAMED, "/history?document={file}&tenant_id=acme"),
    Row("GET", "/overview", NAMED, "/overview?tenant_id=acme"),
    Row("POST", "/files", WRITTEN, "/files?name=gate.md&tenant_id=acme", b"The gate."),
    Row("POST", "/search", ASKED, body={"query": "mill", "tenant_id": "acme"}),
    Row("POST", "/context", ASKED, body={"query": "mill", "tenant_id": "acme"}),
    Row("POST", "/similar", ASKED, body={"path_or_id": "{file}", "tenant_id": "acme"}),
    Row("GET", "/graph/entity", NAMED, "/graph/entity?name=Mill&tenant_id=acme"),
    Row("GET", "/graph/neighbours", NAMED, "/graph/neighbours?name=Mill&tenant_id=acme"),
    Row("GET", "/graph/path", NAMED, "/graph/path?source=Mill&target=grind&tenant_id=acme"),
    Row("GET", "/graph/stats", NAMED, "/graph/stats?tenant_id=acme"),
    Row("GET", "/queue/stats", ALL),
    Row("GET", "/queue/status", UNBOUND),
    Row("GET", "/queue/history", NAMED, "/queue/history?tenant_id=acme"),
    Row("GET", "/queue/failures", NAMED, "/queue/failures?tenant_id=acme"),
    Row("POST", "/queue/pause", "403 403 200 200 403 200 403 200 403", body={"tenant_id": "acme"}),
    Row("POST", "/queue/pause", ADMINS_AT_ONCE, body={"tenant_id": "*", "collection": "none"}),
    Row("POST", "/queue/resume", "403 403 200 200 403 200 403 200 403", body={"tenant_id": "acme"}),
    Row("POST", "/queue/purge", ADMINS_AT_ONCE, body={"status": ["failed"]}),
    Row("POST", "/queue/retry-failed", CHANGED, body={"tenant_id": "acme"}),
    Row("DELETE", "/tenants/{name}", ADMINS, "/tenants/gone"),
    Row("GET", "/collections", NAMED, "/collections?tenant_id=acme"),
    Row("GET", "/collections/{name:path}", NAMED, "/collections/default?tenant_id=acme"),
    Row(
        "DELETE",
        "/collections/{name:path}",
        WRITTEN.replace("202", "404"),
        "/collections/none?tenant_id=acme",
    ),
    Row("GET", "/notes", NAMED, "/notes?tenant_id=acme"),
    Row("GET", "/notes/{note_id}", NAMED, "/notes/{note_id}?tenant_id=acme"),
    Row("PUT", "/notes/{note_id}", WRITTEN, body=NOTE),
    Row("DELETE", "/notes/{note_id}", WRITTEN, "/notes/{note_id}?tenant_id=acme"),
    Row("GET", "/schedules", NAMED, "/schedules?tenant_id=acme"),
    Row("POST", "/schedules", WRITTEN.replace("202", "201"), body=CALL),
    Row(
        "POST",
        "/schedules",
        WITH_PATH.replace("202", "201"),
        body={**SCHEDULE, "name": "files", "action": "index", "path": "{folder}"},
    ),
    Row(
        "POST",
        "/schedules",
        ADMINS.replace("202", "201"),
        body={**SCHEDULE, "name": "backup", "action": "backup", "directory": "{folder}"},
    ),
    Row("GET", "/schedules/{name}", NAMED, "/schedules/kept?tenant_id=acme"),
    Row("PATCH", "/schedules/{name}", CHANGED, "/schedules/kept?tenant_id=acme", {"timing": "@monthly"}),
    Row("DELETE", "/schedules/{name}", CHANGED, "/schedules/once?tenant_id=acme", fresh="schedule"),
    Row("POST", "/schedules/{name}/pause", CHANGED, "/schedules/kept/pause?tenant_id=acme"),
    Row("POST", "/schedules/{name}/resume", CHANGED, "/schedules/kept/resume?tenant_id=acme"),
    Row("POST", "/schedules/{name}/run", WRITTEN, "/schedules/kept/run?tenant_id=acme"),
    Row("GET", "/library", NAMED, "/library?tenant_id=acme"),
    Row(
        "POST",
        "/library",
        WITH_PATH,
        body={"requirement": "grain==2", "source": "{folder}", "tenant_id": "acme"},
    ),
    Row(
        "POST", "/library", WRITTEN, "/library?requirement=oats%3D%3D1&name=oats.zip&tenant_id=acme", b"{zip}"
    ),
    Row("DELETE", "/library/{name}/{version}", WRITTEN, "/library/grain/1?tenant_id=acme"),
    Row("GET", "/limits", UNBOUND),
    Row("GET", "/limits/{key}", UNBOUND, "/limits/kept"),
    Row("PUT", "/limits/{key}", ADMINS_AT_ONCE, "/limits/kept", {"concurrent": 4}),
    Row("DELETE", "/limits/{key}", ADMINS_AT_ONCE, "/limits/once", fresh="limit"),
]


class World(NamedTuple):
    """A server without a worker, keys by sender, and names of things of the tenant acme."""

    server: LiveServer
    keys: Mapping[str, str]
    names: Mapping[str, str]
    archive: bytes
    cookie: dict[str, str]
    """The cookie of a session, once there is one."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("table")
    folder, state = home / "acme", home / "state"
    folder.mkdir()
    (home / "mill_tasks.py").write_text(TASKS)
    (folder / "mill.pdf").write_bytes(pdf("The mill takes in water."))
    (folder / "mill.py").write_text("class Mill:\n    def grind(self):\n        return 1\n")
    store = Keys(state)
    keys = {
        "read": store.create("read", "read").key,
        "write": store.create("write", "write").key,
        "acme": store.create("acme", "admin", ["acme"]).key,
        "rooted": store.create("rooted", "write", ["acme"], [str(folder)]).key,
        "other": store.create("other", "admin", ["other"]).key,
        "admin": store.create("admin", "admin").key,
        "revoked": store.create("revoked", "admin").key,
    }
    store.revoke("revoked")
    settings = config.load({}, state_dir=state, embedder="hashing", tenant_id="acme")
    with Penstock(settings=settings) as app, app.worker_thread():
        jobs = [
            app.index(folder, tenant_id="acme", include_code=True, graph=True),
            app.documents.libraries.add("grain==1", source=str(folder)),
            app.documents.note("A note of acme."),
        ]
        for job in jobs:
            assert Status.DONE is app.wait(job.job_id, timeout=120).status
        until(lambda: app._assembly.graph.counts("acme").entities, bool)
        source = app.documents.source(f"{folder}/mill.pdf")
        (note,) = app.documents.notes.page(tenant_id="acme", limit=5)
        app.schedules.add_call("@yearly", "double", tenant_id="acme", name="kept")
        app.limits.set("kept", concurrent=4)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("oats.md", "Oats are rolled.")
    names = {
        "job_id": jobs[0].job_id,
        "source_id": source.source_id,
        "note_id": note.note_id,
        "page": "1",
        "file": f"{folder}/mill.pdf",
        "folder": str(folder),
    }
    # Without a worker nothing changes by itself: what is queued stays.
    server = LiveServer(home, "--no-worker", "--app", "mill_tasks")
    yield World(server, keys, names, packed.getvalue(), {})
    assert 0 == server.stop()
    assert "Traceback" not in server.log.read_text()


_numbers = itertools.count()


def fresh_name(world: World, kind: str) -> dict[str, str]:
    """A new thing of acme, which the request uses up."""
    server, admin = world.server, world.keys["admin"]
    if kind == "limit":
        assert 200 == server.ask("PUT", "/limits/once", {"concurrent": 1}, key=admin).status
    elif kind == "schedule":
        assert 201 == server.ask("POST", "/schedules", {**CALL, "name": "once"}, key=admin).status
    else:
        body = {"content": f"Note {next(_numbers)}.", "tenant_id": "acme"}
        job_id = server.ask("POST", "/content", body, key=admin).body["job_id"]
        if kind == "cancelled job":
            assert 200 == server.ask("DELETE", f"/index/jobs/{job_id}", key=admin).status
        return {"job_id": job_id}
    return {}


def session(world: World, *, new: bool) -> dict[str, str]:
    """The header with the cookie of a session."""
    if new or not world.cookie:
        begun = world.server.raw("POST", "/session", {"key": world.keys["admin"]})
        world.cookie["Cookie"] = begun.headers["set-cookie"].partition(";")[0]
    return dict(world.cookie)


def headers_of(world: World, sender: str, *, ends: bool = False) -> dict[str, str]:
    if sender == "nobody":
        return {}
    if sender == "proxied":
        return {"X-Forwarded-For": "203.0.113.9"}
    if sender in ("cookie", "page", "foreign"):
        cookie = session(world, new=ends)
        origins = {"page": {"Origin": world.server.url}, "foreign": {"Origin": "https://elsewhere.example"}}
        return cookie | origins.get(sender, {})
    return {"Authorization": f"Bearer {world.keys.get(sender, 'penstock_wrong')}"}


def filled(given: Any, names: Mapping[str, str]) -> Any:
    """The value with the names in its braces."""
    if isinstance(given, str):
        return given.format(**names)
    return {key: filled(value, names) for key, value in given.items()} if isinstance(given, dict) else given


def request_of(world: World, row: Row, sender: str) -> tuple[str, bytes, dict[str, str]]:
    """The path, body and headers of the request of a row."""
    names = dict(world.names)
    allowed = "401" not in row.outside or sender in INSIDE
    if row.fresh and allowed and status(row, sender) < 400:
        names |= fresh_name(world, row.fresh)
    headers = {
        "Accept": "application/json, text/event-stream",
        **headers_of(world, sender, ends=row.route == "/session"),
    }
    if row.body is None:
        body = b""
    elif isinstance(row.body, bytes):
        body = world.archive if row.body == b"{zip}" else row.body
        headers["Content-Type"] = "application/octet-stream"
    else:
        given = {"key": world.keys["admin"]} if row.body == "{session}" else filled(row.body, names)
        body = json.dumps(given).encode()
        headers["Content-Type"] = "application/json"
    return filled(row.path or row.route, names), body, headers


def sent(
    server: LiveServer, row: Row, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer. Its body is not read, as streams of events have no end."""
    connection = http.client.HTTPConnection(server.address, timeout=WAIT_S, source_address=(next_peer(), 0))
    with closing(connection):
        connection.request(row.method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def status(row: Row, sender: str) -> int:
    """The expected status."""
    expected = dict(zip((*OUTSIDE, *INSIDE), f"{row.outside} {row.inside}".split(), strict=True))
    return int(expected[sender])


def name_of(row: Row) -> str:
    return f"{row.method} {row.path or row.route}"


def test_every_sender_gets_the_status_of_the_table(world: World):
    wrong: list[tuple[str, str, int, int]] = []
    for row in TABLE:
        for sender in (*OUTSIDE, *INSIDE):
            found, headers = sent(world.server, row, *request_of(world, row, sender))
            if found != (expected := status(row, sender)):
                wrong.append((name_of(row), sender, expected, found))
            assert ("nosniff", "no-store") == (
                headers["x-content-type-options"],
                headers["cache-control"].rpartition(", ")[2],
            ), (name_of(row), sender)

    assert [] == wrong


# The table is complete.


def routes_of(state: Path) -> Iterator[tuple[str, str]]:
    """Method and path of every route of a server."""
    with closing(Assembly(config.load({}, state_dir=state))) as assembly:
        server = assembly.server(port=0, processes=0)
        routes = server._api._app._app.router.routes  # type: ignore[attr-defined]
        server._socket.close()
        server._shared.close()
        server._runtime.release()
    yield from _plain(routes)


def _plain(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from _plain(included.routes)
            continue
        assert isinstance(route, Route), f"{route} is no plain route: add its requests to the table"
        # A route without methods, as that of agents, takes all; these three mean something.
        for method in route.methods or ("GET", "POST", "DELETE"):
            yield method, route.path


def test_every_route_has_a_row(tmp_path: Path):
    files = {(method, path) for path in pages.paths() for method in ("GET", "HEAD")}
    found = set(routes_of(tmp_path))

    assert {(row.method, row.route) for row in TABLE} == found - files - {("HEAD", "/openapi.json")}
    assert files <= found


# Before a key was made.


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    started = LiveServer(tmp_path_factory.mktemp("keyless"), "--no-worker")
    yield started
    assert 0 == started.stop()


def test_without_any_key_a_proxy_opens_no_route(keyless: LiveServer):
    for row in TABLE:
        path = (row.path or row.route).replace("{", "").replace("}", "")
        headers = {"X-Forwarded-For": "203.0.113.9", "Content-Type": "application/json"}
        found, _ = sent(keyless, row, path, b"{}", headers)
        opened = 422 if (row.method, row.route) == ("POST", "/session") else int(row.outside.split()[0])
        assert opened == found, name_of(row)
