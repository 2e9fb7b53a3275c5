"""Chunks of children, counted by their parent, and the result of a parent's own part."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import Status
from tests.conformance.conftest import T0, claim_all, claim_one, fail, new, put, row, running

WALKED = '{"outcome":"indexed","total":3}'


def folder():
    return new("folder", item_type="folder")


def waiting(queue, *keys, request=None):
    """A folder that has walked and waits for one child for each key."""
    claim = running(queue, request or folder())
    children = tuple(new(key, priority=4) for key in keys)
    queue.settle([transitions.waits(claim, children=children, result_json=WALKED)], now=T0)
    return claim.queue_id


def end(queue, claims, *results):
    settlements = [
        transitions.done(claim, result_json=result) for claim, result in zip(claims, results, strict=True)
    ]
    queue.settle(settlements, now=T0)


def test_a_parent_adds_up_the_chunks_of_its_children(queue):
    parent = waiting(queue, "a", "b", "c")
    claims = claim_all(queue)
    end(queue, claims[:2], '{"outcome":"indexed","chunks":3}', '{"chunks":40,"outcome":"indexed"}')
    assert (43, 1) == (row(queue, parent).total_chunks, row(queue, parent).children_open)
    end(queue, claims[2:], '{"outcome":"unchanged"}')
    assert (Status.DONE, 43) == (row(queue, parent).status, row(queue, parent).total_chunks)


def test_the_chunks_of_a_child_count_beside_a_failed_one(queue):
    parent = waiting(queue, "a", "b")
    good, bad = claim_all(queue)
    queue.settle(
        [
            transitions.failed(bad, "ERR_PARSE", "not a PDF"),
            transitions.done(good, result_json='{"chunks":7}'),
        ],
        now=T0,
    )
    assert (Status.FAILED, 7) == (row(queue, parent).status, row(queue, parent).total_chunks)


@pytest.mark.parametrize(
    "result",
    [
        None,
        '"chunks"',
        '["chunks"]',
        '{"chunks":null}',
        '{"chunks":true}',
        '{"chunks":"7"}',
        '{"chunks":-7}',
        '{"chunks":1.5}',
        '{"chunks":1e300}',
        '{"chunks":{"chunks":7}}',
        '{"made":{"chunks":7}}',
    ],
)
def test_a_result_without_a_number_of_chunks_counts_none(queue, result):
    parent = waiting(queue, "a")
    end(queue, claim_all(queue), result)
    assert (Status.DONE, 0) == (row(queue, parent).status, row(queue, parent).total_chunks)


def test_a_retried_child_counts_when_it_is_done(queue):
    parent = waiting(queue, "a", "b")
    good, bad = claim_all(queue)
    end(queue, [good], '{"chunks":2}')
    fail(queue, bad)
    queue.requeue([bad.queue_id], now=T0)
    end(queue, claim_all(queue), '{"chunks":5}')
    assert (Status.DONE, 7) == (row(queue, parent).status, row(queue, parent).total_chunks)


def test_the_next_run_starts_without_chunks(queue):
    parent = waiting(queue, "a")
    put(queue, folder())
    end(queue, claim_all(queue), '{"chunks":5}')
    job = row(queue, parent)
    assert (Status.PENDING, 2, 0) == (job.status, job.run, job.total_chunks)


def test_a_retried_parent_starts_without_chunks(queue):
    claim = running(queue, folder())
    queue.settle([transitions.expanded(claim, (new("a", priority=9),))], now=T0)
    end(queue, [claim_one(queue)], '{"chunks":5}')
    fail(queue, claim)
    assert 5 == row(queue, claim.queue_id).total_chunks
    queue.requeue([claim.queue_id], now=T0)
    assert 0 == row(queue, claim.queue_id).total_chunks


def test_a_parent_keeps_the_result_of_its_own_part_when_children_fail(queue):
    parent = waiting(queue, "a")
    assert {"outcome": "indexed", "total": 3} == row(queue, parent).result
    fail(queue, claim_one(queue))
    job = row(queue, parent)
    assert (Status.FAILED, {"outcome": "indexed", "total": 3}) == (job.status, job.result)


def test_a_parent_keeps_the_result_of_its_own_part_when_cancelled(queue):
    parent = waiting(queue, "a")
    queue.cancel([parent], now=T0)
    job = row(queue, parent)
    assert (Status.CANCELLED, {"outcome": "indexed", "total": 3}) == (job.status, job.result)
