"""Reading: one job, many, how many, and where in the line."""

import pytest

from penstock.errors import InvalidRequest, QueueFull
from penstock.queue import transitions
from penstock.queue.job import Held, JobQuery, Position, QueueLimits, Scope, Status, can_answer
from penstock.queue.protocol import COUNTABLE, POSITION_CAP
from penstock.queue.redis.queue import RedisQueue
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


def found(queue, **filters):
    return [job.idempotency_key for job in queue.find(JobQuery(**filters))]


def zoo(queue):
    """Add one job of each kind."""
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=(new("child", priority=10),))], now=T0)
    claim_one(queue, worker="w2")
    running(queue, new("locked", lock_key="doc:1", op="update"))
    put(queue, new("behind", lock_key="doc:1"))
    claim_all(queue)
    put(queue, new("later", run_at=at(60)), new("elsewhere", tenant_id="B", collection="c", branch="dev"))
    return parent.queue_id


def test_an_unknown_id_is_none(queue):
    assert None is queue.get("job_none")


def test_jobs_are_found_in_the_order_of_their_ids(queue):
    put(queue, new("b", queue_id="job_b"), new("c", queue_id="job_c"), new("a", queue_id="job_a"))
    assert ["a", "b", "c"] == found(queue)
    assert ["c", "b", "a"] == found(queue, newest_first=True)


def test_an_empty_queue_has_no_jobs(queue):
    assert [] == queue.find(JobQuery())


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"statuses": frozenset({Status.PENDING})}, ["behind", "later", "elsewhere"]),
        ({"statuses": frozenset({Status.IN_PROGRESS, Status.DONE})}, ["parent", "child", "locked"]),
        ({"waiting": True}, ["parent"]),
        ({"waiting": True, "statuses": frozenset({Status.IN_PROGRESS})}, ["parent"]),
        ({"waiting": True, "statuses": frozenset({Status.PENDING})}, []),
        ({"item_type": "folder"}, ["parent"]),
        ({"op": "update"}, ["locked"]),
        ({"tenant_id": "B"}, ["elsewhere"]),
        ({"collection": "c"}, ["elsewhere"]),
        ({"branch": "dev"}, ["elsewhere"]),
        ({"held": Held.TIME}, ["later"]),
        ({"held": Held.LOCK}, ["behind"]),
        ({"held": Held.PAUSE}, []),
        ({"worker_id": "w2"}, ["child"]),
        ({"lock_key": "doc:1"}, ["locked", "behind"]),
        ({"idempotency_key": "later"}, ["later"]),
        ({"waiting_for": "children"}, ["parent"]),
        ({"top_level": True}, ["parent", "locked", "behind", "later", "elsewhere"]),
        ({"top_level": False}, ["child"]),
        ({"tenant_id": "acme", "statuses": frozenset({Status.PENDING}), "lock_key": "doc:1"}, ["behind"]),
        ({"tenant_id": "nobody"}, []),
        ({"tenant_id": "acm%"}, []),
    ],
    # The text of a set differs between processes, and so would the names of the tests.
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_every_filter_finds_what_it_names(queue, filters, expected):
    zoo(queue)
    assert expected == found(queue, **filters)
    assert len(expected) == queue.count(JobQuery(**filters)).get((), 0)


def test_the_children_and_the_tree_of_a_job_can_be_found(queue):
    parent = zoo(queue)
    assert ["child"] == found(queue, parent_id=parent)
    assert ["parent", "child"] == found(queue, root_id=parent)


def test_ids_can_be_found_by_their_beginning(queue):
    put(
        queue, *[new(name, queue_id=name) for name in ("rag-1", "rag-12", "rag-2", "RAG-1", "rag_1", "other")]
    )
    assert ["rag-1", "rag-12"] == found(queue, prefix="rag-1")
    assert ["rag-1", "rag-12", "rag-2"] == found(queue, prefix="rag-")


@pytest.mark.parametrize("prefix", ["%", "_", "rag%", "r_g", "*", "rag?", "[r]"])
def test_a_prefix_has_no_wildcards(queue, prefix):
    put(queue, new(queue_id="rag-1"))
    assert [] == found(queue, prefix=prefix)


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_follow_each_other_both_ways(queue, newest_first):
    ids = put(queue, *many(7))
    pages, after = [], None
    while page := queue.find(JobQuery(after=after, newest_first=newest_first, limit=3)):
        pages.append([job.queue_id for job in page])
        after = page[-1].queue_id
    ids = ids[::-1] if newest_first else ids
    assert [ids[:3], ids[3:6], ids[6:]] == pages


