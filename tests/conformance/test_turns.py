"""Turns: inside one priority the tenants are served in rotation, and nobody inherits a past."""

from penstock.queue.job import Scope
from tests.conformance.conftest import at, claim_all, claim_one, done, many, new, put, retry, running


def tenants(claims):
    return "".join(claim.tenant_id for claim in claims)


def test_a_small_tenant_does_not_wait_for_a_large_one(queue):
    put(queue, *many(100, tenant_id="A"))
    put(queue, new("b", tenant_id="B"), now=at(1))
    assert "ABAA" == tenants(claim_all(queue, at(2), limit=4))


def test_three_tenants_take_turns(queue):
    for second, tenant in enumerate("ABC"):
        put(queue, *many(3, tenant_id=tenant), now=at(second))
    assert "ABCABCABC" == tenants(claim_all(queue, at(3)))


def test_turns_hold_inside_one_batch_of_requests(queue):
    put(queue, *many(3, tenant_id="A"), *many(3, tenant_id="B"))
    assert "ABABAB" == tenants(claim_all(queue))


def test_turns_hold_over_many_single_requests(queue):
    for i in range(3):
        put(queue, new(f"a{i}", tenant_id="A"), now=at(i))
    for i in range(3):
        put(queue, new(f"b{i}", tenant_id="B"), now=at(10 + i))
    assert "ABABAB" == tenants(claim_all(queue, at(20)))


def test_each_tenant_is_served_in_the_order_of_arrival(queue):
    ids = put(queue, *many(5, tenant_id="A"))
    put(queue, *many(5, tenant_id="B"), now=at(1))
    assert ids == [claim.queue_id for claim in claim_all(queue, at(2)) if claim.tenant_id == "A"]


def test_turns_do_not_reach_over_priorities(queue):
    put(queue, *many(3, tenant_id="A", priority=6))
    put(queue, new("b", tenant_id="B", priority=5))
    assert "AAAB" == tenants(claim_all(queue))


def test_the_collections_of_one_tenant_share_its_turn(queue):
    put(queue, *many(2, "x", tenant_id="A", collection="x"))
    put(queue, *many(2, "y", tenant_id="A", collection="y"), now=at(1))
    put(queue, *many(2, tenant_id="B"), now=at(2))
    assert "ABABAA" == tenants(claim_all(queue, at(3)))


def test_a_tenant_that_was_idle_does_not_pass_those_who_wait(queue):
    put(queue, *many(10, tenant_id="A"))
    put(queue, *many(10, tenant_id="B"), now=at(1))
    claim_all(queue, at(2), limit=10)
    put(queue, *many(3, tenant_id="C"), now=at(3))
    assert "ABCABCABC" == tenants(claim_all(queue, at(4), limit=9))


def test_a_tenant_that_was_served_much_does_not_wait_for_a_newcomer(queue):
    put(queue, *many(50, tenant_id="A"))
    for claim in claim_all(queue):
        done(queue, claim)
    put(queue, *many(10, "b", tenant_id="B"), now=at(1))
    put(queue, new("again", tenant_id="A"), now=at(2))
    assert "BAB" == tenants(claim_all(queue, at(3), limit=3))


def test_one_job_at_a_time_does_not_overtake(queue):
    put(queue, *many(3, tenant_id="A"))
    served = ""
    for i in range(3):
        put(queue, new(f"b{i}", tenant_id="B"), now=at(1 + i))
        served += tenants(claim_all(queue, at(1 + i), limit=2))
    assert "ABABAB" == served


def test_a_raised_priority_gets_a_turn_of_the_new_priority(queue):
    put(queue, *many(3, tenant_id="A", priority=9))
    put(queue, *many(3, tenant_id="B", priority=5))
    put(queue, new("k2", tenant_id="B", priority=9), now=at(1))
    claims = claim_all(queue, at(2))
    assert "ABAABB" == tenants(claims)
    assert "k2" == queue.get(claims[1].queue_id).idempotency_key


def test_a_raised_priority_queues_behind_its_own_tenant(queue):
    put(queue, *many(2, "high", tenant_id="A", priority=9))
    put(queue, new("raised", tenant_id="A", priority=5))
    put(queue, new("raised", tenant_id="A", priority=9), now=at(1))
    last = claim_all(queue, at(2))[-1]
    assert "raised" == queue.get(last.queue_id).idempotency_key


def test_what_comes_back_does_not_pull_the_turns_down(queue):
    first = running(queue, new("retried", tenant_id="A"))
    put(queue, *many(4, tenant_id="A"))
    claim_all(queue, limit=2)
    retry(queue, first)
    put(queue, *many(2, tenant_id="B"), now=at(1))
    assert "AABAB" == tenants(claim_all(queue, at(5)))


def test_rows_released_from_a_pause_take_turns_with_those_who_came_meanwhile(queue):
    put(queue, *many(4, tenant_id="A"))
    queue.pause(Scope("A"), now=at(1))
    assert [] == claim_all(queue, at(1))
    put(queue, *many(4, tenant_id="B"), now=at(2))
    claim_one(queue, at(2))
    queue.resume(Scope("A"), now=at(3))
    assert "ABABABA" == tenants(claim_all(queue, at(4)))


def test_a_long_pause_does_not_hold_up_what_comes_after_it(queue):
    put(queue, *many(20, tenant_id="A"))
    queue.pause(Scope("A"), now=at(1))
    assert [] == claim_all(queue, at(1))
    queue.resume(Scope("A"), now=at(2))
    claim_all(queue, at(2), limit=20)
    put(queue, *many(2, "b", tenant_id="B"), *many(2, "a", tenant_id="A"), now=at(3))
    assert "BABA" == tenants(claim_all(queue, at(4)))
