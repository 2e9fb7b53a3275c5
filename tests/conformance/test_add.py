"""Adding: rows of their own, dedupe against live rows, batches."""

from datetime import timedelta

import pytest

from penstock.errors import DuplicateId
from penstock.queue import transitions
from penstock.queue.job import AddResult, Held, JobQuery, Status
from penstock.queue.memory.queue import MemoryQueue
from tests.conformance.conftest import (
    T0,
    at,
    claim_all,
    claim_one,
    done,
    many,
    new,
    put,
    retry,
    row,
    running,
)


def test_a_new_job_is_pending_and_due(queue):
    request = new(
        item_type="function",
        op="run",
        tenant_id="t",
        collection="c",
        branch="b",
        priority=7,
        metadata='{"m":1}',
        max_retries=5,
        timeout_s=60,
        submitted_by="cli",
        payload_json='{"a":1}',
    )
    assert [AddResult(request.queue_id, Status.PENDING, 1, dedupe_hit=False)] == queue.add([request], now=T0)

    job = row(queue, request.queue_id)
    for name in (set(request.__struct_fields__) - {"run_at"}) & set(job.__struct_fields__):
        assert getattr(request, name) == getattr(job, name), name
    assert (Status.PENDING, T0, T0) == (job.status, job.created_at, job.updated_at)
    assert (1, 0, 0, 0) == (job.run, job.claim_number, job.retry_count, job.lost_count)
    assert (None, None, None, None) == (job.held, job.run_at, job.lease_until, job.finished_at)


def test_a_top_level_job_is_its_own_root(queue):
    (queue_id,) = put(queue, new())
    job = row(queue, queue_id)
    assert (queue_id, None, None) == (job.root_id, job.parent_id, job.parent_run)


def test_an_empty_batch_adds_nothing(queue):
    assert [] == queue.add([], now=T0)


def test_a_batch_is_answered_in_the_order_it_was_asked(queue):
    requests = many(5)
    assert [r.queue_id for r in requests] == put(queue, *requests)


def test_text_of_any_script_comes_back_as_it_was(queue):
    request = new(
        "ключ-鍵-🗝️",
        tenant_id="größe",
        collection="文書",
        payload_json='{"name":"Ω≈ç√ \\u0001 “quoted” \'x\' 🏞️"}',
    )
    put(queue, request)
    job = row(queue, request.queue_id)
    assert (request.idempotency_key, request.tenant_id) == (job.idempotency_key, job.tenant_id)
    assert {"name": "Ω≈ç√ \u0001 “quoted” 'x' 🏞️"} == job.payload


def test_a_payload_is_kept_to_the_letter(queue):
    text = '{"b": 1.0,  "a":[1,2 ,3], "long":"' + "x" * 100_000 + '"}'
    (queue_id,) = put(queue, new(payload_json=text))
    assert text == row(queue, queue_id).payload_json
    assert text == claim_one(queue).payload_json


# A live row with the same key.


def test_a_pending_twin_answers_with_its_id(queue):
    (first,) = put(queue, new())
    assert [AddResult(first, Status.PENDING, 1, dedupe_hit=True)] == queue.add([new()], now=T0)
    assert {(): 1} == queue.count(JobQuery())


def test_the_newest_request_decides_what_a_pending_twin_does(queue):
    (queue_id,) = put(queue, new(payload_json='{"v":1}'))
    newest = new(op="delete", payload_json='{"v":2}', metadata='{"m":2}', max_retries=9, timeout_s=9)
    put(queue, newest, now=at(1))
    job = row(queue, queue_id)
    assert ("delete", '{"v":2}', '{"m":2}') == (job.op, job.payload_json, job.metadata)
    assert (9, 9) == (job.max_retries, job.timeout_s)


def test_a_twin_keeps_its_age(queue):
    (queue_id,) = put(queue, new())
    put(queue, new(), now=at(60))
    job = row(queue, queue_id)
    assert (T0, at(60)) == (job.created_at, job.updated_at)


@pytest.mark.parametrize(("before", "asked", "after"), [(5, 8, 8), (5, 5, 5), (5, 2, 5)])
def test_the_higher_priority_wins(queue, before, asked, after):
    (queue_id,) = put(queue, new(priority=before))
    put(queue, new(priority=asked))
    assert after == row(queue, queue_id).priority