def test_pages_of_a_filter_follow_each_other(queue):
    ids = put(queue, *[new(f"k{i}", tenant_id="AB"[i % 2]) for i in range(10)])
    page = queue.find(JobQuery(tenant_id="A", after=ids[2], limit=2))
    assert [ids[4], ids[6]] == [job.queue_id for job in page]


def test_a_page_can_start_where_no_job_is(queue):
    put(queue, *[new(name, queue_id=name) for name in ("job_a", "job_c")])
    assert ["job_c"] == found(queue, after="job_b")
    assert ["job_a"] == found(queue, after="job_b", newest_first=True)


def test_a_page_has_fifty_unless_told(queue):
    put(queue, *many(60))
    assert 50 == len(queue.find(JobQuery()))


# Counting.


def test_counts_are_grouped(queue):
    put(queue, *many(3, tenant_id="A"), *many(2, tenant_id="B", priority=9))
    claim_all(queue, limit=1)
    assert {("A",): 3, ("B",): 2} == queue.count(JobQuery(), by=["tenant_id"])
    assert {("A", Status.PENDING): 3, ("B", Status.PENDING): 1, ("B", Status.IN_PROGRESS): 1} == queue.count(
        JobQuery(), by=["tenant_id", "status"]
    )


def test_counts_heed_the_filter_and_not_the_page(queue):
    ids = put(queue, *many(10, tenant_id="A"), new("b", tenant_id="B"))
    assert {(): 10} == queue.count(JobQuery(tenant_id="A", limit=2, after=ids[5], newest_first=True))


@pytest.mark.parametrize("column", sorted(COUNTABLE))
def test_every_countable_column_counts(queue, column):
    put(queue, new())
    (group,) = queue.count(JobQuery(), by=[column])
    assert (getattr(queue.find(JobQuery())[0], column),) == group


def test_kept_counts_answer_queries_by_status_held_reason_and_item_type_alone():
    done = frozenset({Status.DONE})
    assert can_answer(JobQuery(), ("status", "held", "item_type"))
    assert can_answer(JobQuery(statuses=done, held=Held.LOCK, item_type="file", after="job_1"), ())
    assert not can_answer(JobQuery(), ("tenant_id",))
    for narrower in (JobQuery(top_level=False), JobQuery(waiting=True), JobQuery(text="a"), JobQuery(op="x")):
        assert not can_answer(narrower, ("status",))


def test_a_group_without_jobs_is_not_there(queue):
    assert {} == queue.count(JobQuery(), by=["status"])
    assert {} == queue.count(JobQuery())


def test_other_columns_are_refused(queue):
    with pytest.raises(InvalidRequest):
        queue.count(JobQuery(), by=["payload_json"])


# Position.


def test_the_next_job_has_nobody_ahead(queue):
    (queue_id,) = put(queue, new())
    assert Position(0, 1, 0) == queue.position(queue_id)


def test_the_position_is_the_number_of_claims_before_it(queue):
    put(queue, *many(3, tenant_id="A"), *many(3, tenant_id="B"), *many(2, tenant_id="C", priority=9))
    told = {job.queue_id: queue.position(job.queue_id) for job in queue.find(JobQuery())}
    assert [Position(ahead, 8, ahead) for ahead in range(8)] == [told[c.queue_id] for c in claim_all(queue)]


def test_what_is_held_is_not_ahead_but_counts_in_the_length(queue):
    put(queue, new("later", priority=9, run_at=at(60)), new("paused", priority=9, tenant_id="P"))
    queue.pause(Scope("P"), now=T0)
    assert [] == claim_all(queue)
    (queue_id,) = put(queue, new())
    assert Position(0, 3, 0) == queue.position(queue_id)


def test_a_due_retry_is_ahead(queue):
    claim = running(queue)
    queue.settle([transitions.released(claim, "shutdown")], now=T0)
    (queue_id,) = put(queue, new("other", tenant_id="B"))
    assert Position(1, 2, 1) == queue.position(queue_id)


