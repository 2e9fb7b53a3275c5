"""Batches of changes in a memory queue have the effect of the single changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from penstock.queue import transitions
from penstock.queue.job import Changes, ClaimRequest, Held, Job
from penstock.queue.memory.queue import claims_of
from penstock.queue.memory.table import Table, can_end, can_take, plain_ends
from tests.stores.new_jobs import T0, call, new

LATER = T0 + timedelta(seconds=5)
REQUEST = ClaimRequest("w1", 10)
FEW = 4


def _table() -> tuple[Table, list[Job]]:
    """A table with files, calls with locks, and children; some without a key."""
    table = Table()
    kinds = [new(number, tenant_id=f"t{number % 2}", dedupe=number % 3 != 0) for number in range(FEW)]
    kinds += [call(100 + number, lock_key=f"a:{number}") for number in range(FEW)]
    for number, each in enumerate(kinds):
        table.insert(transitions.added(each, T0, number))
    parent = table.rows["job_000000"]
    for number in range(FEW):
        table.insert(transitions.added(new(200 + number), T0, number, parent))
    return table, list(table.rows.values())


def _state(table: Table) -> dict[str, Any]:
    """All rows and indexes; counts without zeros."""
    counts = {
        name: {key: number for key, number in getattr(table, name).items() if number}
        for name in ("tallies", "backlog_counts")
    }
    plain = ("rows", "leased", "waiting", "lock_holders", "live_keys", "pending_children")
    ended = [job.queue_id for job in table._ended_roots.ordered()]
    claimable = [job.queue_id for job in table.claimable()]
    return counts | {name: getattr(table, name) for name in plain} | {"ended": ended, "claimable": claimable}


def _changed(jobs: Sequence[Job], changes: Changes, *, at_once: bool, table: Table) -> list[Job]:
    return table.change_alike(jobs, changes) if at_once else [table.change(job, changes) for job in jobs]


def test_a_batch_of_claims_and_their_ends_leaves_the_rows_and_indexes_of_single_changes() -> None:
    states: list[list[dict[str, Any]]] = []
    for at_once in (False, True):
        table, jobs = _table()
        # With a lock and without one a claim is another change.
        parts = [[job for job in jobs if bool(job.lock_key) is locked] for locked in (False, True)]
        found = []
        for part in parts:
            claim = transitions.claimed(part[0], REQUEST, T0)
            assert can_take(part, claim)
            taken = _changed(part, claim, at_once=at_once, table=table)
            found.append(_state(table))
            end = transitions.settled(taken[0], transitions.done(taken[0], result_json="1"), LATER)
            assert can_end(taken, end)
            _changed(taken, end, at_once=at_once, table=table)
            found.append(_state(table))
        states.append(found)

    assert states[0] == states[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"limit_key": "api"},
        {"backlog_key": "f"},
        {"held": Held.PAUSE},
        {"turn": -1},
    ],
    ids=str,
)
def test_rows_with_more_than_a_place_in_the_order_are_taken_one_by_one(fields: dict[str, Any]) -> None:
    jobs = [transitions.added(new(number), T0, 0) for number in range(FEW)]
    claim = transitions.claimed(jobs[0], REQUEST, T0)

    assert can_take(jobs, claim)
    jobs[-1] = Job(**(_fields(jobs[-1]) | fields))
    assert not can_take(jobs, claim)


@pytest.mark.parametrize(
    "fields",
    [{"limit_key": "api"}, {"result_ttl_s": 60}, {"lease_until": None, "waiting_for": "document"}],
    ids=str,
)
def test_rows_with_more_than_a_lease_end_one_by_one(fields: dict[str, Any]) -> None:
    table, jobs = _table()
    taken = table.change_alike(jobs[:FEW], transitions.claimed(jobs[0], REQUEST, T0))
    end = transitions.settled(taken[0], transitions.done(taken[0]), LATER)

    assert can_end(taken, end)
    assert not can_end([*taken[:-1], Job(**(_fields(taken[-1]) | fields))], end)


def test_a_claim_has_the_values_of_its_job_and_no_other() -> None:
    values = {field.name: _value(place, field.type) for place, field in enumerate(structs.fields(Job), 1)}
    (claim,) = claims_of([Job(**values)])

    assert {name: values[name] for name in claim.__struct_fields__} == structs.asdict(claim)


def _value(place: int, kind: Any) -> Any:
    """Return a value which no other field of this type has; None for flags and enums."""
    found = {"int": place, "str": f"text {place}", "datetime": T0 + timedelta(seconds=place)}
    named = [name for name in found if name in str(kind)]
    return found[named[0]] if named else None


def test_claims_with_the_same_values_end_together_and_others_are_left_to_the_general_path() -> None:
    table, jobs = _table()
    plain = jobs[:FEW]
    taken = table.change_alike(plain, transitions.claimed(plain[0], REQUEST, T0))
    results = ["1", "1", "2", "1"]
    ends = [transitions.done(job, result_json=result) for job, result in zip(taken, results, strict=True)]
    late = transitions.done(Job(**(_fields(taken[0]) | {"claim_number": 9})))
    found = plain_ends(table.rows, [*ends, late, transitions.done(jobs[-1])])

    assert [True] * FEW + [False, False] == found.over
    assert [taken[:2], [taken[2]], [taken[3]]] == [group.jobs for group in found.groups]
    assert ["1", "2", "1"] == [group.settlement.result_json for group in found.groups]


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__struct_fields__}
