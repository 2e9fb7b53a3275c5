"""Circuit breakers: when they open, when they allow a probe, and the effect on jobs."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock.errors import ServiceUnavailable, StoreUnavailable
from penstock.handlers.context import Context, Registry
from penstock.queue.job import Claim, Settlement, Status
from penstock.worker.executor import (
    FIRST_PROBE_S,
    FREE_OUTAGES,
    LONGEST_PROBE_S,
    Breaker,
    BreakerOpen,
    Breakers,
    Executor,
)
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import WorkerHost, until

ENGINES = ON_FILES

DOWN = ServiceUnavailable("qdrant")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breakers(clock: Clock) -> Breakers:
    return Breakers(clock)


def claim(progress_json: str | None = None) -> Claim:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    texts = ("content", "ingest", "acme", "docs", "main")
    numbers = (5, 1, 0, 3, 0, 7200)
    nobody = ("library", None, None, None)
    return Claim("job_1", 1, *texts, *numbers, *nobody, progress_json, "{}", "{}", now, now)


def failed(breakers: Breakers, times: int) -> timedelta:
    return [breakers.delay(DOWN) for _ in range(times)][-1]


# The state machine.


def test_it_opens_at_the_third_failure_in_a_row():
    breaker = Breaker()
    states = []
    for _ in range(3):
        breaker = breaker.failed(0.0)
        states.append(breaker.state(0.0))

    assert ["closed", "closed", "open"] == states


def test_the_pause_before_a_probe_doubles_up_to_5_minutes():
    breaker, now, pauses = Breaker(failures=2), 0.0, []
    for _ in range(7):
        breaker = breaker.failed(now)
        pauses.append(breaker.wait_s(now))
        assert not breaker.allows(now + pauses[-1] - 0.1)
        now += pauses[-1]
        assert breaker.state(now) == "half-open"

    assert [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] == pauses
    assert (10.0, 300.0) == (FIRST_PROBE_S, LONGEST_PROBE_S)


def test_half_open_lets_one_probe_through():
    breaker = Breaker(failures=2).failed(0.0)

    assert breaker.allows(10.0)
    probing = breaker.entered(10.0)
    assert not probing.allows(10.1)
    # The probe was lost together with its job.
    assert probing.allows(20.0)


def test_failures_of_calls_that_began_before_it_opened_do_not_lengthen_the_pause():
    breaker = Breaker(failures=2).failed(0.0)

    assert breaker == breaker.failed(1.0).failed(2.0)


# In a process.


def test_a_call_is_refused_while_the_service_is_down(breakers: Breakers, clock: Clock):
    assert failed(breakers, 3) == timedelta(seconds=10)

    with pytest.raises(BreakerOpen), breakers.calling("qdrant"):
        pytest.fail("the service was asked")
    assert {"qdrant": "open"} == breakers.states()
    clock.now += 10
    assert {"qdrant": "half-open"} == breakers.states()


def test_a_probe_that_succeeds_closes_it_and_one_that_fails_opens_it_again(breakers: Breakers, clock: Clock):
    failed(breakers, 3)
    clock.now += 10
    with pytest.raises(ServiceUnavailable), breakers.calling("qdrant"):
        raise DOWN
    assert failed(breakers, 1) == timedelta(seconds=20)
    clock.now += 20

    with breakers.calling("qdrant"):
        pass

    assert {} == breakers.states()


def test_a_probe_that_ends_for_its_own_reason_leaves_the_question_open(breakers: Breakers, clock: Clock):
    failed(breakers, 3)
    clock.now += 10
    with suppress(ValueError), breakers.calling("qdrant"):
        raise ValueError("my own")

    assert {"qdrant": "half-open"} == breakers.states()
    with breakers.calling("qdrant"):
        pass


def test_the_same_service_can_be_asked_for_again_inside(breakers: Breakers, clock: Clock):
    failed(breakers, 3)
    clock.now += 10

    with breakers.calling("qdrant"), breakers.calling("qdrant"):
        pass

    assert {} == breakers.states()


def test_services_are_apart(breakers: Breakers):
    failed(breakers, 3)

    with breakers.calling("neo4j"):
        pass


# The effect on jobs.


def run(executor: Executor, job: Claim) -> Settlement:
    (settlement,) = executor.run(
        [job], lambda _, it: Context(it, report=lambda _: None, stop_requested=lambda: False)
    )
    return settlement


def test_a_job_that_met_an_outage_waits_unspent_and_is_not_tried_before_the_probe(
    breakers: Breakers, clock: Clock
):
    calls = []
    registry = Registry()

    def handler(context: Context) -> str:
        calls.append(context.job_id)
        if len(calls) <= 3:
            raise DOWN
        return "stored"

    registry.register("content", "ingest", handler)
    executor = Executor(registry, breakers)
    given_back = [run(executor, claim()) for _ in range(3)][-1]

    assert (Status.PENDING, 0, "ERR_SERVICE_DOWN") == (
        given_back.status,
        given_back.retry_count,
        given_back.error_code,
    )
    assert "waits for qdrant" in (given_back.error_message or "")
    assert timedelta(seconds=10) == given_back.delay
    again = claim(given_back.progress_json)
    clock.now += 4
    refused = run(executor, again)
    assert timedelta(seconds=6) == refused.delay
    assert "waits for qdrant: it was down when last asked" == refused.error_message
    assert 3 == len(calls)
    clock.now += 6
    assert Status.DONE is run(executor, again).status
    assert {} == breakers.states()


def test_what_the_handler_kept_in_its_progress_survives_an_outage(breakers: Breakers):
    registry = Registry()

    def handler(context: Context) -> None:
        raise DOWN

    registry.register("content", "ingest", handler)

    given_back = run(Executor(registry, breakers), claim('{"cursor":17}'))

    assert '{"cursor":17,"service":"qdrant"}' == given_back.progress_json


def test_the_wait_for_a_handler_grows_and_keeps_what_was_there(breakers: Breakers):
    executor = Executor(Registry(), breakers)
    job, waits = claim('{"cursor":17}'), []
    for _ in range(6):
        given_back = run(executor, job)
        waits.append(int(given_back.delay.total_seconds()))
        job = claim(given_back.progress_json)

    assert [30, 60, 120, 240, 300, 300] == waits
    assert {"cursor": 17, "no_handler": 6} == job.progress


@pytest.fixture
def without_a_store(breakers: Breakers) -> Executor:
    registry = Registry()

    def handler(context: Context) -> None:
        raise StoreUnavailable("connection refused")

    registry.register("content", "ingest", handler)
    registry.register("function", "run", handler)
    return Executor(registry, breakers)


def test_an_outage_of_the_store_in_a_handler_costs_no_retry_for_a_while(without_a_store: Executor):
    job, waits = claim('{"cursor":17}'), []
    for _ in range(FREE_OUTAGES):
        given_back = run(without_a_store, job)
        assert (Status.PENDING, 0) == (given_back.status, given_back.retry_count)
        assert "waits for the store: connection refused" == given_back.error_message
        waits.append(int(given_back.delay.total_seconds()))
        job = claim(given_back.progress_json)

    assert [1, 2, 4, 8, 16, 32, 60, 60] == waits[:8]
    assert 17 == (job.progress or {})["cursor"]
    assert 1 == run(without_a_store, job).retry_count


def test_an_outage_of_a_store_in_a_function_spends_a_retry(without_a_store: Executor):
    job = msgspec.structs.replace(claim(), item_type="function", op="run")

    assert 1 == run(without_a_store, job).retry_count


def test_a_service_that_is_due_for_a_probe_is_shown_so_without_a_job(host: WorkerHost):
    ids = host.put_many(3, "down_for_a_moment")
    host.worker()
    until(lambda: {"ERR_SERVICE_DOWN"} == {host.job(job_id).error_code for job_id in ids})
    host.queue.cancel(ids)

    until(lambda: host.info("services") == [{"qdrant": "half-open"}])


def test_an_outage_is_shown_and_its_jobs_go_on_when_it_is_over(host: WorkerHost):
    there = host.place / "there"
    job_id = host.put("up_when_there", payload={"there": str(there)}, max_retries=0)
    host.worker()

    until(lambda: host.job(job_id).error_code == "ERR_SERVICE_DOWN")
    until(lambda: any(services for services in host.info("services")))
    there.touch()

    job = host.ended(job_id)
    assert (Status.DONE, "stored", 0) == (job.status, job.result, job.retry_count)
    assert {"released"} == {event.what for event in job.history}
    until(lambda: host.info("services") == [{}])
