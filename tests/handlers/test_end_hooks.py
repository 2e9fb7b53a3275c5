"""Functions that follow the end of a job."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.errors import InvalidPayload, InvalidRequest, UnknownFunction
from penstock.queue.job import Status
from penstock.queue.transitions import EndedJob
from penstock.worker.upkeep import ScheduleRunner
from tests.handlers.conftest import Payload, hooks_of, run_all
from tests.servers.stores import ON_SERVERS, given_back, store_url


@pytest.fixture
def noted(app: Penstock) -> list[tuple[str, Payload]]:
    """What the two functions after others were called with."""
    calls: list[tuple[str, Payload]] = []

    @app.function
    def celebrate(event: Payload) -> None:
        calls.append(("celebrate", event))

    @app.function(max_retries=7)
    def mourn(event: Payload) -> None:
        calls.append(("mourn", event))

    @app.function(max_retries=0)
    def grind(payload: Payload) -> str:
        if payload.get("stone"):
            raise ValueError("a stone in the grain")
        return "flour"

    return calls


def test_a_function_follows_a_job_that_is_done(app: Penstock, noted: list[tuple[str, Payload]]):
    receipt = app.call("grind", {}, on_success="celebrate", on_failure="mourn")
    run_all(app)
    ((name, event),) = noted
    job = app.job(receipt.job_id)
    assert ("celebrate", receipt.job_id, "done", "flour") == (
        name,
        event["job_id"],
        event["status"],
        event["result"],
    )
    assert ("grind", 1, None) == (event["function"], event["attempt"], event["error_code"])
    assert job.finished_at is not None
    assert job.finished_at.isoformat()[:19] == event["finished_at"][:19]
    assert [Status.DONE, Status.DONE] == [hook.status for hook in hooks_of(app, receipt.job_id)]


def test_a_function_follows_a_job_that_failed(app: Penstock, noted: list[tuple[str, Payload]]):
    receipt = app.call("grind", {"stone": 1}, on_success="celebrate", on_failure="mourn")
    run_all(app)
    ((name, event),) = noted
    assert ("mourn", "failed", "ERR_UNKNOWN") == (name, event["status"], event["error_code"])
    assert "a stone in the grain" in event["error_message"]
    success, failure = hooks_of(app, receipt.job_id)
    assert (Status.CANCELLED, "ERR_DEPENDENCY_FAILED") == (success.status, success.error_code)
    assert 7 == failure.max_retries, "its own options count"


def test_hooks_of_a_function_follow_each_call(app: Penstock, noted: list[tuple[str, Payload]]):
    @app.function(on_success="celebrate", on_failure="mourn")
    def mill(payload: Payload) -> None: ...

    many = app.call_many([{"name": "mill"}, {"name": "grind"}])
    pending = mill.call({}, delay=3600)
    app.cancel(pending.job_id)
    run_all(app)
    found = {(name, event["job_id"], event["status"]) for name, event in noted}
    assert {("celebrate", many[0].job_id, "done"), ("mourn", pending.job_id, "cancelled")} == found
    assert [] == hooks_of(app, many[1].job_id)


def test_a_hook_may_be_a_handle_and_have_a_typed_event(app: Penstock):
    @app.function
    def told(end: EndedJob) -> str:
        return f"{end.job_id} is {end.status}"

    @app.function(on_success=told)
    def mill(payload: Payload) -> None: ...

    receipt = mill.call({})
    run_all(app)
    assert f"{receipt.job_id} is done" == hooks_of(app, receipt.job_id)[0].result


def test_a_call_with_the_same_key_has_its_own_hook(app: Penstock, noted: list[tuple[str, Payload]]):
    first = app.call("grind", {}, key="k")
    second = app.call("grind", {}, key="k", on_success="celebrate")
    assert (first.job_id, True) == (second.job_id, second.dedupe_hit)
    run_all(app)
    assert [first.job_id] == [event["job_id"] for _, event in noted]


def test_a_retried_job_has_its_hooks_again(app: Penstock, noted: list[tuple[str, Payload]]):
    ground = threading.Event()

    @app.function(max_retries=0, on_success="celebrate", on_failure="mourn")
    def mill(payload: Payload) -> None:
        if not ground.is_set():
            raise ValueError("no water")

    receipts = [mill.call({}), mill.call({})]
    run_all(app)
    ground.set()
    app.retry(receipts[0].job_id)
    app.retry_failed()
    run_all(app)
    expected = [("mourn", "failed")] * 2 + [("celebrate", "done")] * 2
    assert sorted(expected) == sorted((name, event["status"]) for name, event in noted)


def test_a_hook_waits_again_if_its_job_was_retried_first(registering: Penstock):
    app = registering
    app.function("told")(lambda event: event["status"])
    app.function("mill", on_failure="told")(lambda payload: None)
    receipt = app.call("mill", {}, delay=3600)
    app.cancel(receipt.job_id)
    (hook,) = hooks_of(app, receipt.job_id)
    app.queue.requeue([receipt.job_id])
    run_all(app)
    hook = app.job(hook.queue_id)
    assert ("ERR_TOO_EARLY", 0) == (hook.error_code, hook.retry_count)


def test_the_parent_of_a_map_has_hooks_and_its_calls_do_not(app: Penstock, noted: list[tuple[str, Payload]]):
    receipt = app.map("grind", [{}, {}], on_success="celebrate")
    run_all(app)
    assert [receipt.job_id] == [event["job_id"] for _, event in noted]


@pytest.mark.long
@pytest.mark.parametrize("engine", ON_SERVERS)
def test_hooks_on_a_server(engine: str, tmp_path: Path):
    with Penstock(store_url(engine, tmp_path), state_dir=tmp_path) as app:
        app.function("told")(lambda event: [event["job_id"], event["status"]])
        app.function("mill", on_success="told", on_failure="told")(lambda payload: payload.get("flour"))
        done = app.call("mill", {}, key="k")
        same = app.call("mill", {}, key="k")
        cancelled = app.call("mill", {}, delay=3600)
        app.cancel(cancelled.job_id)
        run_all(app)
        told = [hook.result for hook in hooks_of(app, done.job_id) if hook.result]
        assert (done.job_id, [[done.job_id, "done"]] * 2) == (same.job_id, told)
        assert [cancelled.job_id, "cancelled"] in [hook.result for hook in hooks_of(app, cancelled.job_id)]
    given_back(tmp_path)


def test_a_scheduled_call_has_hooks(app: Penstock, noted: list[tuple[str, Payload]]):
    app.schedules.add_call("@daily", "grind", call={"on_success": "celebrate"})
    by_hand = app.schedules.run_now("grind")
    ScheduleRunner(app.queue).run(app.queue.now() + timedelta(days=1))
    run_all(app)
    assert 2 == len({event["job_id"] for _, event in noted} | {by_hand.job_id})
    assert ["celebrate", "celebrate"] == [name for name, _ in noted]


def test_a_scheduled_call_of_an_unknown_application_has_hooks(registering: Penstock):
    registering.schedules.add_call("@daily", "grind", call={"on_failure": "mourn"})
    job = registering.schedules.run_now("grind")
    (hook,) = hooks_of(registering, job.job_id)
    assert ("mourn", 3) == (hook.payload["function_name"], hook.max_retries)


def test_a_hook_has_no_hooks(app: Penstock):
    """Else a function that follows itself would never end."""
    app.function("again", on_success="again")(lambda payload: None)
    receipt = app.call("again", {})
    assert 2 == len(run_all(app))
    assert [Status.DONE] == [hook.status for hook in hooks_of(app, receipt.job_id)]


def test_an_unknown_function_and_a_transaction_are_refused(tmp_path: Path):
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:
        app.function("mill")(lambda payload: None)
        with pytest.raises(UnknownFunction):
            app.call("mill", {}, on_success="nothing")
        with pytest.raises(InvalidRequest, match="cannot have hooks"):
            app.call("mill", {}, on_success="mill", connection=object())
        with pytest.raises(InvalidPayload, match="must not start with"):
            app.call("mill", {}, metadata={"penstock.hook": "any"})
        assert [] == app.jobs()


def test_a_job_without_hooks_is_one_plain_row(app: Penstock):
    app.function("mill")(lambda payload: None)
    receipt = app.call("mill", {})
    (job,) = app.jobs()
    assert (receipt.job_id, "{}", None, False) == (job.queue_id, job.metadata, job.after_json, job.awaited)
