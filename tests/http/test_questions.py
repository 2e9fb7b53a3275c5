"""Questions to a server with an application, and what another tenant sees of the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.http.live_server import LiveServer, until

SERVE = ("--processes", "1", "--app", "mill_tasks")
FILES = {
    "mill_tasks.py": """
from pathlib import Path

from penstock import Penstock

app = Penstock(state_dir=Path(__file__).parent / "state")
app.entity_type("mill")

@app.function("double", requires=["n"], max_retries=1, timeout=60)
def double(payload):
    return payload["n"] * 2
"""
}


class Questions(NamedTuple):
    admin: str
    acme: str
    document: str
    path: str


@pytest.fixture(scope="module")
def asked(server: LiveServer) -> Questions:
    """Documents of the tenant ``default``; the key of ``acme`` has one of its own."""
    docs = server.folder / "docs"
    docs.mkdir()
    (docs / "mill.py").write_text(
        "class Mill:\n    def grind(self):\n        return lift_gate()\n\n\ndef lift_gate():\n    return 1\n"
    )
    (docs / "mill.md").write_text("# Mill\n\nThe mill takes in water from the river.\n")
    (docs / "gate.md").write_text("# Gate\n\nThe gate takes in water from the lake.\n")
    (server.folder / "own.md").write_text("Acme owns a barn.")
    admin, acme = (
        server.make_key("admin", "admin"),
        server.make_key("acme", "write", "acme", roots=[server.folder]),
    )
    body = {"folder_path": "docs", "graph": True, "include_code": True, "checksum": True, "depth": 3}
    jobs = [
        (server.ask("POST", "/index/", body, key=admin).body["job_id"], admin),
        (server.index("own.md", key=acme).body["job_id"], acme),
    ]
    for job, key in jobs:
        assert "done" == server.ended(job, key=key)["status"]
    # Entities come after the document, which does not wait for them.
    mill = "/graph/entity?name=Mill&kind=class"
    until(lambda: server.ask("GET", mill, key=admin), lambda answer: answer.status == 200)
    (found,) = server.ask("GET", f"/documents?path={docs}/mill.md", key=admin).body["documents"]
    return Questions(admin, acme, found["source_id"], found["path"])


def post(server: LiveServer, path: str, key: str, **body: Any) -> Any:
    answer = server.ask("POST", path, body, key=key)
    assert answer.status in (200, 202), answer.body
    return answer.body


def test_a_search_corrects_words_and_marks_them(server: LiveServer, asked: Questions):
    found = post(server, "/search", asked.admin, query="watter from the river", marks=["<", ">"], limit=1)
    exact = post(server, "/search", asked.admin, query="watter", exact=True, mode="keyword")

    assert [{"word": "watter", "searched": "water"}] == found["corrections"]
    assert "<water>" in found["hits"][0]["snippet"]
    assert ([], []) == (exact["corrections"], exact["hits"])


def test_passages_fit_into_the_tokens(server: LiveServer, asked: Questions):
    found = post(server, "/context", asked.admin, query="water from the river", max_tokens=60)

    assert found["tokens"] <= 60
    assert found["text"].startswith("[1] ")
    assert asked.document in {passage["source_id"] for passage in found["passages"]}
    assert "" == post(server, "/context", asked.acme, query="water from the river")["text"]


@pytest.mark.parametrize("named", ["path", "id", "relative"])
def test_similar_chunks_of_a_document_by_path_or_id(server: LiveServer, asked: Questions, named: str):
    text = {"path": asked.path, "id": asked.document, "relative": "docs/mill.md"}[named]

    hits = post(server, "/similar", asked.admin, path_or_id=text, line=3, limit=1)["hits"]
    foreign = server.ask("POST", "/similar", {"path_or_id": text}, key=asked.acme)

    assert ["gate.md"] == [Path(hit["path"]).name for hit in hits]
    assert (404, "ERR_UNKNOWN_DOCUMENT") == (foreign.status, foreign.code)


def test_the_graph_has_entities_relations_and_ways(server: LiveServer, asked: Questions):
    def get(path: str) -> Any:
        answer = server.ask("GET", path, key=asked.admin)
        assert 200 == answer.status, answer.body
        return answer.body

    (mill,) = get("/graph/entity?name=Mill&kind=class")["entities"]
    around = get("/graph/neighbours?name=Mill&kind=class&hops=2")
    way = get("/graph/path?source=Mill&target=lift_gate")
    counts = get("/graph/stats")

    assert ("class", "mill.py") == (mill["kind"], Path(mill["mentions"][0]["path"]).name)
    assert {"source", "target", "kind", "weight"} == set(around["edges"][0])
    assert 0 in {node["hops"] for node in around["nodes"]}
    assert way["nodes"][-1]["name"].endswith("lift_gate")
    assert len(way["edges"]) == len(way["nodes"]) - 1
    assert counts["entities"]["class"] >= 1


def test_the_graph_of_another_tenant_does_not_exist(server: LiveServer, asked: Questions):
    for path in ("entity?name=Mill", "neighbours?name=Mill", "path?source=Mill&target=lift_gate"):
        answer = server.ask("GET", f"/graph/{path}", key=asked.acme)
        assert (404, "ERR_NOT_IN_GRAPH") == (answer.status, answer.code)
        assert "lift" not in answer.body["remedy"]
    assert 0 == server.ask("GET", "/graph/stats", key=asked.acme).body["chunks"]


def test_a_function_is_called_and_its_result_is_of_its_tenant(server: LiveServer, asked: Questions):
    known = server.ask("GET", "/functions", key=asked.admin).body
    body = {"payload": {"n": 21}, "entity": ["mill", "m1"], "priority": 9}

    answer = server.ask("POST", "/functions/double", body, key=asked.acme)
    job = server.ended(answer.body["job_id"], key=asked.acme)
    foreign = server.ask("GET", f"/index/jobs/{job['id']}", key=server.make_key("globex", "read", "globex"))

    double = {"name": "double", "requires": ["n"], "max_retries": 1, "timeout_s": 60}
    unset = dict.fromkeys(("priority", "limit", "queue_limit", "result_ttl_s"))
    assert [double | unset] == known["functions"]
    assert ["mill"] == known["entity_types"]
    assert 202 == answer.status
    assert ("done", 42, "acme", 9) == tuple(
        job[name] for name in ("status", "result", "tenant_id", "priority")
    )
    assert 404 == foreign.status


def test_a_function_call_that_cannot_run_is_refused(server: LiveServer, asked: Questions):
    for name, body, status, code in (
        ("tripple", {}, 404, "ERR_UNKNOWN_FUNCTION"),
        ("double", {}, 422, "ERR_INVALID_PAYLOAD"),
        ("double", {"payload": {"n": 1}, "entity": ["barn", "b"]}, 422, "ERR_UNKNOWN_ENTITY"),
        ("double", {"payload": {"n": 1}, "run_at": "soon"}, 422, "ERR_INVALID_TIME"),
        ("double", {"payload": {"n": 1}, "on_success": "tripple"}, 404, "ERR_UNKNOWN_FUNCTION"),
        ("double", {"payload": {"n": 1}, "webhook": "mill"}, 422, "ERR_WEB_URL"),
        ("double", {"payload": {"n": 1}, "webhook": "https://example.org/"}, 422, "ERR_WEBHOOK_KEY"),
    ):
        answer = server.ask("POST", f"/functions/{name}", body, key=asked.admin)
        assert (status, code) == (answer.status, answer.code)


def test_a_server_of_an_unknown_application_does_not_start(tmp_path: Path, run: Any):
    answer = run("serve", "--app", "no_such_module", "--port", "0", code=3)

    assert "ERR_APP_NOT_FOUND" in answer.output
