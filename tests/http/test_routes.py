"""Every route of a server with a worker: a folder from the request to the hit, and what can be done to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.http import server as api
from tests.http.live_server import LiveServer, until

SERVE = ("--processes", "1")

JOB_FIELDS = set(
    "job_id id dedupe_key operation folder_path include_code recursive chunk_size chunk_overlap "
    "status cancel_requested enqueued_at started_at "
    "finished_at error error_code remedy retry_count progress total_chunks execution_time_ms running_time_ms "
    "time_left_s rate rate_window_s item_type op tenant_id "
    "collection branch priority held reason run parent_id "
    "children".split()
)
PROGRESS_FIELDS = set(
    "files_processed files_total chunks_created current_file percent_complete updated_at".split()
)


@pytest.fixture(scope="module")
def docs(server: LiveServer) -> Path:
    folder = server.folder / "docs"
    folder.mkdir()
    (folder / "mill.md").write_text("# Mill\n\nThe mill takes in water from the river.\n")
    (folder / "gate.md").write_text("# Gate\n\nThe gate holds back the flood.\n")
    return folder


@pytest.fixture(scope="module")
def indexed(server: LiveServer, docs: Path) -> str:
    """The id of the job that indexed the folder."""
    answer = server.index("docs")
    assert 202 == answer.status
    job_id = str(answer.body["job_id"])
    assert "done" == server.ended(job_id)["status"]
    return job_id


def source_id(server: LiveServer, path: Path) -> str:
    (found,) = server.ask("GET", f"/documents?path={path}").body["documents"]
    return str(found["source_id"])


def test_the_answer_of_index_has_the_settled_fields(server: LiveServer, docs: Path):
    (server.folder / "one.md").write_text("One.")

    answer = server.ask("POST", "/index", {"path": str(server.folder / "one.md"), "priority": 9})

    assert 202 == answer.status
    assert set("job_id status queue_position queue_length message dedupe_hit run run_at".split()) == set(
        answer.body
    )
    assert "Job queued" == answer.body["message"]
    assert "done" == server.ended(answer.body["job_id"])["status"]


def test_a_job_has_the_settled_fields_in_lists_and_alone(server: LiveServer, indexed: str, docs: Path):
    shown = server.ask("GET", f"/index/jobs/{indexed}").body
    listed = server.ask("GET", "/index/jobs/").body

    assert JOB_FIELDS <= set(shown)
    assert PROGRESS_FIELDS == set(shown["progress"])
    assert {"jobs", "total", "limit", "offset", "next"} == set(listed)
    (same,) = [job for job in listed["jobs"] if job["id"] == indexed]
    assert JOB_FIELDS == set(same)
    assert (str(docs), "done", "index", 2) == tuple(
        same[name] for name in ("folder_path", "status", "operation", "total_chunks")
    )
    assert {"files_processed": 2, "files_total": 2, "percent_complete": 100.0} == {
        name: same["progress"][name] for name in ("files_processed", "files_total", "percent_complete")
    }


def test_a_job_alone_tells_what_was_asked_and_what_happened(server: LiveServer, indexed: str, docs: Path):
    job = server.ask("GET", f"/index/jobs/{indexed}").body
    assert str(docs) == job["payload"]["folder_path"]
    assert ("submitted", "started", "done") == tuple(event["what"] for event in job["history"])
    assert job["history"] == sorted(job["history"], key=lambda event: event["at"])
    assert ("http", False, 0) == (job["submitted_by"], job["follow_up"], job["lost_count"])
    note = server.ask("POST", "/content", {"content": "The words of a note are not shown."}).body["job_id"]
    assert "(34 characters)" == server.ask("GET", f"/index/jobs/{note}").body["payload"]["content"]


def test_jobs_are_listed_newest_first_in_pages(server: LiveServer, indexed: str):
    whole = server.ask("GET", "/index/jobs/?children=true&limit=1000").body
    ids = [job["id"] for job in whole["jobs"]]

    first = server.ask("GET", "/index/jobs/?children=true&limit=2").body
    by_cursor = server.ask("GET", f"/index/jobs/?children=true&limit=2&cursor={first['next']}").body
    by_offset = server.ask("GET", "/index/jobs/?children=true&limit=2&offset=2").body
    below = server.ask("GET", f"/index/jobs/?parent_id={indexed}").body

    assert sorted(ids, reverse=True) == ids
    assert len(ids) == whole["total"] == first["total"]
    assert ids[2:4] == [job["id"] for job in by_cursor["jobs"]] == [job["id"] for job in by_offset["jobs"]]
    assert (2, {indexed}) == (below["total"], {job["parent_id"] for job in below["jobs"]})
    assert whole["next"] is None


def test_a_document_is_found_shown_explained_and_searched(server: LiveServer, indexed: str, docs: Path):
    mill = source_id(server, docs / "mill.md")

    shown = server.ask("GET", f"/documents/{mill}").body
    hits = server.ask("POST", "/search", {"query": "water from the river", "limit": 1}).body["hits"]
    reason = server.ask("GET", f"/why?path={docs / 'mill.md'}").body

    assert ("indexed", 1, 1) == (shown["status"], shown["pages"], shown["chunks"])
    assert ("mill.md", "completed", 1) == tuple(
        shown["progress"][name] for name in ("filename", "vector_status", "vector_completed_chunks")
    )
    assert [1] == [page["number"] for page in shown["tree"]]
    assert [True] == [generation["current"] for generation in shown["generations"]]
    assert [mill] == [hit["source_id"] for hit in hits]
    assert ("indexed", mill) == (reason["verdict"], reason["source_id"])


def test_a_search_says_what_it_corrected_and_needs_a_graph_to_follow(server: LiveServer, indexed: str):
    found = server.ask("POST", "/search", {"query": "rivver", "mode": "keyword"}).body
    exact = server.ask("POST", "/search", {"query": "rivver", "mode": "keyword", "exact": True}).body
    refused = server.ask("POST", "/search", {"query": "who calls the river", "graph": True})

    assert [{"word": "rivver", "searched": "river"}] == found["corrections"]
    assert ([], []) == (exact["hits"], exact["corrections"])
    assert (404, "ERR_NOT_IN_GRAPH") == (refused.status, refused.body["code"])


def test_a_note_is_indexed(server: LiveServer):
    answer = server.ask(
        "POST", "/content", {"content": "Millstones are dressed in autumn.", "tag": "mill/stone"}
    )

    assert 202 == answer.status
    assert "done" == server.ended(answer.body["job_id"])["status"]
    (hit,) = server.ask("POST", "/search", {"query": "millstones", "mode": "keyword"}).body["hits"]
    assert ["mill/stone"] == hit["tags"]


def test_a_document_is_removed(server: LiveServer, docs: Path):
    (server.folder / "gone.md").write_text("Sluices are old.")
    job_id = server.index("gone.md").body["job_id"]
    server.ended(job_id)
    gone = source_id(server, server.folder / "gone.md")

    answer = server.ask("DELETE", f"/documents/{gone}")

    assert 202 == answer.status
    assert "done" == server.ended(answer.body["job_id"])["status"]
    assert 404 == server.ask("GET", f"/documents/{gone}").status
    assert (server.folder / "gone.md").exists()


def test_add_keeps_documents_of_vanished_files_and_index_removes_them(server: LiveServer):
    folder = server.folder / "kept"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.md").write_text(f"Text {name}.")
    server.ended(server.index(folder).body["job_id"])
    (folder / "a.md").unlink()
    (folder / "c.md").write_text("Text c.")

    def listed() -> list[str]:
        found = server.ask("GET", f"/documents?path={folder}/*").body["documents"]
        return sorted(Path(one["path"]).name for one in found)

    added = server.ask("POST", "/index/add", {"folder_path": str(folder)}).body
    assert "add" == server.ended(added["job_id"])["operation"]
    assert ["a.md", "b.md", "c.md"] == listed()

    again = server.index(folder).body
    assert added["job_id"] != again["job_id"]
    server.ended(again["job_id"])
    assert ["b.md", "c.md"] == listed()


def test_the_same_path_again_is_the_same_job_while_it_waits(server: LiveServer, docs: Path):
    server.ask("POST", "/queue/pause", {"tenant_id": "waiting"})
    body = {"folder_path": "docs", "tenant_id": "waiting"}

    first, second = (server.ask("POST", "/index/", body).body for _ in range(2))
    forced = server.ask("POST", "/index/?force=true", body).body
    added = server.ask("POST", "/index/add", body).body
    held = server.ask("GET", f"/index/jobs/{first['job_id']}").body

    assert (first["job_id"], True) == (second["job_id"], second["dedupe_hit"])
    assert f"Duplicate: job {first['job_id']} already pending" == second["message"]
    assert 3 == len({first["job_id"], forced["job_id"], added["job_id"]})
    assert "paused: tenant waiting" == held["reason"]
    resumed = server.ask("POST", "/queue/resume", {"tenant_id": "waiting"})
    assert (200, "waiting") == (resumed.status, resumed.body["tenant_id"])
    for job in (first, forced, added):
        assert "done" == server.ended(job["job_id"])["status"]


def test_a_job_that_failed_is_retried(server: LiveServer):
    empty = server.folder / "empty"
    empty.mkdir()
    failed = server.ended(server.index(empty).body["job_id"])
    assert ("failed", "ERR_NOTHING_TO_INDEX") == (failed["status"], failed["error_code"])

    (empty / "a.md").write_text("Now there is one.")
    answer = server.ask("POST", f"/index/jobs/{failed['id']}/retry")

    assert 202 == answer.status
    assert "done" == server.ended(failed["id"])["status"]
    again = server.ask("POST", f"/index/jobs/{failed['id']}/retry")
    assert (409, "Cannot retry job with status: done") == (again.status, again.body["detail"])


def test_cancel_of_a_pending_and_of_an_ended_job(server: LiveServer, docs: Path):
    later = server.ask("POST", "/index/", {"folder_path": "docs", "tenant_id": "later", "delay": 3600}).body

    cancelled = server.ask("DELETE", f"/index/jobs/{later['job_id']}")
    again = server.ask("DELETE", f"/index/jobs/{later['job_id']}")

    assert (200, "cancelled") == (cancelled.status, cancelled.body["status"])
    assert "Cancelled by user" == server.ask("GET", f"/index/jobs/{later['job_id']}").body["error"]
    assert (409, "Cannot cancel job with status: cancelled") == (again.status, again.body["detail"])
    assert "ERR_CANNOT_CANCEL" == again.code


def test_a_running_job_is_cancelled_at_a_checkpoint(server: LiveServer):
    large = server.folder / "large"
    large.mkdir()
    for number in range(600):
        (large / f"{number}.md").write_text(f"Text {number}.")
    job_id = server.index(large).body["job_id"]
    until(lambda: server.ask("GET", f"/index/jobs/{job_id}").body, lambda job: job["status"] == "running")
    status = server.ask("GET", "/health/status").body

    answer = server.ask("DELETE", f"/index/jobs/{job_id}")
    job = server.ended(job_id)

    assert (True, job_id) == (status["indexing_in_progress"], status["current_job_id"])
    said = (answer.body["status"], answer.body["message"])
    assert (answer.status, *said) in (
        (202, "cancel_requested", "Worker will stop at next checkpoint"),
        (200, "cancelled", "Job cancelled"),
    )
    assert ("cancelled", "Cancelled by user") == (job["status"], job["error"])


def test_health_and_statistics(server: LiveServer, indexed: str):
    status = until(
        lambda: server.ask("GET", "/health/status").body, lambda found: found["store"]["documents"] >= 2
    )
    stats = until(lambda: server.ask("GET", "/queue/stats").body, lambda found: bool(found["tasks"]))
    ready = until(lambda: server.ask("GET", "/health/ready").body, lambda found: found["workers"] == 1)

    assert {"status": "ok"} == server.ask("GET", "/health").body
    names = "indexing_in_progress current_job_id running_jobs running_time_ms queue_length store"
    assert {*names.split(), "outside_stores", "store_state"} == set(status)
    assert stats["by_status"]["done"] >= 3
    assert {"ocr_pages", "vector_chunks"} < set(stats["tasks"])
    assert [server.process.pid] == [worker["pid"] for worker in stats["workers"]]
    assert ready["ready"]


@pytest.mark.parametrize("path", ["/health/status", "/index/jobs", "/documents", "/queue/stats"])
def test_a_trailing_slash_is_optional(server: LiveServer, path: str):
    assert [200, 200] == [server.ask("GET", each).status for each in (path, path + "/")]


def test_the_runtime_file_names_the_server_and_a_second_one_is_refused(server: LiveServer):
    import json
    import subprocess

    found = json.loads((server.state / "server.json").read_text())
    second = subprocess.run(
        server.command("serve", "--port", "0"),
        env=server.environment(),
        cwd=server.folder,
        capture_output=True,
    )

    assert (server.url, server.process.pid, True) == (found["url"], found["pid"], found["worker"])
    assert 5 == second.returncode
    assert b"ERR_SERVER_RUNNING" in second.stdout + second.stderr
    assert 200 == server.ask("GET", "/health").status


def test_the_openapi_document_has_every_route_with_answers_and_examples(server: LiveServer):
    document = server.ask("GET", "/openapi.json").body
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }

    assert {
        ("get", "/notes"),
        ("get", "/notes/{note_id}"),
        ("put", "/notes/{note_id}"),
        ("delete", "/notes/{note_id}"),
        ("get", "/overview"),
        ("get", "/projects"),
        ("get", "/history"),
        ("post", "/documents/rename"),
        ("post", "/documents/remove"),
        ("delete", "/tenants/{name}"),
        ("post", "/queue/purge"),
        ("post", "/queue/retry-failed"),
        ("get", "/me"),
        ("get", "/metrics"),
        ("get", "/queue/status"),
        ("get", "/queue/history"),
        ("get", "/documents/{source_id}/tree"),
        ("get", "/queue/failures"),
        ("post", "/index/jobs/retry"),
        ("post", "/index/jobs/cancel"),
        ("get", "/events"),
        ("get", "/index/jobs/{job_id}/events"),
        ("post", "/session"),
        ("delete", "/session"),
        ("post", "/index"),
        ("post", "/index/add"),
        ("get", "/index/jobs"),
        ("get", "/index/jobs/{job_id}"),
        ("delete", "/index/jobs/{job_id}"),
        ("get", "/index/jobs/{job_id}/outcome"),
        ("post", "/index/jobs/{job_id}/retry"),
        ("get", "/health"),
        ("get", "/health/status"),
        ("get", "/health/ready"),
        ("post", "/content"),
        ("get", "/documents"),
        ("get", "/documents/{source_id}"),
        ("delete", "/documents/{source_id}"),
        ("get", "/documents/{source_id}/pages/{page}"),
        ("get", "/documents/{source_id}/pages/{page}/image"),
        ("get", "/documents/{source_id}/pages/{page}/frames"),
        ("post", "/files"),
        ("post", "/search"),
        ("post", "/context"),
        ("post", "/similar"),
        ("get", "/graph/entity"),
        ("get", "/graph/neighbours"),
        ("get", "/graph/path"),
        ("get", "/graph/stats"),
        ("get", "/functions"),
        ("post", "/functions/{name}"),
        ("get", "/queue/stats"),
        ("post", "/queue/pause"),
        ("post", "/queue/resume"),
        ("delete", "/library/{name}/{version}"),
        ("get", "/library"),
        ("post", "/library"),
        ("get", "/collections"),
        ("get", "/collections/{name}"),
        ("delete", "/collections/{name}"),
        ("delete", "/limits/{key}"),
        ("delete", "/schedules/{name}"),
        ("get", "/limits"),
        ("get", "/limits/{key}"),
        ("put", "/limits/{key}"),
        ("get", "/schedules"),
        ("get", "/schedules/{name}"),
        ("patch", "/schedules/{name}"),
        ("post", "/schedules"),
        ("post", "/schedules/{name}/pause"),
        ("post", "/schedules/{name}/resume"),
        ("post", "/schedules/{name}/run"),
        ("get", "/why"),
    } == set(operations)
    for place, operation in operations.items():
        assert operation["summary"], place
        assert operation["description"], place
        answers = operation["responses"]
        assert (
            "#/components/schemas/Problem"
            == answers["401"]["content"]["application/problem+json"]["schema"]["$ref"]
        )
        body = operation.get("requestBody")
        if body and "application/json" in body["content"]:
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            assert document["components"]["schemas"][name]["examples"], place
    assert api.DESCRIPTION == document["info"]["description"]


def test_a_document_is_found_by_either_of_its_ids(server: LiveServer, docs: Path, indexed: str):
    found = source_id(server, docs / "mill.md")
    detail = server.ask("GET", f"/documents/{found}").body
    number = detail["generations"][0]["number"]

    assert detail == server.ask("GET", f"/documents/{number}").body
    page = server.ask("GET", f"/documents/{number}/pages/1").body
    assert server.ask("GET", f"/documents/{found}/pages/1").body == page
    assert 404 == server.ask("GET", "/documents/999999999").status