def test_asking_again_ends_a_back_off(queue):
    claim = running(queue)
    retry(queue, claim)
    put(queue, new(), now=at(1))
    job = row(queue, claim.queue_id)
    assert (0, None, None) == (job.retry_count, job.held, job.run_at)
    assert claim.queue_id == claim_one(queue, at(1)).queue_id


def test_asking_again_in_a_back_off_asks_for_children_that_are_done_already(queue):
    """Otherwise a file changed after the end of a child would keep the old state."""
    parent = running(queue, new(item_type="folder"))
    queue.settle(
        [transitions.expanded(parent, (new("child", priority=4),), progress_json='{"cursor": 1}')], now=T0
    )
    done(queue, claim_one(queue))
    retry(queue, parent)

    (answer,) = queue.add([new(item_type="folder")], now=at(1))

    assert (parent.queue_id, 2) == (answer.queue_id, answer.run)
    again = claim_one(queue, at(1))
    assert (parent.queue_id, 2, None) == (again.queue_id, again.run, again.progress_json)
    queue.settle([transitions.waits(again, children=(new("child", priority=4),))], now=at(1))
    job = row(queue, parent.queue_id)
    assert (Status.IN_PROGRESS, 1) == (job.status, job.children_open)
    done(queue, claim_one(queue, at(1)), now=at(2))
    assert (Status.DONE, 2) == (row(queue, parent.queue_id).status, row(queue, parent.queue_id).run)


def test_a_run_that_has_not_begun_serves_all_who_ask(queue):
    claim = running(queue)
    retry(queue, claim)
    answers = [queue.add([new()], now=at(second))[0].run for second in (1, 2, 3)]
    done(queue, claim_one(queue, at(3)), now=at(3))
    followed = running(queue, new("other"), now=at(4))
    answers += [queue.add([new("other")], now=at(5))[0].run]
    done(queue, followed, now=at(6))
    answers += [queue.add([new("other")], now=at(7))[0].run]
    assert [2] * 5 == answers


def test_asking_again_for_later_leaves_a_back_off_that_ends_sooner(queue):
    claim = running(queue)
    retry(queue, claim)
    put(queue, new(run_at=at(60)), now=at(1))
    job = row(queue, claim.queue_id)
    assert (0, Held.TIME, at(5)) == (job.retry_count, job.held, job.run_at)


def test_asking_again_without_a_time_makes_a_scheduled_job_due(queue):
    (queue_id,) = put(queue, new(run_at=at(3600)))
    put(queue, new(), now=at(1))
    assert queue_id == claim_one(queue, at(1)).queue_id


@pytest.mark.parametrize(("before", "asked", "after"), [(600, 60, 60), (60, 600, 60)])
def test_the_earlier_of_two_times_serves_both_requests(queue, before, asked, after):
    (queue_id,) = put(queue, new(run_at=at(before)))
    put(queue, new(run_at=at(asked)), now=at(1))
    assert at(after) == row(queue, queue_id).run_at


def test_asking_again_for_later_does_not_delay_a_job_that_is_due(queue):
    (queue_id,) = put(queue, new())
    put(queue, new(run_at=at(600)), now=at(1))
    assert queue_id == claim_one(queue, at(1)).queue_id


def test_one_batch_can_ask_twice_for_the_same(queue):
    first, second, other = new(payload_json='{"v":1}'), new(payload_json='{"v":2}'), new("other")
    answers = queue.add([first, other, second], now=T0)
    assert [first.queue_id, other.queue_id, first.queue_id] == [a.queue_id for a in answers]
    assert [False, False, True] == [a.dedupe_hit for a in answers]
    assert {"v": 2} == row(queue, first.queue_id).payload


@pytest.mark.parametrize("apart", [{"tenant_id": "other"}, {"branch": "other"}])
def test_the_same_key_elsewhere_is_another_job(queue, apart):
    put(queue, new())
    (answer,) = queue.add([new(**apart)], now=T0)
    assert not answer.dedupe_hit
    assert {(): 2} == queue.count(JobQuery())


def test_without_dedupe_a_request_is_a_row_of_its_own(queue):
    put(queue, new())
    request = new(dedupe=False)
    assert [AddResult(request.queue_id, Status.PENDING)] == queue.add([request], now=T0)


