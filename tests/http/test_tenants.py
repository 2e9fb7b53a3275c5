"""Documents of a server with keys: those of another tenant cannot be seen, found or removed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.http.live_server import LiveServer

SERVE = ("--processes", "1")
DASHBOARD = Path(__file__).resolve().parents[2] / "deploy/grafana/penstock.json"


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
    admin = server.make_key("admin", "admin")
    acme = server.make_key("acme", "write", "acme", roots=[server.folder])
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


def test_metrics_of_a_key_with_tenants_name_no_others(server: LiveServer, tenants: Tenants):
    own, all_tenants = (
        server.raw("GET", "/metrics", key=key).body.decode() for key in (tenants.acme, tenants.admin)
    )
    done = r'^penstock_queue_jobs\{status="done",item_type="file"\} (\d+)$'

    # Tests of this server may have added more jobs of the same tenant.
    counts = [int(*re.findall(done, answer, re.M)) for answer in (own, all_tenants)]
    assert 1 <= counts[0] < counts[1]
    assert "penstock_workers" in all_tenants
    assert not [word for word in ("default", "penstock_workers", "penstock_claims") if word in own]
    reader = server.make_key("reader", "read")
    assert "tenant=" not in server.raw("GET", "/metrics", key=reader).body.decode()


def test_the_dashboard_of_grafana_has_every_metric_and_no_other(server: LiveServer, tenants: Tenants):
    board = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [variable.get("definition", "") for variable in board["templating"]["list"]]
    wanted = set(re.findall(r"penstock_\w+", " ".join(queries)))
    answer = server.raw("GET", "/metrics", key=tenants.admin).body.decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", answer, re.M))
    summaries = [name for name, kind in kinds.items() if kind == "summary"]
    parts = {f"{name}_{part}" for name in summaries for part in ("sum", "count")}
    assert ({*kinds} - {*summaries}) | parts == wanted
    # Labels by which the panels add up are those of the samples.
    samples = re.findall(r"^(\w+){(.*)} ", answer, re.M)
    labels = {name: set(re.findall(r'(\w+)="', given)) for name, given in samples}
    for query in queries:
        named = set(re.findall(r"penstock_\w+", query)) & labels.keys()
        for by in re.findall(r"by \(([\w, ]+)\)", query):
            assert all({*by.split(", ")} <= labels[name] for name in named), query


def test_a_job_cannot_wait_for_one_of_another_tenant(server: LiveServer, tenants: Tenants):
    (other,) = server.ask("GET", "/index/jobs/?limit=1&tenant_id=default", key=tenants.admin).body["jobs"]
    for job_id in (other["job_id"], "job_none"):
        body = {"folder_path": "files/gate.md", "after": [job_id]}
        refused = server.ask("POST", "/index/", body, key=tenants.acme)
        assert (404, "ERR_JOB_NOT_FOUND") == (refused.status, refused.code)
        assert job_id in refused.body["detail"]


def test_upkeep_of_another_tenant_is_refused(server: LiveServer, tenants: Tenants):
    note = server.ask("POST", "/content", {"content": "A note of default."}, key=tenants.admin).body["job_id"]
    server.ended(note, key=tenants.admin)
    (found,) = server.ask("GET", "/notes", key=tenants.admin).body["notes"]
    own = found["note_id"]
    refused = {
        ("GET", f"/notes/{own}"): 404,
        ("PUT", f"/notes/{own}"): 404,
        ("DELETE", f"/notes/{own}"): 404,
        ("GET", f"/history?document={own}"): 404,
        ("POST", "/documents/remove"): 404,
        ("DELETE", "/tenants/default"): 403,
        ("POST", "/queue/purge"): 403,
    }
    bodies = {
        "PUT": {"content": "changed"},
        "/documents/remove": {"path_or_id": tenants.document},
        "/queue/purge": {"status": ["done"]},
    }
    answers = {
        (method, path): server.ask(
            method, path, bodies.get(path, bodies.get(method)), key=tenants.acme
        ).status
        for method, path in refused
    }

    assert refused == answers
    assert [] == server.ask("GET", "/notes", key=tenants.acme).body["notes"]
    assert "A note of default." == server.ask("GET", f"/notes/{own}", key=tenants.admin).body["text"]
    overview = server.ask("GET", "/overview", key=tenants.acme).body
    assert (["acme"], {}) == ([one["tenant_id"] for one in overview["tenants"]], overview["tasks"])
    assert 403 == server.ask("GET", "/overview?tenant_id=default", key=tenants.acme).status
    outside = {"old_path": "/etc/passwd", "new_path": "/etc/other"}
    assert 400 == server.ask("POST", "/documents/rename", outside, key=tenants.acme).status
    assert 0 == server.ask("POST", "/queue/retry-failed", {}, key=tenants.acme).body["retried"]
    removed = server.ask("DELETE", f"/notes/{own}", key=tenants.admin).body["job_id"]
    assert "done" == server.ended(removed, key=tenants.admin)["status"]


def paths(server: LiveServer, key: str, route: str = "/search", **fields: object) -> list[str]:
    answer = server.ask("POST", route, {"query": "barley", **fields}, key=key)
    assert 200 == answer.status, answer.body
    if route == "/context":
        return sorted(one["path"] for one in answer.body["passages"])
    return sorted(hit["path"].rpartition("/")[2] for hit in answer.body["hits"])


def test_a_search_may_be_of_a_project_or_of_all_tenants_of_the_key(server: LiveServer, tenants: Tenants):
    weir = server.folder / "files" / "weir"
    (weir / ".git" / "refs" / "heads").mkdir(parents=True)
    (weir / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (weir / ".git" / "refs" / "heads" / "main").write_text("0" * 40)
    (weir / "weir.md").write_text("The weir holds back barley.")
    body = {"folder_path": "files/weir", "project": True}
    job = server.ask("POST", "/index/", body, key=tenants.admin).body["job_id"]
    assert "done" == server.ended(job, key=tenants.admin)["status"]
    (project,) = server.ask("GET", "/projects", key=tenants.admin).body["projects"]

    assert ["mill.md"] == paths(server, tenants.admin)
    assert ["weir.md"] == paths(server, tenants.admin, project=project["name"])
    assert ["weir.md"] == paths(server, tenants.admin, project=project["tenant_id"], branch="main")
    assert [] == paths(server, tenants.admin, project=project["name"], branch="other")
    assert ["gate.md", "mill.md", "weir.md"] == paths(server, tenants.admin, all=True)
    assert ["mill.md"] == paths(server, tenants.admin, all=True, path="*mill*")
    assert 3 == len(paths(server, tenants.admin, "/context", all=True))
    assert ["gate.md"] == paths(server, tenants.acme, all=True)
    # A project of another tenant does not exist.
    for named in (project["name"], project["tenant_id"], "none"):
        answer = server.ask("POST", "/search", {"query": "barley", "project": named}, key=tenants.acme)
        assert (404, "ERR_UNKNOWN_PROJECT") == (answer.status, answer.code)
    both = {"query": "barley", "project": "weir", "all": True}
    assert 422 == server.ask("POST", "/search", both, key=tenants.admin).status


def test_libraries_are_added_listed_and_removed_in_the_tenant_of_the_key(
    server: LiveServer, tenants: Tenants
):
    (server.folder / "files" / "grain").mkdir()
    (server.folder / "files" / "grain" / "oats.md").write_text("# Oats\n\nOats are rolled.")
    body = {"requirement": "grain==1.0", "source": "files/grain"}
    added = server.ask("POST", "/library", body, key=tenants.acme)
    assert 202 == added.status
    assert "done" == server.ended(added.body["job_id"], key=tenants.acme)["status"]

    (found,) = server.ask("GET", "/library?requirement=grain", key=tenants.acme).body["libraries"]
    assert ("grain", "1.0", 1) == (found["name"], found["version"], found["documents"])
    assert [] == server.ask("GET", "/library", key=tenants.admin).body["libraries"]
    hits = server.ask("POST", "/search", {"query": "oats", "library": "grain==1.0"}, key=tenants.acme).body
    assert ["library://grain/1.0/oats.md"] == [hit["path"] for hit in hits["hits"]]
    other = server.ask("DELETE", "/library/grain/1.0", key=tenants.admin)
    assert (404, "ERR_UNKNOWN_LIBRARY") == (other.status, other.code)
    removed = server.ask("DELETE", "/library/grain/1.0", key=tenants.acme)
    assert 202 == removed.status
    assert "done" == server.ended(removed.body["job_id"], key=tenants.acme)["status"]
    assert [] == server.ask("GET", "/library", key=tenants.acme).body["libraries"]


LIBRARIES_REFUSED: dict[str, tuple[dict[str, object], int, str]] = {
    "no source": ({"source": None}, 422, "ERR_INVALID_REQUEST"),
    "outside": ({"source": "/etc"}, 400, "ERR_PATH_OUTSIDE"),
    "the state directory": ({"source": "state"}, 400, "ERR_PATH_OUTSIDE"),
    "a URL": ({"source": "https://example.org/x-1.0.tar.gz"}, 403, "ERR_WEB_OFF"),
    "a private URL": ({"source": "http://169.254.169.254/"}, 403, "ERR_WEB_OFF"),
    "a missing path": ({"source": "files/nothing"}, 404, "ERR_PATH_NOT_FOUND"),
    "a wrong name": ({"requirement": "../../x"}, 422, "ERR_INVALID_PAYLOAD"),
    "another tenant": ({"tenant_id": "default"}, 403, "ERR_NOT_ALLOWED"),
    "an unknown field": ({"version": "1"}, 422, "ERR_INVALID_REQUEST"),
}


def test_wrong_libraries_are_refused(server: LiveServer, tenants: Tenants):
    body = {"requirement": "oats==1.0", "source": "files"}
    for name, (fields, status, code) in LIBRARIES_REFUSED.items():
        answer = server.ask("POST", "/library", body | fields, key=tenants.acme)
        assert (status, code) == (answer.status, answer.code), (name, answer.body)
