"""Deleting rows in any state, as if they had never been."""

from __future__ import annotations

from penstock.queue import transitions
from penstock.queue.job import Held, JobQuery, Scope, Status
from penstock.queue.limits import Limit
from tests.conformance.conftest import (
    at,
    claim_all,
    claim_one,
    done,
    fail,
    many,
    new,
    put,
    retry,
    row,
    running,
)
from tests.conformance.invariants import breaches


def everything(queue):
    return queue.find(JobQuery(limit=1000))


def assert_sound(queue):
    assert [] == breaches(everything(queue))


def test_rows_of_every_state_go(queue):
    done(queue, running(queue, new("done")))
    fail(queue, running(queue, new("failed")))
    retry(queue, running(queue, new("asleep")))
    running(queue, new("holds", lock_key="a"))
    put(queue, new("parked", lock_key="a"), new("later", run_at=at(900)))
    claim_all(queue)
    queue.pause(Scope("acme", "docs"))
    put(queue, new("paused"))
    claim_all(queue)
    put(queue, new("cancelled", collection="other"), new("plain", collection="other"))
    plain = next(job for job in everything(queue) if job.idempotency_key == "plain")
    put(queue, new("waits", collection="other", after=(plain.queue_id,), dedupe=False))
    queue.put_limit(Limit(key="api", concurrent=1), now=at(1))
    put(queue, *many(2, "limited", collection="other", limit_key="api"))
    cancelled = next(job for job in everything(queue) if job.idempotency_key == "cancelled")
    queue.cancel([cancelled.queue_id], now=at(1))
    states = {(job.status, job.held) for job in everything(queue)}
    assert {(Status.PENDING, held) for held in (None, *Held)} < states

    assert 12 == queue.purge(everything(queue), now=at(2))

    assert ([], {}) == (everything(queue), queue.count(JobQuery(), by=["status"]))
    queue.resume(Scope("acme", "docs"))
    put(queue, *many(3, lock_key="a"))
    assert 1 == len(claim_all(queue, at(3)))


def test_a_purged_key_is_free_and_a_purged_id_is_unknown(queue):
    (old,) = put(queue, new("k"))
    queue.purge(everything(queue), now=at(1))

    (fresh,) = put(queue, new("k"))

    assert (old != fresh, None, fresh) == (True, queue.get(old), claim_one(queue, at(2)).queue_id)


def test_a_claim_on_a_purged_row_is_lost(queue):
    claim = running(queue)
    queue.purge(everything(queue), now=at(1))

    assert [None] == queue.settle([transitions.done(claim)], now=at(2))
    child = new("child")
    assert [None] == queue.settle([transitions.waits(claim, children=(child,))], now=at(2))
    assert [] == everything(queue)


def test_a_row_that_changed_since_it_was_read_stays(queue):
    (queue_id,) = put(queue, new())
    seen = everything(queue)
    claim_one(queue, at(1))

    assert (0, queue_id) == (queue.purge(seen, now=at(2)), row(queue, queue_id).queue_id)
    assert 0 == queue.purge([], now=at(2))


def test_the_lock_of_a_purged_row_is_passed_on(queue):
    holder = running(queue, new("holds", tenant_id="gone", lock_key="a"))
    (parked,) = put(queue, new("parked", lock_key="a"))
    assert [] == claim_all(queue)

    assert 1 == queue.purge([row(queue, holder.queue_id)], now=at(1))

    assert_sound(queue)
    assert [parked] == [claim.queue_id for claim in claim_all(queue, at(2))]


def test_a_tree_goes_in_any_order_and_a_parent_that_stays_is_counted_again(queue):
    parent = running(queue, new("parent"))
    queue.settle([transitions.waits(parent, children=(new("c1", tenant_id="gone"), new("c2")))], now=at(1))
    children = {job.idempotency_key: job for job in everything(queue) if job.parent_id is not None}
    done(queue, next(c for c in claim_all(queue, at(2)) if c.queue_id == children["c2"].queue_id), at(3))

    assert 1 == queue.purge([row(queue, children["c1"].queue_id)], now=at(4))
    queue.reconcile(now=at(5))

    assert_sound(queue)
    assert Status.DONE is row(queue, parent.queue_id).status
    assert 2 == queue.purge(sorted(everything(queue), key=lambda job: job.parent_id is not None), now=at(6))
    assert [] == everything(queue)
    assert 0 == queue.prune(dict.fromkeys((Status.DONE, Status.FAILED), at(100)))


def test_nothing_of_a_purged_row_is_there_after_the_store_was_opened_again(queue, reopen, tmp_path):
    put(
        queue,
        *many(20, payload_json='{"content":"zebrafish"}'),
        new("long", payload_json='{"content":"' + "zebrafish" * 5000 + '"}'),
    )
    put(queue, new("stays", payload_json='{"content":"walrus"}'))
    doomed = [job for job in everything(queue) if "zebrafish" in job.payload_json]

    assert 21 == queue.purge(doomed, now=at(1))
    queue.scrub()

    assert ["stays"] == [job.idempotency_key for job in everything(queue)]
    if (tmp_path / "queue").is_dir():
        files = (path for path in (tmp_path / "queue").rglob("*") if path.is_file())
        written = b"".join(path.read_bytes() for path in files)
        assert (False, True) == (b"zebrafish" in written, b"walrus" in written)
    assert ["stays"] == [job.idempotency_key for job in everything(reopen())]
