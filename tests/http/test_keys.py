"""Keys of a live server: who gets in, for what, and in which tenants."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.http.live_server import Answer, LiveServer, next_peer

ROUTES = [
    ("GET", "/health/status", None),
    ("GET", "/health/ready", None),
    ("GET", "/index/jobs/", None),
    ("GET", "/index/jobs/{job}", None),
    ("GET", "/documents", None),
    ("GET", "/documents/a", None),
    ("GET", "/documents/a/pages/1", None),
    ("GET", "/documents/a/pages/1/image", None),
    ("GET", "/documents/a/pages/1/frames", None),
    ("GET", "/queue/stats", None),
    ("GET", "/why?path=files", None),
    ("GET", "/openapi.json", None),
    ("GET", "/graph/entity?name=Mill", None),
    ("GET", "/graph/neighbours?name=Mill", None),
    ("GET", "/graph/path?source=Mill&target=Gate", None),
    ("GET", "/graph/stats", None),
    ("GET", "/functions", None),
    ("POST", "/search", {"query": "mill"}),
    ("POST", "/context", {"query": "mill"}),
    ("POST", "/similar", {"path_or_id": "mill"}),
    ("POST", "/functions/double", {"payload": {"n": 1}}),
    ("POST", "/index/", {"folder_path": "files"}),
    ("POST", "/index/add", {"folder_path": "files"}),
    ("POST", "/content", {"content": "A note."}),
    ("POST", "/files?name=a.md", {"a": "file"}),
    ("POST", "/index/jobs/{job}/retry", None),
    ("POST", "/queue/pause", {"tenant_id": "acme"}),
    ("POST", "/queue/resume", {"tenant_id": "acme"}),
    ("DELETE", "/documents/a", None),
    ("DELETE", "/index/jobs/{job}", None),
]
ASKING = ("/search", "/context", "/similar")
WRITING = [route for route in ROUTES if route[0] != "GET" and route[1] not in ASKING]


class Keys(NamedTuple):
    admin: str
    reader: str
    acme: str
    acme_reader: str
    both: str
    job: str
    """A job of tenant ``default``."""


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> Keys:
    assert 200 == server.ask("GET", "/index/jobs/").status
    job = server.ask("POST", "/index/", {"folder_path": "files"}).body["job_id"]
    return Keys(
        admin=server.make_key("admin", "admin"),
        reader=server.make_key("reader"),
        acme=server.make_key("acme", "write", "acme", roots=[server.folder]),
        acme_reader=server.make_key("acme-reader", "read", "acme"),
        both=server.make_key("both", "write", "acme", "globex", roots=[server.folder]),
        job=job,
    )


def send(server: LiveServer, route: tuple[str, str, object], job: str, **more: object) -> Answer:
    method, path, body = route
    return server.ask(method, path.format(job=job), body, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: " ".join(route[:2]))
def test_once_there_is_a_key_every_request_needs_one(
    server: LiveServer, keys: Keys, route: tuple[str, str, object]
):
    for more in (
        {},
        {"key": "wrong"},
        {"key": keys.admin[:-1]},
        {"headers": {"Authorization": f"Basic {keys.admin}"}},
        {"headers": {"X-API-Key": ""}},
    ):
        answer = send(server, route, keys.job, peer=next_peer(), **more)
        assert (401, "ERR_KEY_REQUIRED") == (answer.status, answer.code)
        assert "Bearer" == answer.headers["www-authenticate"]


def test_health_alone_needs_no_key(server: LiveServer, keys: Keys):
    assert (200, {"status": "ok"}) == server.ask("GET", "/health")[:2]
    assert 200 == server.ask("GET", "/index/jobs/", headers={"X-API-Key": keys.reader}).status


@pytest.mark.parametrize("route", WRITING, ids=lambda route: " ".join(route[:2]))
def test_a_reading_key_writes_nothing(server: LiveServer, keys: Keys, route: tuple[str, str, object]):
    answer = send(server, route, keys.job, key=keys.reader)

    assert (403, "ERR_NOT_ALLOWED") == (answer.status, answer.code)


def test_jobs_of_another_tenant_do_not_exist(server: LiveServer, keys: Keys):
    missing = server.ask("GET", "/index/jobs/job_none", key=keys.acme).body
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/retry")):
        answer = server.ask(method, f"/index/jobs/{keys.job}{path}", key=keys.acme)
        assert (404, "ERR_JOB_NOT_FOUND") == (answer.status, answer.code)
        assert missing["detail"].replace("job_none", keys.job) == answer.body["detail"]
    listed = server.ask("GET", "/index/jobs/", key=keys.acme_reader).body["jobs"]
    assert {"acme"} >= {job["tenant_id"] for job in listed}
    assert 200 == server.ask("GET", f"/index/jobs/{keys.job}", key=keys.admin).status


def test_a_bound_key_works_in_its_tenant_only(server: LiveServer, keys: Keys):
    own = server.index("files", key=keys.acme)
    foreign = server.ask("POST", "/index/", {"folder_path": "files", "tenant_id": "default"}, key=keys.acme)
    job = server.ask("GET", f"/index/jobs/{own.body['job_id']}", key=keys.acme).body

    assert (202, "acme") == (own.status, job["tenant_id"])
    assert (403, "ERR_NOT_ALLOWED") == (foreign.status, foreign.code)
    for method, path, body in (
        ("GET", "/index/jobs/?tenant_id=default", None),
        ("GET", "/documents?tenant_id=default", None),
        ("GET", "/why?path=files&tenant_id=default", None),
        ("POST", "/search", {"query": "mill", "tenant_id": "default"}),
        ("POST", "/context", {"query": "mill", "tenant_id": "default"}),
        ("POST", "/similar", {"path_or_id": "files/mill.md", "tenant_id": "default"}),
        ("POST", "/functions/double", {"tenant_id": "default"}),
        ("GET", "/graph/entity?name=Mill&tenant_id=default", None),
        ("GET", "/graph/neighbours?name=Mill&tenant_id=default", None),
        ("GET", "/graph/path?source=Mill&target=Gate&tenant_id=default", None),
        ("GET", "/graph/stats?tenant_id=default", None),
        ("POST", "/content", {"content": "a", "tenant_id": "default"}),
        ("POST", "/queue/pause", {"tenant_id": "default"}),
        ("POST", "/queue/pause", {"tenant_id": "*"}),
    ):
        answer = server.ask(method, path, body, key=keys.acme)
        assert (403, "ERR_NOT_ALLOWED") == (answer.status, answer.code), path
    assert 200 == server.ask("DELETE", f"/index/jobs/{own.body['job_id']}", key=keys.acme).status


def test_a_key_of_several_tenants_names_one_and_lists_all(server: LiveServer, keys: Keys):
    unnamed = server.index("files", key=keys.both)
    jobs = [
        server.ask("POST", "/index/", {"folder_path": "files", "tenant_id": name}, key=keys.both).body[
            "job_id"
        ]
        for name in ("acme", "globex")
    ]

    listed = server.ask("GET", "/index/jobs/?status=pending&limit=10", key=keys.both).body
    status = server.ask("GET", "/health/status", key=keys.both).body
    own = server.ask("GET", "/index/jobs/?status=pending", key=keys.acme).body

    assert (422, "tenant_id") == (unnamed.status, unnamed.body["detail"][:9])
    assert (2, jobs[::-1]) == (listed["total"], [job["id"] for job in listed["jobs"]])
    assert 2 == status["queue_length"]
    assert jobs[:1] == [job["id"] for job in own["jobs"]]
    for job in jobs:
        server.ask("DELETE", f"/index/jobs/{job}", key=keys.both)


def test_statistics_of_a_bound_key_are_its_tenants_own(server: LiveServer, keys: Keys):
    own = server.ask("GET", "/queue/stats", key=keys.acme_reader).body
    all_of_them = server.ask("GET", "/queue/stats", key=keys.admin).body

    assert 0 == own["by_status"]["pending"] < all_of_them["by_status"]["pending"]
    assert [None] * 3 == [own[name] for name in ("tasks", "workers", "warnings")]


def test_a_pause_needs_admin_or_the_keys_own_tenant_and_is_audited(server: LiveServer, keys: Keys):
    everything = server.ask("POST", "/queue/pause", {"tenant_id": "*"}, key=keys.admin)
    own = server.ask("POST", "/queue/pause", {"collection": "docs"}, key=keys.acme)
    server.ask("POST", "/queue/resume", {"tenant_id": "*"}, key=keys.admin)
    server.ask("POST", "/queue/resume", {"collection": "docs"}, key=keys.acme)

    assert {"tenant_id": "*", "collection": "*"} == everything.body
    assert {"tenant_id": "acme", "collection": "docs"} == own.body
    assert [] == server.ask("GET", "/queue/stats", key=keys.admin).body["paused"]
    lines = [json.loads(line) for line in (server.state / "audit.jsonl").read_text().splitlines()]
    assert ["admin", "acme", "admin", "acme"] == [line["by"] for line in lines if "key" not in line][-4:]
    assert ["pause", "pause", "resume", "resume"] == [line["action"] for line in lines if "key" not in line][
        -4:
    ]
    assert {"admin", "reader", "acme"} <= {line["key"] for line in lines if line["action"] == "create key"}


def test_a_revoked_key_is_refused_at_once(server: LiveServer, keys: Keys):
    key = server.make_key("short")
    before = server.ask("GET", "/index/jobs/", key=key)
    subprocess.run(server.command("keys", "revoke", "short"), env=server.environment(), check=True)
    after = server.ask("GET", "/index/jobs/", key=key)

    assert (200, 401) == (before.status, after.status)


def test_keys_are_stored_as_hashes_and_logged_nowhere(server: LiveServer, keys: Keys):
    server.ask("GET", "/index/jobs/", key=keys.admin + "x")
    stored = (server.state / "keys.json").read_text()
    texts = [stored, server.log.read_text(), (server.state / "audit.jsonl").read_text()]

    assert "admin" in stored
    assert 0o600 == (server.state / "keys.json").stat().st_mode & 0o777
    for key in keys[:5]:
        assert not any(key in text or key.removeprefix("penstock_") in text for text in texts)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "mill.example"])
@pytest.mark.parametrize("more", [[], ["--no-auth"]])
def test_a_server_for_other_machines_needs_a_key(tmp_path: Path, host: str, more: list[str], run):
    answer = run("serve", "--host", host, *more, code=3)

    assert "ERR_KEYLESS_SERVER" in answer.output
