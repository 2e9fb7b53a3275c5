"""Kill runs: a short one and a long one on every engine, and checks of the account."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import Job, NewJob, Status
from tests.servers.stores import DURABLE, given_back, others_later
from tests.worker.kill_load import Stuck
from tests.worker.kill_report import Begun, Story, account
from tests.worker.kill_run import Plan, run

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def check(engine: str, place: Path, kills: int) -> None:
    seed = SystemRandom().getrandbits(31)
    found = run(engine, place, Plan(kills, seed))
    given_back(place)
    print(found.text())
    assert [] == found.breaches, f"seed {seed}"
    assert kills <= found.kills
    assert found.ended


@pytest.mark.parametrize("engine", others_later(DURABLE, []))
def test_jobs_and_stuck_calls_end_as_they_should_over_some_kills(engine: str, tmp_path: Path) -> None:
    check(engine, tmp_path, 6)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", DURABLE)
def test_jobs_and_stuck_calls_end_as_they_should_over_300_kills(engine: str, tmp_path: Path) -> None:
    check(engine, tmp_path, 300)


# The account finds what it looks for.


def job(job_id: str, status: Status = Status.DONE, code: str | None = None) -> Job:
    new = NewJob(
        queue_id=job_id,
        item_type="function",
        op="run",
        tenant_id="acme",
        collection="docs",
        idempotency_key=job_id,
        payload_json="{}",
    )
    over = None if status in (Status.PENDING, Status.IN_PROGRESS) else NOON
    return msgspec.structs.replace(
        transitions.added(new, NOON, 0), status=status, claim_number=1, error_code=code, finished_at=over
    )


def lines(text: str) -> list[Begun]:
    """``b`` for began or ``e`` for ended, the job, the claim number and the process."""
    words = [word.split(":") for word in text.split()]
    what = {"b": "began", "e": "ended"}
    return [Begun(what[w], job_id, int(claim), process, 0.0) for w, job_id, claim, process in words]


def story(record: str, *jobs: Job, **fields: object) -> Story:
    done = sum(each.status is Status.DONE for each in jobs)
    usual = {
        "engine": "memory",
        "struck": Counter(child=1),
        "acknowledged": ["a", "b"],
        "keys": {"a": "customer:1", "b": "customer:1"},
        "stuck": {},
        "cancelled_at": {},
        "jobs": list(jobs or (job("a"), job("b"))),
        "record": lines(record),
        "endings": done if jobs else 2,
    }
    return Story(**usual | fields)  # type: ignore[arg-type]


CLEAN = "b:a:1:7 e:a:1:7 b:b:1:8 e:b:1:8"
STUCK = {"a": Stuck("regex", "timeout")}


def test_a_run_in_order_has_no_breach() -> None:
    assert [] == account(story(CLEAN), 0.0).breaches


def test_a_call_that_was_killed_and_ran_again_is_no_breach() -> None:
    again = [msgspec.structs.replace(job("a"), claim_number=2), job("b")]
    record = "b:a:1:7 b:a:2:8 e:a:2:8 b:b:1:8 e:b:1:8"
    assert [] == account(story(record, *again), 0.0).breaches


def test_a_stuck_call_that_timed_out_is_no_breach() -> None:
    timed_out = job("a", Status.FAILED, "ERR_JOB_TIMEOUT")
    found = account(story("b:a:1:7 b:b:1:8 e:b:1:8", timed_out, job("b"), stuck=STUCK), 0.0)
    assert ([], (1, 1)) == (found.breaches, found.ended["regex", "timeout"][:2])


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("b was acknowledged and is not there", story("b:a:1:7 e:a:1:7", job("a"))),
        (
            "b (None) is pending with None",
            story("b:a:1:7 e:a:1:7", job("a"), job("b", Status.PENDING)),
        ),
        ("b is done under claim 1, which never came to its end", story(CLEAN.replace(" e:b:1:8", ""))),
        ("2 jobs are done, the store saw 3 endings", story(CLEAN, endings=3)),
        ("2 jobs are done, the store saw 1 endings", story(CLEAN, endings=1)),
        ("claim 1 of a began 2 times", story(f"b:a:1:6 {CLEAN}")),
        (
            "customer:1: a began after b",
            story("b:b:1:8 e:b:1:8 b:a:1:7 e:a:1:7"),
        ),
        ("customer:1: a ended while b ran", story("b:a:1:7 b:b:1:8 e:a:1:7 b:b:2:8 e:b:2:8 e:b:1:8")),
        (
            "a (Stuck(do='regex', way='timeout')) is cancelled with ERR_CANCELLED",
            story(CLEAN[24:], job("a", Status.CANCELLED, "ERR_CANCELLED"), job("b"), stuck=STUCK, keys={}),
        ),
        (
            "process 7 went on with b after a",
            story(
                "b:a:1:7 b:b:1:7 e:b:1:7",
                job("a", Status.FAILED, "ERR_JOB_TIMEOUT"),
                job("b"),
                stuck=STUCK,
            ),
        ),
        (
            "process 7 still runs, stuck in a",
            story(
                "b:a:1:7 b:b:1:8 e:b:1:8",
                job("a", Status.FAILED, "ERR_JOB_TIMEOUT"),
                job("b"),
                stuck=STUCK,
                alive=frozenset({"7"}),
            ),
        ),
    ],
)
def test_each_broken_promise_is_found(broken: str, told: Story) -> None:
    assert broken in account(told, 0.0).breaches
