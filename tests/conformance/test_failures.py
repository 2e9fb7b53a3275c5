"""Failed jobs: found by code, reason and text, and grouped by reason."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import BUCKETS, JobQuery, Status, failure_reason
from tests.conformance.conftest import T0, at, claim_all, claim_one, many, new, put, row, running

DAMAGED = failure_reason("ERR_PARSE", "damaged")


def found(queue, **filters):
    return [job.idempotency_key for job in queue.find(JobQuery(**filters))]


def fail_all(queue, message, now=T0, code="ERR_PARSE"):
    settlements = [
        transitions.failed(claim, code, message.format(number))
        for number, claim in enumerate(claim_all(queue, now))
    ]
    queue.settle(settlements, now=now)


def failures(queue):
    """Three damaged files, two pages that are missing, and a parent with a failed child."""
    put(queue, *many(3, "a"))
    fail_all(queue, "/srv/files/{}.pdf: damaged", now=at(-3601))
    put(queue, *many(2, "b", tenant_id="globex"))
    fail_all(queue, "page {} is missing", now=at(-30))
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=(new("child"),))], now=T0)
    fail_all(queue, "Connection refused", now=T0, code="ERR_NETWORK")
    return parent.queue_id


def test_only_failed_jobs_have_a_reason_and_a_retry_takes_it_away(queue):
    parent = failures(queue)

    assert None is row(queue, parent).error_reason
    (job,) = queue.find(JobQuery(error_code="ERR_NETWORK"))
    assert failure_reason("ERR_NETWORK", "Connection refused") == job.error_reason
    queue.requeue([job.queue_id], now=T0)
    assert None is row(queue, job.queue_id).error_reason
    queue.settle([transitions.done(claim_one(queue))], now=T0)
    assert None is row(queue, job.queue_id).error_reason


def test_a_follow_up_has_no_reason(queue):
    claim = running(queue, new("a"))
    put(queue, new("a"))
    queue.settle([transitions.failed(claim, "ERR_PARSE", "damaged")], now=T0)

    job = row(queue, claim.queue_id)
    assert (Status.PENDING, None) == (job.status, job.error_reason)


def test_failed_jobs_are_found_by_code_reason_and_text(queue):
    failures(queue)
    (damaged,) = {job.error_reason for job in queue.find(JobQuery(error_code="ERR_PARSE", tenant_id="acme"))}

    assert ["a0", "a1", "a2", "b0", "b1"] == found(queue, error_code="ERR_PARSE")
    assert ["a2", "a1"] == found(queue, error_reason=damaged, newest_first=True, limit=2)
    assert 3 == sum(queue.count(JobQuery(error_reason=damaged)).values())
    assert {} == queue.count(JobQuery(error_reason="ERR_PARSE-0"))
    assert ["a1"] == found(queue, text="FILES/1.PDF")
    assert ["child"] == found(queue, text="connection REFUSED", statuses=frozenset({Status.FAILED}))
    assert [] == found(queue, text="%")
    assert [] == found(queue, text="\0")


@pytest.mark.parametrize("length", [0, 20_000])
def test_text_is_found_in_payloads_short_or_long_and_in_ids(queue, length):
    payload = '{"file_path":"/srv/Straße \\"Nord\\"/A.md","x":"%s"}' % ("y" * length)
    queue_id, _ = put(queue, new("a", payload_json=payload), new("b"))

    assert ["a"] == found(queue, text="a.MD")
    assert ["a"] == found(queue, text='straße "nord"/')
    assert [] == found(queue, text="STRASSE")
    assert ["a"] == found(queue, text=queue_id.upper())
    assert {(): 1} == queue.count(JobQuery(text="/srv"))


def test_jobs_are_found_by_priority_and_then_by_id(queue):
    put(queue, new("a", priority=1), new("b", priority=9), new("c", priority=1), new("d", priority=9))
    first = queue.find(JobQuery(by_priority=True, limit=3))
    assert ["b", "d", "a"] == [job.idempotency_key for job in first]

    after = {"by_priority": True, "after": first[-1].queue_id, "after_priority": first[-1].priority}
    assert ["c"] == found(queue, **after)
    assert ["d", "b", "c", "a"] == found(queue, by_priority=True, newest_first=True)
    after = {"after": first[1].queue_id, "after_priority": 9}
    assert ["b", "c", "a"] == found(queue, by_priority=True, newest_first=True, **after)


def test_a_count_may_stop_at_a_cap(queue):
    put(queue, *many(5, item_type="content"))

    assert {(): 5} == queue.count(JobQuery(tenant_id="acme"), cap=5)
    assert 3 <= queue.count(JobQuery(tenant_id="acme"), cap=3)[()] <= 5
    assert {("content",): 5} == queue.count(JobQuery(tenant_id="acme"), by=("item_type",), cap=3)


def test_failures_are_grouped_by_reason_the_most_frequent_first(queue):
    failures(queue)

    found = queue.failures(JobQuery(), now=T0)
    assert (6, 300, True) == (found.total, found.step.total_seconds(), found.exact)
    assert [3, 2, 1] == [group.number for group in found.groups]
    damaged, missing, network = found.groups
    assert (at(-3601), at(-3601)) == (damaged.first_at, damaged.last_at)
    assert "a2" == row(queue, damaged.newest).idempotency_key
    assert (0,) * (BUCKETS - 1 - 12) + (3,) + (0,) * 12 == damaged.buckets
    assert (0,) * (BUCKETS - 1) + (2,) == missing.buckets
    assert network.reason.startswith("ERR_NETWORK-")


def test_failures_are_grouped_within_a_filter_and_up_to_a_limit(queue):
    failures(queue)

    own = queue.failures(JobQuery(tenant_id="globex"), now=T0)
    assert ([2], 2, 60) == ([group.number for group in own.groups], own.total, own.step.total_seconds())
    most = queue.failures(JobQuery(), limit=1, now=T0)
    assert ([3], 6) == ([group.number for group in most.groups], most.total)
    for nothing in (JobQuery(tenant_id="nobody"), JobQuery(text="\0")):
        none = queue.failures(nothing, now=T0)
        assert ([], 0) == (none.groups, none.total)


def test_a_failure_that_is_too_old_is_in_no_bucket(queue):
    put(queue, *many(2))
    fail_all(queue, "damaged", now=at(-400 * 86_400))

    found = queue.failures(JobQuery(error_reason=DAMAGED), now=T0)
    (group,) = found.groups
    assert (2, 0, 7) == (group.number, sum(group.buckets), found.step.days)