def test_nothing_joins_a_row_without_dedupe(queue):
    put(queue, new(dedupe=False))
    request = new()
    assert [AddResult(request.queue_id, Status.PENDING)] == queue.add([request], now=T0)


@pytest.mark.parametrize("end", [transitions.done, transitions.timed_out, transitions.cancelled_by_flag])
def test_a_finished_job_never_blocks_its_key(queue, end):
    queue.settle([end(running(queue))], now=T0)
    request = new()
    assert [AddResult(request.queue_id, Status.PENDING)] == queue.add([request], now=at(1))


# Ids that are taken.


def test_a_taken_id_is_refused(queue):
    (taken,) = put(queue, new("a"))
    with pytest.raises(DuplicateId):
        queue.add([new("b", queue_id=taken)], now=T0)


def test_the_id_of_an_ended_job_stays_taken(queue):
    claim = running(queue)
    done(queue, claim)
    with pytest.raises(DuplicateId):
        queue.add([new(queue_id=claim.queue_id)], now=T0)


def test_a_taken_id_is_refused_even_where_its_key_is_live(queue):
    (taken,) = put(queue, new(payload_json='{"v":1}'))
    with pytest.raises(DuplicateId):
        queue.add([new(queue_id=taken, payload_json='{"v":2}')], now=T0)
    assert {"v": 1} == row(queue, taken).payload


def test_a_batch_that_uses_an_id_twice_is_refused(queue):
    with pytest.raises(DuplicateId):
        queue.add([new("a", queue_id="job_x"), new("b", queue_id="job_x")], now=T0)
    assert {} == queue.count(JobQuery())


def test_a_refused_batch_changes_nothing(queue):
    (twin, taken) = put(queue, new("a", payload_json='{"v":1}'), new("b"))
    before = queue.find(JobQuery())
    with pytest.raises(DuplicateId):
        queue.add([new("fresh"), new("a", payload_json='{"v":2}'), new("c", queue_id=taken)], now=at(1))
    assert before == queue.find(JobQuery())
    assert {"v": 1} == row(queue, twin).payload
    assert [twin, taken] == [claim.queue_id for claim in claim_all(queue)]


def test_a_request_that_joins_one_of_its_own_call_counts_from_its_own_moment(queue):
    """Rows of one call whose ids are not in order are a microsecond apart; so are requests that join one."""
    first = new("same", queue_id="job_b")
    put(queue, first, new("same", queue_id="job_a"), now=T0)
    assert (T0, T0 + timedelta(microseconds=1)) == (
        row(queue, "job_b").created_at,
        row(queue, "job_b").updated_at,
    )


def _calls(number, **fields):
    """Calls of a function, which never meet others: engines add many at once, or one in a short way."""
    plain = {"item_type": "function", "op": "run", "dedupe": False}
    return many(number, "k", **(plain | fields))


@pytest.mark.parametrize(
    "batch",
    [
        lambda: _calls(1),
        lambda: _calls(3),
        lambda: _calls(3)[::-1],
        lambda: [*_calls(2), *_calls(2, priority=7), *_calls(2, tenant_id="other")],
        lambda: [*_calls(1), *_calls(1, lock_key="entity:a:1"), *_calls(1, lock_key="entity:a:2")],
        lambda: [*_calls(1), *_calls(1, run_at=at(60)), *_calls(1, run_at=at(-60))],
        lambda: [*_calls(1), *_calls(1, limit_key="slow"), *_calls(1, metadata='{"a":1}')],
        lambda: [*_calls(1, payload_json=f'{{"text":"{"x" * 3_000}"}}'), *_calls(1)],
        lambda: [*_calls(1), *many(1), *_calls(1, item_type="content", op="ingest")],
    ],
)
def test_rows_of_a_batch_are_those_of_the_rules(queue, batch):
    requests, plain = [*many(2, "before", priority=7), *_calls(2, tenant_id="acme")], batch()
    rows = []
    for each in (queue, MemoryQueue()):
        put(each, *requests)
        put(each, *plain, now=at(1))
        rows.append(each.find(JobQuery()))
    assert rows[1] == rows[0]


def test_a_refused_batch_of_calls_changes_nothing(queue):
    first, taken, last = _calls(3)
    put(queue, taken)
    with pytest.raises(DuplicateId):
        put(queue, first, taken, last)
    assert [taken.queue_id] == [job.queue_id for job in queue.find(JobQuery())]
