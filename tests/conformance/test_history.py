"""History: departures from the plain path only, and never more than a few."""

from penstock.queue import transitions
from penstock.queue.job import JobEvent
from penstock.queue.transitions import HISTORY_LIMIT, NOTE_LIMIT
from tests.conformance.conftest import T0, at, claim_one, done, fail, new, put, reap, retry, row, running


def story(queue, queue_id):
    return [event.what for event in row(queue, queue_id).history]


def test_a_plain_job_has_no_history(queue):
    claim = running(queue)
    done(queue, claim)
    assert [] == row(queue, claim.queue_id).history
    assert None is row(queue, claim.queue_id).history_json


def test_an_event_says_when_what_why_and_who(queue):
    claim = running(queue)
    retry(queue, claim, at(1))
    assert [JobEvent(at(1), "retry", "no route", "w1")] == row(queue, claim.queue_id).history


def test_every_departure_is_told_in_order(queue):
    claim = running(queue)
    retry(queue, claim, at(1))
    queue.settle([transitions.released(claim_one(queue, at(10)), "shutdown")], now=at(10))
    claim_one(queue, at(11))
    reap(queue, at(400))
    fail(queue, claim_one(queue, at(400)), at(401))
    queue.requeue([claim.queue_id], now=at(402))
    last = claim_one(queue, at(403))
    queue.cancel([claim.queue_id], now=at(404))
    queue.settle([transitions.cancelled_by_flag(last)], now=at(405))
    expected = ["retry", "released", "lost", "failed", "requeued", "cancel requested", "cancelled"]
    assert expected == story(queue, claim.queue_id)


def test_the_reason_for_giving_back_is_told(queue):
    claim = running(queue)
    queue.settle([transitions.released(claim, "shutdown")], now=at(1))
    assert [JobEvent(at(1), "released", "shutdown", "w1")] == row(queue, claim.queue_id).history


def test_a_follow_up_is_told(queue):
    claim = running(queue)
    put(queue, new(op="delete"), now=at(1))
    done(queue, claim, at(2))
    assert [JobEvent(at(2), "follow-up", "run 2: delete", "w1")] == row(queue, claim.queue_id).history


def test_reopening_a_parent_is_told(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=(new("c"),))], now=T0)
    fail(queue, claim_one(queue))
    queue.requeue([parent.queue_id], now=at(1))
    assert ["failed", "reopened"] == story(queue, parent.queue_id)


def test_a_history_keeps_the_last_few(queue):
    claim = running(queue)
    for i in range(HISTORY_LIMIT + 5):
        queue.settle([transitions.released(claim, f"reason {i}")], now=at(i))
        claim = claim_one(queue, at(i))
    notes = [event.note for event in row(queue, claim.queue_id).history]
    assert 20 == HISTORY_LIMIT
    assert [f"reason {i}" for i in range(5, HISTORY_LIMIT + 5)] == notes


def test_what_is_given_back_again_for_the_same_reason_is_told_once(queue):
    claim = running(queue)
    retry(queue, claim, at(0))
    for i in range(1, 14):
        claim = claim_one(queue, at(100 * i))
        queue.settle([transitions.released(claim, "behind a slow job")], now=at(100 * i))
    queue.settle([transitions.released(claim_one(queue, at(2_000)), "shutdown")], now=at(2_000))
    expected = [("retry", at(0)), ("released", at(1_300)), ("released", at(2_000))]
    assert expected == [(event.what, event.at) for event in row(queue, claim.queue_id).history]


def test_a_long_note_is_cut(queue):
    claim = running(queue)
    queue.settle([transitions.released(claim, "é" * 10_000)], now=T0)
    assert ["é" * NOTE_LIMIT] == [event.note for event in row(queue, claim.queue_id).history]


def test_an_error_is_kept_whole_beside_its_short_note(queue):
    claim = running(queue)
    queue.settle([transitions.failed(claim, "ERR_PARSE", "x" * 10_000)], now=T0)
    assert "x" * 10_000 == row(queue, claim.queue_id).error_message
