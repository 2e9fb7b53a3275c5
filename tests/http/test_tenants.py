"""Documents of a server with keys: those of another tenant cannot be seen, found or removed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.http.live_server import LiveServer

SERVE = ("--processes", "1")


class Tenants(NamedTuple):
    admin: str
    acme: str
    document: str
    """A document of tenant ``default``."""
    path: str


@pytest.fixture(scope="module")
def tenants(server: LiveServer) -> Tenants:
    (server.folder / "files" / "mill.md").write_text("The mill of the default tenant grinds barley.")
    (server.folder / "files" / "gate.md").write_text("The gate of acme holds barley.")
    admin, acme = server.make_key("admin", "admin"), server.make_key("acme", "write", "acme")
    for key, name in ((admin, "mill.md"), (acme, "gate.md")):
        job = server.index(f"files/{name}", key=key).body["job_id"]
        assert "done" == server.ended(job, key=key)["status"]
    (found,) = server.ask("GET", "/documents", key=admin).body["documents"]
    return Tenants(admin, acme, found["source_id"], found["path"])


def test_a_search_finds_own_documents_only(server: LiveServer, tenants: Tenants):
    hits = server.ask("POST", "/search", {"query": "barley", "limit": 100}, key=tenants.acme).body["hits"]
    others = server.ask("POST", "/search", {"query": "barley"}, key=tenants.admin).body["hits"]

    assert ["acme"] == [hit["tenant_id"] for hit in hits]
    assert ["default"] == [hit["tenant_id"] for hit in others]


def test_a_document_of_another_tenant_does_not_exist(server: LiveServer, tenants: Tenants):
    for method in ("GET", "DELETE"):
        answer = server.ask(method, f"/documents/{tenants.document}", key=tenants.acme)
        missing = server.ask(method, "/documents/none", key=tenants.acme)
        assert (404, "ERR_UNKNOWN_DOCUMENT") == (answer.status, answer.code)
        assert missing.body["detail"].replace("none", tenants.document) == answer.body["detail"]
    listed = server.ask("GET", "/documents", key=tenants.acme).body["documents"]
    assert ["acme"] == [one["tenant_id"] for one in listed]
    assert 200 == server.ask("GET", f"/documents/{tenants.document}", key=tenants.admin).status


def test_a_path_of_another_tenant_is_unknown(server: LiveServer, tenants: Tenants):
    reason = server.ask("GET", f"/why?path={tenants.path}", key=tenants.acme).body
    (server.folder / "files" / "never.md").write_text("Never indexed.")
    never = server.ask("GET", "/why?path=files/never.md", key=tenants.acme).body

    assert "unknown" == reason["verdict"] == never["verdict"]
    assert never["cause"] == reason["cause"]


def test_why_does_not_tell_which_files_there_are_outside_the_root(server: LiveServer, tenants: Tenants):
    for path in ("/etc", "/etc/passwd", "/etc/no-such-file"):
        answer = server.ask("GET", f"/why?path={path}", key=tenants.acme)
        assert (400, "ERR_PATH_OUTSIDE") == (answer.status, answer.code)


def test_counts_are_of_own_documents(server: LiveServer, tenants: Tenants):
    own = server.ask("GET", "/health/status", key=tenants.acme).body["store"]

    assert {"documents": 1, "chunks": 1, "failed": 0} == own