def test_only_a_pending_job_has_a_position(queue):
    claim = running(queue)
    assert None is queue.position(claim.queue_id)
    done(queue, claim)
    assert None is queue.position(claim.queue_id)
    assert None is queue.position("job_none")


def test_positions_of_several_jobs_are_those_of_each(queue):
    claim = running(queue)
    ids = [*put(queue, *many(3), new("later", run_at=at(60))), claim.queue_id, "job_none"]
    assert [Position(ahead, 4, ahead) for ahead in range(3)] == queue.positions(ids)[:3]
    assert [queue.position(queue_id) for queue_id in ids] == queue.positions(ids)


def test_an_addition_can_tell_the_positions(queue):
    claim = running(queue, new("running"))
    ((first, position),) = queue.add_counted([new("a")])
    others = queue.add_counted([new("b"), new("c", run_at=at(60))])
    ((again, same),) = queue.add_counted([new("a")])
    ((busy, none),) = queue.add_counted([new("running")])

    assert [Position(0, 1, 0), Position(0, 3, 0)] == [position, same]
    assert [queue.position(added.queue_id) for added, _ in others] == [place for _, place in others]
    assert (first.queue_id, claim.queue_id, None) == (again.queue_id, busy.queue_id, none)
    assert (False, True, True) == (first.dedupe_hit, again.dedupe_hit, busy.dedupe_hit)


def test_a_counted_addition_meets_the_limits(queue):
    put(queue, *many(2))
    with pytest.raises(QueueFull):
        queue.add_counted([new("c")], limits=QueueLimits(indexing=2))


def test_a_position_is_exact_up_to_its_bound(queue):
    ids = put(queue, *many(POSITION_CAP + 2))
    ends = [ids[0], *ids[POSITION_CAP - 1 :]]
    assert [0, POSITION_CAP - 1, POSITION_CAP, POSITION_CAP] == [
        one.ahead for one in queue.positions(ends) if one is not None
    ]
    urgent = put(queue, new("urgent", priority=9))
    assert [Position(0, POSITION_CAP, 0)] == queue.positions(urgent)


def test_files_of_a_running_folder_and_calls_are_no_requests(queue):
    folder = running(queue, new("folder", item_type="folder"))
    queue.settle([transitions.waits(folder, children=tuple(many(20, "f", priority=8)))], now=T0)
    first, low, later = put(
        queue, new("first", priority=9), new("low", priority=1), new("later", priority=9, run_at=at(60))
    )
    (call,) = put(queue, new("call", item_type="function", op="run", priority=8))

    # Ahead of the last one are a request, the call and 20 files; the one for later waits, but not ahead.
    assert Position(0, 3, 0) == queue.position(first)
    assert Position(1, 3, 22) == queue.position(low)
    # Once its time has come, it goes first.
    assert Position(0, 3, 0) == queue.position(later)
    place = queue.position(call)
    assert (place.ahead, 24) == (place.jobs_ahead, place.length)
    ((added, counted),) = queue.add_counted([new("last", priority=0)])
    assert Position(2, 4, 23) == counted == queue.position(added.queue_id)
    claim_all(queue, limit=2)
    assert Position(0, 3, 20) == queue.position(low)


def test_requests_behind_many_files_have_their_position(queue):
    folder = running(queue, new("folder", item_type="folder"))
    files = tuple(many(POSITION_CAP + 5, "f", priority=8))
    queue.settle([transitions.waits(folder, children=files)], now=T0)
    ids = put(queue, *many(3, "request", priority=1))

    assert Position(2, 3, POSITION_CAP) == queue.position(ids[2])
    # Redis does not look through more than so many jobs, and takes all other requests for ones ahead.
    most = 2 if isinstance(queue, RedisQueue) else 1
    assert Position(most, 3, POSITION_CAP) == queue.position(ids[1])
    claim_all(queue, limit=10)
    assert Position(1, 3, POSITION_CAP - 4) == queue.position(ids[1])


def test_reading_changes_nothing(queue):
    retry(queue, running(queue))
    before = queue.find(JobQuery())
    queue.count(JobQuery(), by=["status"])
    queue.position(before[0].queue_id)
    queue.expired(now=at(1000))
    assert before == [row(queue, before[0].queue_id)]
