"""Figures of a live server with a worker: lanes, workers, history, metrics and the tree of a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.queue.job import WorkerReport
from penstock.queue.memory.queue import MemoryQueue
from penstock.service.live_changes import Throughput
from tests.http.live_server import LiveServer, until

SERVE = ("--processes", "1")
SETTINGS = {"heartbeat_s": "1", "metrics_public": "true"}
NUMBER = 6


@pytest.fixture(scope="module", autouse=True)
def indexed(server: LiveServer) -> str:
    """A folder of some files was indexed, and one file that cannot be read has failed."""
    for number in range(NUMBER):
        (server.folder / "files" / f"{number}.md").write_text(f"# Mill {number}\n\nWater, page {number}.")
    (server.folder / "files" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    job: str = server.index(server.folder / "files").body["job_id"]
    server.ended(job)
    return job


def metrics(server: LiveServer, **more: Any) -> dict[str, float]:
    answer = server.raw("GET", "/metrics", **more)
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (
        answer.status,
        answer.headers["content-type"],
    )
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    assert all(
        re.fullmatch(r'penstock_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [0-9.e+-]+', line) for line in lines
    )
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_statistics_show_lanes_workers_and_breakers(server: LiveServer):
    found = until(
        lambda: server.ask("GET", "/queue/stats").body,
        # Lanes are read before workers, so the worker may have reported in between.
        lambda stats: stats["lanes"][0]["slots"] and any(one["running"] == 0 for one in stats["workers"]),
    )

    (worker,) = found["workers"]
    assert (["jobs", "ocr", "vector", "graphrag"], "alive") == (worker["lanes"], worker["state"])
    lanes = {lane["lane"]: lane for lane in found["lanes"]}
    assert {"jobs", "ocr", "vector", "graphrag"} == set(lanes)
    assert (0, 1, 0.0) == (lanes["jobs"]["waiting"], lanes["jobs"]["slots"], lanes["jobs"]["time_left_s"])
    assert [] == found["breakers"]
    assert {
        "queue_name": "unified_queue",
        "connected": True,
        "queue_length": 0,
        "processing": 0,
        "queued": 0,
        "worker_connected": True,
    } == server.ask("GET", "/queue/status").body


def test_counters_of_the_worker_reach_metrics_and_history_and_survive_a_restart(server: LiveServer):
    found = until(lambda: metrics(server), lambda m: m['penstock_settled_total{outcome="done"}'] >= NUMBER)
    assert 1 <= found['penstock_settled_total{outcome="failed"}'] <= 2
    assert found["penstock_claims_total"] >= NUMBER + 1
    assert found["penstock_claim_seconds_count"] == found["penstock_claims_total"]
    assert found['penstock_run_seconds_sum{kind="jobs"}'] > 0
    assert found['penstock_queue_jobs{status="done",item_type="file"}'] == NUMBER
    assert not any("tenant" in name for name in found)

    history = server.ask("GET", "/queue/history?window=2h&step=5m").body
    assert (300, 24) == (history["step_s"], len(history["lanes"][0]["done"]))
    (jobs,) = [lane for lane in history["lanes"] if lane["lane"] == "jobs"]
    assert NUMBER <= sum(jobs["done"][-2:] if jobs["done"][-2] is not None else jobs["done"][-1:])
    assert jobs["done"][0] is None

    assert 0 == server.stop()
    server.start("--processes", "1")
    again = metrics(server)
    assert found["penstock_claims_total"] <= again["penstock_claims_total"]
    assert NUMBER <= again['penstock_settled_total{outcome="done"}']


@pytest.mark.parametrize("query", ["window=1d", "step=x", "window=", "steps=1"])
def test_a_wrong_window_is_refused(server: LiveServer, query: str):
    assert 422 == server.ask("GET", f"/queue/history?{query}").status


def test_a_tree_has_a_letter_for_each_page_and_chunks_of_some(server: LiveServer):
    documents = server.ask("GET", "/documents?path=*/1.md").body["documents"]
    path = f"/documents/{documents[0]['source_id']}/tree"
    tree = server.ask("GET", path).body

    assert (1, {"ocr": "d", "vector": "d", "graphrag": "s"}) == (tree["page_count"], tree["states"])
    (chunk,) = tree["pages"][0]["chunks"]
    assert ("completed", 1) == (chunk["vector"], chunk["first_line"])
    assert "Water" in chunk["preview"]
    assert [] == server.ask("GET", f"{path}?first=2&last=3").body["pages"]
    assert 422 == server.ask("GET", f"{path}?first=3&last=2").status
    assert 404 == server.ask("GET", "/documents/none/tree").status


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LiveServer]:
    """A server for tests with keys: the other tests need none, and a server with keys stays closed."""
    started = LiveServer(tmp_path, "--no-worker", **SETTINGS)
    yield started
    assert 0 == started.stop()


def test_keys_with_tenants_get_no_figures_of_others(other: LiveServer):
    server = other
    acme, admin = server.make_key("acme", "read", "acme"), server.make_key("admin", "admin")

    assert 403 == server.ask("GET", "/queue/status", key=acme).status
    assert [] == server.ask("GET", "/queue/history", key=acme).body["lanes"]
    stats = server.ask("GET", "/queue/stats", key=acme).body
    assert (["jobs"], 0, None) == (
        [lane["lane"] for lane in stats["lanes"]],
        stats["lanes"][0]["waiting"],
        stats["workers"],
    )
    assert metrics(server)
    assert 401 == server.ask("GET", "/queue/status").status
    assert 200 == server.ask("GET", "/queue/status", key=admin).status


def test_work_before_the_first_look_and_a_lost_worker_do_not_spoil_totals(tmp_path: Path):
    queue, waiting = MemoryQueue(), {"jobs": 12}
    before = datetime.now(UTC) - timedelta(hours=1)

    def report(name: str, started_at: datetime, done: int) -> None:
        info = b'{"counters": {"jobs_done": %d}}' % done
        queue.report(
            WorkerReport(worker_id=name, host="h", pid=1, started_at=started_at, info_json=info.decode())
        )

    throughput = Throughput(queue, lambda: waiting, tmp_path)
    report("old", before, 1_000)
    throughput.look()
    assert 0 == throughput.totals()["jobs_done"]
    report("old", before, 1_003)
    report("new", datetime.now(UTC), 4)
    throughput.look()
    queue.forget_workers(queue.workers())
    throughput.look()
    assert 7 == throughput.totals()["jobs_done"]
    throughput._write()

    again = Throughput(queue, lambda: waiting, tmp_path)
    assert 7 == again.totals()["jobs_done"]
    jobs = again.history(timedelta(minutes=2), timedelta(minutes=1)).lanes[0]
    assert 120 == again.history(timedelta(minutes=2), timedelta(days=30_000)).step_s
    assert (7, 12) == (sum(done or 0 for done in jobs.done), [one for one in jobs.waiting if one][-1])
    (tmp_path / "history.json").write_text("{")
    assert {} == Throughput(queue, lambda: waiting, tmp_path).totals()
