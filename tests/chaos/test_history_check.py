"""The rules for histories: a clean one breaks none, and each planted violation is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest

from tests.chaos.history import Added, Call, Claimed, Settled
from tests.chaos.history_check import RULES, History, check


def add(job_id: str, start: float, end: float | None, *, priority: int = 5, delay: float = 0) -> Call:
    return Call("add", start, end, added=[Added(job_id, priority, None, delay)], statuses=["pending"])


def claim(job_id: str, number: int, start: float, end: float | None, priority: int = 5) -> Call:
    claims = [Claimed(job_id, number, priority)] if end is not None else []
    return Call("claim", start, end, claims=claims)


def settle(
    job_id: str,
    number: int,
    start: float,
    end: float | None,
    status: str | None = "done",
    *,
    what: str = "",
    delay: float = 0,
) -> Call:
    name = what or status or "done"
    settled = Settled(job_id, number, status or "done", name, delay, name == "expanded")
    return Call("settle", start, end, settled=[settled], statuses=[] if end is None else [status])


CLEAN = [add("a", 0, 1), claim("a", 1, 2, 3), settle("a", 1, 4, 5)]
RETURNED = [*CLEAN[:2], settle("a", 1, 4, 5, "pending")]
AGAIN = [claim("a", 2, 6, 7), settle("a", 2, 8, 9)]
WAITS = settle("a", 1, 4, 5, "in_progress", what="waits")
URGENT = add("b", 0, 1, priority=8)


def broken(
    calls: Sequence[Call],
    final: dict[str, str] | None = None,
    ordered: Sequence[Sequence[str]] = (),
    jumps: Sequence[tuple[float, float]] = (),
) -> set[str]:
    jobs = {job.job_id for call in calls for job in call.added if call.answered}
    found = final if final is not None else dict.fromkeys(jobs, "done")
    return {each.rule for each in check(History(calls, jumps), [], found, ordered)}


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(CLEAN, id="one attempt"),
        pytest.param([*RETURNED, *AGAIN], id="released and done"),
        pytest.param([*CLEAN[:2], settle("a", 1, 4, None), *AGAIN], id="released without an answer"),
        pytest.param([*CLEAN[:1], claim("", 0, 2, None), *AGAIN], id="claimed first without an answer"),
        pytest.param([*RETURNED, *AGAIN, settle("a", 1, 10, 11, None)], id="refused as stale"),
        pytest.param([*CLEAN, URGENT, claim("b", 1, 2.5, 3), settle("b", 1, 4, 5)], id="at the same time"),
        pytest.param(
            [*CLEAN[:2], WAITS, claim("a", 3, 6, 7), settle("a", 3, 8, 9)], id="another run after a wait"
        ),
    ],
)
def test_what_a_queue_may_do_breaks_no_rule(calls: list[Call]):
    assert set() == broken(calls)


Planted: TypeAlias = tuple[Sequence[Call], dict[str, str] | None]
PLANTED: dict[str, Planted] = {
    "lost": (CLEAN, {}),
    "phantom": ([*CLEAN, claim("b", 1, 6, 7), settle("b", 1, 8, 9)], None),
    "starved": (CLEAN[:2], {"a": "in_progress"}),
    "doubled": ([*CLEAN[:2], settle("a", 1, 4, None), *AGAIN, settle("a", 2, 10, 11)], None),
    "stale-acked": ([*RETURNED, AGAIN[0], settle("a", 1, 8, 9)], None),
    "two owners": ([*CLEAN[:2], *AGAIN], None),
    "after the end": ([*CLEAN, *AGAIN[:1]], None),
    "claim numbers": ([*RETURNED, claim("a", 4, 6, 7)], None),
    "early": ([add("a", 0, 1, delay=5), *CLEAN[1:]], None),
    "priority": ([*CLEAN, URGENT, claim("b", 1, 6, 7, 8), settle("b", 1, 8, 9)], None),
}
"""Histories, and the final states where they are not those of a good end."""


@pytest.mark.parametrize("rule", PLANTED)
def test_each_planted_violation_is_found(rule: str):
    calls, final = PLANTED[rule]
    assert rule in broken(calls, final)


def test_every_rule_has_a_planted_violation():
    assert {*RULES} == {*PLANTED, "out of order"}


ENTITY = [*CLEAN, add("b", 1, 2), claim("b", 1, 6, 7), settle("b", 1, 8, 9)]


def test_jobs_of_an_entity_are_claimed_in_their_order():
    assert set() == broken(ENTITY, ordered=[["a", "b"]])
    assert {"out of order"} == broken(ENTITY, ordered=[["b", "a"]])


def test_a_retry_before_the_end_of_its_delay_is_early():
    returned = [*CLEAN[:2], settle("a", 1, 4, 5, "pending", delay=10)]
    assert {"early"} == broken([*returned, *AGAIN])
    assert set() == broken([*returned, claim("a", 2, 14, 15), settle("a", 2, 16, 17)])


def test_nothing_is_early_while_clocks_are_wrong():
    assert set() == broken([add("a", 0, 1, delay=5), *CLEAN[1:]], jumps=[(2.5, 4)])


def test_an_addition_that_keeps_the_claim_is_no_end_of_it():
    kept = settle("a", 1, 4, 5, "in_progress", what="expanded")
    assert "two owners" in broken([*CLEAN[:2], kept, *AGAIN])


def test_a_claim_without_an_answer_may_hide_a_job_from_others():
    calls = [*CLEAN, URGENT, claim("b", 1, 6, 7, 8), settle("b", 1, 8, 9)]
    assert set() == broken([*calls, claim("", 0, 1.5, None)])
