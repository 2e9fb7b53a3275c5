"""Lists of jobs by filter, failures by reason, and acts on all matching jobs, on a live server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import clock, config
from penstock.database.factory import open_queue
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, NewJob
from penstock.queue.protocol import Queue
from tests.http.live_server import LiveServer


@pytest.fixture(scope="module")
def queue(server: LiveServer) -> Iterator[Queue]:
    """The queue of the server, which has no worker."""
    opened = open_queue(config.load({}, state_dir=server.state))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def jobs(queue: Queue) -> Iterator[None]:
    """Five failed files, two pending ones and a cancelled one, of two tenants; all gone afterwards."""
    add(queue, 3, "acme", 2)
    fail(queue, "{}.pdf: damaged")
    add(queue, 2, "globex", 7)
    fail(queue, "page {} is missing")
    queue.cancel(add(queue, 1, "acme", 2))
    add(queue, 2, "acme", 9)
    yield
    from penstock.queue.job import JobQuery

    queue.purge(queue.find(JobQuery(limit=1000)))


def add(queue: Queue, number: int, tenant: str, priority: int) -> list[str]:
    new = [
        NewJob(
            queue_id=queue_id,
            item_type="file",
            op="ingest",
            tenant_id=tenant,
            collection="docs",
            idempotency_key=queue_id,
            payload_json=json.dumps({"file_path": f"/srv/{tenant}/{index}.pdf"}),
            priority=priority,
        )
        for index, queue_id in enumerate(clock.new_ids(number))
    ]
    return [added.queue_id for added in queue.add(new)]


def fail(queue: Queue, message: str) -> None:
    claims = queue.claim(ClaimRequest("w", 100))
    queue.settle(
        [transitions.failed(one, "ERR_PARSE", message.format(number)) for number, one in enumerate(claims)]
    )


def listed(server: LiveServer, query: str, **more: Any) -> dict[str, Any]:
    answer = server.ask("GET", f"/index/jobs/?{query}", **more)
    assert 200 == answer.status, answer
    found: dict[str, Any] = answer.body
    return found


def test_failures_are_grouped_and_each_group_lists_itself(server: LiveServer):
    found = server.ask("GET", "/queue/failures?group=reason").body

    assert (5, False) == (found["total"], found["truncated"])
    assert [3, 2] == [group["count"] for group in found["groups"]]
    damaged = found["groups"][0]
    assert ("ERR_PARSE", "2.pdf: damaged", 18) == (
        damaged["error_code"],
        damaged["message"],
        len(damaged["buckets"]),
    )
    assert 3 == sum(damaged["buckets"])
    own = listed(server, f"status=failed&reason={damaged['filter']['reason']}")
    assert (3, {"acme"}) == (own["total"], {job["tenant_id"] for job in own["jobs"]})
    assert 2 == server.ask("GET", "/queue/failures?tenant_id=globex").body["total"]
    assert 422 == server.ask("GET", "/queue/failures?group=code").status


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("error=ERR_PARSE", 5),
        ("error=ERR_NONE", 0),
        ("q=ACME/1.pdf", 2),
        ("q=is+missing", 2),
        ("status=failed&tenant_id=globex", 2),
        ("status=failed&status=cancelled", 6),
        ("held=pause", 0),
    ],
)
def test_jobs_are_listed_by_filter(server: LiveServer, query: str, expected: int):
    assert expected == listed(server, query)["total"]


@pytest.mark.parametrize("sort", ["newest", "oldest", "priority"])
def test_every_order_can_be_paged_by_cursor(server: LiveServer, sort: str):
    page = listed(server, f"sort={sort}&limit=3")
    found = page["jobs"]
    while page["next"]:
        page = listed(server, f"sort={sort}&limit=3&cursor={page['next']}")
        found += page["jobs"]

    ids = [job["job_id"] for job in found]
    assert 8 == len(set(ids)) == len(ids)
    if sort == "priority":
        assert [9, 9, 7, 7, 2, 2, 2, 2] == [job["priority"] for job in found]
    else:
        assert sorted(ids, reverse=sort == "newest") == ids
    assert 422 == server.ask("GET", "/index/jobs/?sort=priority&cursor=job_1").status


def test_a_retry_of_all_matching_needs_the_right_number(server: LiveServer):
    chosen = {"filter": {"status": "failed", "tenant_id": "acme"}}
    counted = server.ask("POST", "/index/jobs/retry", {**chosen, "dry_run": True}).body
    assert {"matched": 3, "changed": 0, "skipped": [], "more": False} == counted

    refused = server.ask("POST", "/index/jobs/retry", {**chosen, "expect": 4})
    assert (409, "ERR_COUNT_CHANGED", 3) == (refused.status, refused.code, refused.body["matched"])
    assert 5 == listed(server, "status=failed")["total"]

    done = server.ask("POST", "/index/jobs/retry", {**chosen, "expect": 3}).body
    assert {"matched": 3, "changed": 3, "skipped": [], "more": False} == done
    assert 2 == listed(server, "status=failed")["total"]
    line = (server.state / "audit.jsonl").read_text().splitlines()[-1]
    assert ("retry jobs", "3") == (json.loads(line)["action"], json.loads(line)["changed"])


def test_a_cancel_of_all_matching_names_those_it_left(server: LiveServer):
    done = server.ask("POST", "/index/jobs/cancel", {"filter": {"tenant_id": "acme"}, "expect": 2}).body
    assert (2, 2, []) == (done["matched"], done["changed"], done["skipped"])
    assert 3 == listed(server, "status=cancelled")["total"]

    ended = {"filter": {"status": ["cancelled"]}, "expect": 3}
    left = server.ask("POST", "/index/jobs/cancel", ended).body
    assert (3, 0, 3) == (left["matched"], left["changed"], len(left["skipped"]))
    assert "Cannot cancel job with status: cancelled" == left["skipped"][0]["reason"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": {}},
        {"filter": {"colour": "red"}, "expect": 1},
        {"filter": {}, "expect": -1},
        {"filter": {"status": "purple"}, "expect": 1},
    ],
)
def test_a_wrong_filter_is_refused(server: LiveServer, body: dict[str, Any]):
    assert 422 == server.ask("POST", "/index/jobs/retry", body).status
    assert 5 == listed(server, "status=failed")["total"]


def test_a_parent_and_its_failed_child_are_retried_together(server: LiveServer, queue: Queue, tmp_path: Path):
    (parent,) = add(queue, 1, "initech", 10)
    (claim,) = queue.claim(ClaimRequest("w"))
    assert parent == claim.queue_id
    child = NewJob(
        queue_id=clock.new_ids(1)[0],
        item_type="file",
        op="ingest",
        tenant_id="initech",
        collection="docs",
        idempotency_key="child",
        payload_json=json.dumps({"file_path": str(tmp_path)}),
        priority=10,
    )
    queue.settle([transitions.waits(claim, children=(child,))])
    (running,) = queue.claim(ClaimRequest("w"))
    queue.settle([transitions.failed(running, "ERR_PARSE", "odd")])
    chosen = {"filter": {"tenant_id": "initech", "children": True}, "expect": 2}

    done = server.ask("POST", "/index/jobs/retry", chosen).body
    assert {"matched": 2, "changed": 2, "skipped": [], "more": False} == done
    assert 1 == server.ask("GET", f"/index/jobs/{parent}").body["children"]["open"]
