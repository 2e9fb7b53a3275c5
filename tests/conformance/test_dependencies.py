"""Dependencies: a job with ``after`` waits until all of the named jobs have ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from unittest.mock import patch

import pytest

from penstock.errors import DependencyCycle, DuplicateId, OtherDependencies, UnknownDependency
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, NewJob, Scope, Status
from penstock.queue.protocol import Queue
from penstock.queue.rules import addition
from penstock.queue.transitions import DEPENDENCY_FAILED, dependencies_of
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, fail, new, put, row, running

PENDING, RUNNING, DONE, FAILED, CANCELLED = Status


def after(*ids: str, key: str | None = None, **fields: object) -> NewJob:
    return new(key or "", after=ids, dedupe=key is not None, **fields)


def statuses(queue: Queue, *ids: str) -> list[Status]:
    return [row(queue, queue_id).status for queue_id in ids]


def run_all(queue: Queue, *, seconds: int = 0) -> list[str]:
    """Run whatever can be claimed until nothing is left. Returns the order."""
    ran = []
    while claims := claim_all(queue, at(seconds), limit=10):
        ran += [claim.queue_id for claim in claims]
        queue.settle([transitions.done(claim) for claim in claims], now=at(seconds))
    return ran


def test_job_waits_until_the_job_before_it_is_done(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    assert row(queue, second).held is Held.AFTER
    assert (first.queue_id,) == dependencies_of(row(queue, second)).after
    assert [] == claim_all(queue)
    done(queue, first, at(1))
    assert row(queue, second).held is None
    assert second == claim_one(queue, at(1)).queue_id


def test_exchange_claims_the_released_job_at_once(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    answer = queue.exchange([transitions.done(first)], ClaimRequest("w1"), now=at(1))
    assert [second] == [claim.queue_id for claim in answer.claims]


def test_ended_jobs_count_at_once(queue: Queue) -> None:
    first = running(queue)
    done(queue, first)
    (second,) = put(queue, after(first.queue_id))
    assert second == claim_one(queue).queue_id


def test_diamond_runs_in_order(queue: Queue) -> None:
    top = new("top", dedupe=False)
    left, right = after(top.queue_id), after(top.queue_id)
    bottom = after(left.queue_id, right.queue_id)
    put(queue, top, left, right, bottom)
    one = claim_one(queue)
    assert top.queue_id == one.queue_id
    done(queue, one)
    both = claim_all(queue)
    assert {left.queue_id, right.queue_id} == {claim.queue_id for claim in both}
    done(queue, both[0])
    assert [] == claim_all(queue)
    done(queue, both[1])
    assert bottom.queue_id == claim_one(queue).queue_id


def test_jobs_of_one_call_may_be_given_in_any_order(queue: Queue) -> None:
    first = new("a", dedupe=False)
    second = after(first.queue_id)
    put(queue, second, first)
    assert [first.queue_id, second.queue_id] == run_all(queue)


def chain(queue: Queue, number: int, *, run_after_failure: bool = False) -> list[str]:
    jobs = [new("0", dedupe=False)]
    for _ in range(number - 1):
        jobs.append(after(jobs[-1].queue_id, run_after_failure=run_after_failure))
    return put(queue, *jobs)


def test_chain_runs_to_its_end(queue: Queue) -> None:
    ids = chain(queue, 20)
    assert ids == run_all(queue)


@pytest.mark.long
def test_chain_of_a_thousand_runs_in_order(queue: Queue) -> None:
    ids = chain(queue, 1_000)
    assert ids == run_all(queue)


def test_failure_in_the_middle_cancels_the_rest(queue: Queue) -> None:
    ids = chain(queue, 5)
    done(queue, claim_one(queue))
    fail(queue, claim_one(queue), at(1))
    assert [DONE, FAILED, CANCELLED, CANCELLED, CANCELLED] == statuses(queue, *ids)
    third = row(queue, ids[2])
    assert (DEPENDENCY_FAILED, at(1)) == (third.error_code, third.finished_at)
    assert f"{ids[1]} failed, and this job waited for it" == third.error_message
    assert f"{ids[2]} was cancelled, and this job waited for it" == row(queue, ids[3]).error_message


def test_rest_runs_after_a_failure_by_choice(queue: Queue) -> None:
    ids = chain(queue, 3, run_after_failure=True)
    fail(queue, claim_one(queue))
    assert ids[1:] == run_all(queue)


def test_cancelled_root_cancels_all(queue: Queue) -> None:
    ids = chain(queue, 5)
    queue.cancel([ids[0]], now=at(1))
    assert {CANCELLED} == set(statuses(queue, *ids))


def test_large_cascade_is_cut_into_transactions(queue: Queue) -> None:
    first = running(queue)
    jobs = [after(first.queue_id) for _ in range(7)]
    last = after(jobs[0].queue_id, jobs[6].queue_id)
    ids = put(queue, *jobs, last)
    with patch.object(addition, "RESOLVED_AT_ONCE", 2), patch("penstock.queue.engine.CASCADE_BATCH", 2):
        queue.cancel([first.queue_id], now=at(1))
        queue.settle([transitions.cancelled_by_flag(first)], now=at(2))
    assert {CANCELLED} == set(statuses(queue, *ids))


def test_job_waits_for_all_of_its_dependencies(queue: Queue) -> None:
    put(queue, new("a"), new("b"))
    first, second = claim_all(queue)
    (third,) = put(queue, after(first.queue_id, second.queue_id))
    done(queue, second)
    assert row(queue, third).held is Held.AFTER
    done(queue, first)
    assert row(queue, third).held is None


def test_retry_is_no_end(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    queue.settle([transitions.released(first, "shutting down")], now=at(1))
    assert row(queue, second).held is Held.AFTER


def test_start_time_counts_after_the_dependencies(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id, run_at=at(100)))
    done(queue, first, at(1))
    found = row(queue, second)
    assert (Held.TIME, at(100)) == (found.held, found.run_at)
    assert [] == claim_all(queue, at(99))
    assert second == claim_one(queue, at(101)).queue_id


def test_start_time_in_the_past_is_over(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id, run_at=at(10)))
    done(queue, first, at(20))
    assert (None, None) == (row(queue, second).held, row(queue, second).run_at)


def test_unknown_dependency_is_refused(queue: Queue) -> None:
    with pytest.raises(UnknownDependency, match="job_nowhere"):
        put(queue, new("a"), after("job_nowhere"))
    assert [] == queue.find(JobQuery())


def test_cycle_is_refused(queue: Queue) -> None:
    one = new("a", queue_id="job_a", after=("job_b",))
    two = new("b", queue_id="job_b", after=("job_a",))
    with pytest.raises(DependencyCycle, match="job_a after job_b after job_a"):
        put(queue, one, two)
    with pytest.raises(DependencyCycle):
        put(queue, new("a", queue_id="job_a", after=("job_a",)))
    assert [] == queue.find(JobQuery())


def test_cycle_over_a_duplicate_is_refused(queue: Queue) -> None:
    one = new("same", queue_id="job_a", after=("job_b",))
    two = new("b", queue_id="job_b", after=("job_c",))
    with pytest.raises(DependencyCycle):
        put(queue, one, two, new("same", queue_id="job_c"))


def test_taken_id_is_refused(queue: Queue) -> None:
    first = running(queue)
    (taken,) = put(queue, new("taken"))
    with pytest.raises(DuplicateId):
        put(queue, after(first.queue_id), after(first.queue_id, queue_id=taken))
    assert 2 == len(queue.find(JobQuery()))


def test_same_request_again_joins(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id, key="two"))
    (again,) = queue.add([after(first.queue_id, key="two", priority=9)], now=at(1))
    assert (second, True) == (again.queue_id, again.dedupe_hit)
    assert (Held.AFTER, 9) == (row(queue, second).held, row(queue, second).priority)
    (plain,) = queue.add([new("two")], now=at(2))
    assert (second, Held.AFTER) == (plain.queue_id, row(queue, second).held)


def test_duplicate_with_other_dependencies_is_refused(queue: Queue) -> None:
    first = running(queue)
    put(queue, new("two"))
    with pytest.raises(OtherDependencies):
        put(queue, after(first.queue_id, key="two"))


def test_rows_without_dedupe_have_dependencies_of_their_own(queue: Queue) -> None:
    first = running(queue)
    free = new("two", dedupe=False)
    keyed = after(first.queue_id, key="two")
    assert [free.queue_id, keyed.queue_id] == put(queue, free, keyed)
    assert [None, Held.AFTER] == [row(queue, each).held for each in (free.queue_id, keyed.queue_id)]


def test_reference_to_a_duplicate_of_the_call_means_the_live_job(queue: Queue) -> None:
    first = running(queue, new("one"))
    again = new("one")
    second = after(again.queue_id)
    put(queue, again, second)
    assert (first.queue_id,) == dependencies_of(row(queue, second.queue_id)).after


def test_failed_dependency_cancels_at_once(queue: Queue) -> None:
    first = running(queue)
    fail(queue, first)
    (added,) = queue.add([after(first.queue_id)], now=at(1))
    assert CANCELLED is added.status
    assert CANCELLED is row(queue, added.queue_id).status


def test_cancelled_waiting_job_is_forgotten(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    queue.cancel([second], now=at(1))
    done(queue, first, at(2))
    assert CANCELLED is row(queue, second).status


def test_waiting_job_cannot_be_started_by_id(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    assert queue.start(second, ClaimRequest("w1"), now=at(1)) is None


def test_job_released_during_a_pause_is_held_by_it(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    queue.pause(Scope("acme"))
    done(queue, first, at(1))
    assert [] == claim_all(queue, at(2))
    queue.resume(Scope("acme"), now=at(3))
    queue.reconcile(now=at(4))
    assert second == claim_one(queue, at(5)).queue_id


def test_follow_up_is_awaited_too(queue: Queue) -> None:
    first = running(queue, new("one"))
    (second,) = put(queue, after(first.queue_id))
    put(queue, new("one"))
    done(queue, first, at(1))
    assert row(queue, second).held is Held.AFTER
    done(queue, claim_one(queue, at(2)), at(2))
    assert row(queue, second).held is None


def test_parent_is_awaited_with_its_children(queue: Queue) -> None:
    parent = running(queue, new("folder", item_type="folder"))
    (second,) = put(queue, after(parent.queue_id))
    queue.settle([transitions.waits(parent, children=(new("child"),))], now=at(1))
    assert row(queue, second).held is Held.AFTER
    done(queue, claim_one(queue, at(2)), at(2))
    assert row(queue, second).held is None


def test_pruned_dependency_counts_as_ended(queue: Queue) -> None:
    put(queue, new("a"), new("b"))
    first, second = claim_all(queue)
    (third,) = put(queue, after(first.queue_id, second.queue_id))
    done(queue, first)
    queue.prune({DONE: at(100)})
    done(queue, second, at(200))
    assert third == claim_one(queue, at(200)).queue_id


def test_purged_dependency_releases_at_the_next_upkeep(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    queue.purge([row(queue, first.queue_id)], now=at(1))
    queue.reconcile(now=at(2))
    assert second == claim_one(queue, at(2)).queue_id


def test_waiting_jobs_survive_a_restart(queue: Queue, reopen: Callable[[], Queue]) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id, run_after_failure=True))
    queue = reopen()
    assert [second] == [job.queue_id for job in queue.find(JobQuery(held=Held.AFTER))]
    fail(queue, first, at(1))
    assert second == claim_one(queue, at(1)).queue_id


def test_many_plain_jobs_are_not_delayed_by_waiting_ones(queue: Queue) -> None:
    """A held row does not move the next turn of its tenant."""
    first = running(queue)
    put(queue, *(after(first.queue_id) for _ in range(5)))
    (plain,) = put(queue, new("plain"))
    put(queue, new("other", tenant_id="other"))
    assert plain == claim_one(queue).queue_id


def test_restored_rows_keep_their_dependencies(queue: Queue) -> None:
    first = running(queue)
    (second,) = put(queue, after(first.queue_id))
    waiting, awaited = row(queue, second), row(queue, first.queue_id)
    queue.purge([waiting, awaited], now=at(1))
    assert [None, None] == queue.restore([awaited, waiting])
    done(queue, first, at(2))
    assert second == claim_one(queue, at(2)).queue_id


def test_held_time_of_a_claim_is_not_touched(queue: Queue) -> None:
    """The lease and claim number of a running job stay when another job begins to wait for it."""
    first = running(queue)
    put(queue, after(first.queue_id), now=T0 + timedelta(seconds=1))
    found = row(queue, first.queue_id)
    assert (first.claim_number, first.lease_until) == (found.claim_number, found.lease_until)
    assert found.awaited


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_cascade_killed_after_any_step_is_finished_by_upkeep(queue: Queue, steps: int) -> None:
    """Each further transaction of a cascade counts as a step; the process ends before the next one."""
    first = running(queue)
    jobs = [after(first.queue_id) for _ in range(5)]
    rest = [after(job.queue_id) for job in jobs]
    ids = put(queue, *jobs, *rest)
    left = iter(range(steps))

    cascade = queue._cascade  # type: ignore[attr-defined]

    def one_more(*given: object) -> None:
        if next(left, None) is None:
            raise SystemExit
        cascade(*given)

    with (
        patch.object(addition, "RESOLVED_AT_ONCE", 2),
        patch.object(queue, "_cascade", one_more),
        suppress(SystemExit),
    ):
        fail(queue, first, at(1))
    for seconds in range(2, 9):
        queue.reconcile(now=at(seconds))
    assert {CANCELLED} == set(statuses(queue, *ids))
    assert 0 == queue.reconcile(now=at(10))
