"""All rows of a store: read as they were at one moment, and put into an emptied store."""

import contextlib

import pytest

from penstock.backup.backups import restored
from penstock.errors import RestoreUnfinished
from penstock.queue.engine import DUMPED_AT_ONCE
from penstock.queue.job import JobQuery, Scope, Status, WorkerReport
from penstock.queue.redis.queue import RedisQueue
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, many, new, put, running
from tests.conformance.test_restore import filled

ALL = JobQuery(limit=10_000)


def dumped(queue):
    with queue.dump() as pages:
        return [job for page in pages for job in page]


def test_a_dump_is_all_rows_by_id(queue):
    queue.restore(filled().find(ALL))
    assert queue.find(ALL) == dumped(queue)


def test_a_dump_goes_on_after_a_full_batch(queue):
    put(queue, *many(DUMPED_AT_ONCE + 1, "many"), now=T0)
    assert DUMPED_AT_ONCE + 1 == len({job.queue_id for job in dumped(queue)})


def test_a_dump_shows_one_moment_while_others_write(queue):
    put(queue, *many(3, "before"), now=T0)
    with queue.dump() as pages:
        claim = claim_one(queue, at(1))
        put(queue, new("after"), now=at(2))
        done(queue, claim, at(3))
        found = [job for page in pages for job in page]
    if not isinstance(queue, RedisQueue):
        assert [Status.PENDING] * 3 == [job.status for job in found]
    assert {"before0", "before1", "before2"} <= {name_of(job) for job in found}


def name_of(job):
    return job.idempotency_key.rpartition(":")[2]


def test_a_store_being_restored_is_empty_and_cannot_be_opened(opened, queue):
    queue.restore(filled().find(ALL))
    queue.pause(Scope("a", "b"))
    queue.report(WorkerReport(worker_id="w", host="h", pid=1, started_at=T0), now=T0)
    queue.begin_restore()
    assert ([], frozenset(), []) == (queue.find(ALL), queue.paused(), queue.workers())
    assert {} == queue.tally().counts
    if type(queue).__name__ != "MemoryQueue":
        assert queue.restore_unfinished()
        with pytest.raises(RestoreUnfinished) as refused:
            opened()
        assert "penstock restore" in refused.value.remedy
    queue.restore(filled().find(ALL))
    queue.end_restore()
    assert not queue.restore_unfinished()
    assert len(filled().find(ALL)) == len(opened().find(ALL))


def test_an_open_store_sees_that_it_was_replaced(opened, queue):
    other = opened()
    put(other, *many(3, "old"), now=T0)
    queue.begin_restore()
    put(queue, new("new"), now=T0)
    queue.end_restore()
    assert 1 == len(other.find(ALL))
    assert 1 == len(claim_all(other, at(1)))


def test_restored_jobs_run_again_and_old_claims_are_lost(queue):
    old = running(queue, new("running", lock_key="one"), T0)
    put(queue, new("parked", lock_key="one"), now=T0)
    claim_all(queue, T0)
    jobs = [restored(job, at(1)) for job in dumped(queue)]
    queue.begin_restore()
    assert [None, None] == queue.restore(jobs)
    queue.end_restore()
    (again,) = claim_all(queue, at(2))
    assert (old.queue_id, True) == (again.queue_id, again.claim_number > old.claim_number + 1)
    with contextlib.suppress(AssertionError):
        done(queue, old, at(3))
    assert Status.IN_PROGRESS == queue.get(old.queue_id).status
    done(queue, again, at(4))
    assert 1 == len(claim_all(queue, at(5)))
