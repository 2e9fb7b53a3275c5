"""Busy: whether a worker with ``--until-idle`` has to go on."""

from penstock.queue import transitions
from penstock.queue.job import Scope
from tests.conformance.conftest import at, claim_all, done, many, new, put, retry, running


def test_an_empty_queue_is_not_busy(queue):
    assert not queue.busy(now=at(0))


def test_a_queue_is_busy_until_its_last_job_has_ended(queue):
    put(queue, *many(2))
    assert queue.busy(now=at(0))
    first, second = claim_all(queue)
    done(queue, first)
    assert queue.busy(now=at(0))
    done(queue, second)
    assert not queue.busy(now=at(0))


def test_a_job_in_back_off_counts_and_one_for_later_does_not_until_it_is_due(queue):
    put(queue, new("later", run_at=at(60)))
    assert not queue.busy(now=at(0))
    assert queue.busy(now=at(60))
    retry(queue, running(queue))
    assert queue.busy(now=at(0))


def test_what_is_paused_does_not_count(queue):
    put(queue, new(tenant_id="A"))
    queue.pause(Scope(), now=at(0))
    claim_all(queue)
    assert not queue.busy(now=at(0))


def test_a_job_that_waits_for_a_document_counts_only_where_documents_do(queue):
    claim = running(queue)
    queue.settle([transitions.waits(claim, waiting_for="17")], now=at(0))
    assert queue.busy(now=at(0))
    assert not queue.busy(documents=False, now=at(0))
