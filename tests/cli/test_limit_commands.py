"""``penstock limit``."""

from __future__ import annotations

from typing import Any

from tests.cli.conftest import Run

CALL = '{"function_name": "f", "payload": {}}'


def test_limits_are_set_listed_shown_and_removed(run: Run, ask: Any):
    assert "There are no limits" in run("limit", "list").output
    assert "Limit gpu: 1 job at once" in run("limit", "set", "gpu", "--concurrent", "1").output
    made = ask("limit", "set", "api", "--rate", "60/min", "--concurrent", "4")
    assert {
        "key": "api",
        "concurrent": 4,
        "rate": "60/min",
        "slots": 0,
        "waiting": 0,
        "next_at": None,
    } == made
    first, second = (
        ask("queue", "add", "function", "run", "--payload", CALL, "--limit-key", "gpu")["job_id"]
        for _ in "ab"
    )

    assert [("api", 0, 0), ("gpu", 1, 1)] == [
        (one["key"], one["slots"], one["waiting"]) for one in ask("limit", "list")["limits"]
    ]
    assert "60/min started" in run("limit", "show", "api").output
    assert "limit gpu: 1 job at once, and all slots are taken" in run("why", second).output
    assert "next in line" in run("why", first).output

    assert {"removed": "gpu"} == ask("limit", "remove", "gpu")
    assert "1 job is ahead" in run("why", second).output


def test_a_job_names_its_next_start(run: Run, ask: Any):
    run("limit", "set", "api", "--rate", "1/hour")
    _, second = (
        ask("queue", "add", "function", "run", "--payload", CALL, "--limit-key", "api")["job_id"]
        for _ in "ab"
    )
    assert "limit api: 1/hour, the next start is at 2" in run("why", second).output
    assert "Next start" in run("limit", "show", "api").output


def test_refusals_of_limits(run: Run):
    assert "ERR_INVALID_LIMIT" in run("limit", "set", "api", code=1).output
    assert "ERR_INVALID_LIMIT" in run("limit", "set", "api", "--rate", "60 per minute", code=1).output
    assert "ERR_INVALID_LIMIT" in run("limit", "set", "a/b", "--concurrent", "1", code=1).output
    assert "ERR_LIMIT_NOT_FOUND" in run("limit", "show", "api", code=4).output
    assert "ERR_LIMIT_NOT_FOUND" in run("limit", "remove", "api", code=4).output
