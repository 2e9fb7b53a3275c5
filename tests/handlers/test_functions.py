"""Functions of an application, run by a worker thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import Penstock, config
from penstock.errors import (
    PermanentFailure,
)
from penstock.handlers.context import Context
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from tests.handlers.conftest import Payload, takes_payload, wait_until, worked_off

# Running.


def test_a_function_gets_its_payload_and_its_answer_is_kept(app: Penstock):
    @app.function("double")
    def double(payload: Payload) -> Payload:
        return {"doubled": payload["n"] * 2}

    receipt = app.call("double", {"n": 21})

    assert Status.DONE is worked_off(app, receipt).status
    assert {"doubled": 42} == app.result(receipt.job_id)


def test_a_call_without_a_payload_gives_an_empty_one(app: Penstock):
    app.function("echo")(lambda payload: payload)
    receipt = app.call("echo")

    worked_off(app, receipt)
    assert {} == app.result(receipt.job_id)


def test_a_function_may_take_the_context(app: Penstock):
    @app.function("who")
    def who(payload: Payload, context: Context) -> list[Any]:
        context.progress(1, 2, "half")
        return [context.job_id, context.attempt, context.payload["entity_id"]]

    receipt = app.call("who", entity=("worker", "w1"))
    worked_off(app, receipt)

    assert [receipt.job_id, 1, "w1"] == app.result(receipt.job_id)


def test_a_function_may_be_async(app: Penstock):
    @app.function("later")
    async def later(payload: Payload, context: Context) -> str:
        import asyncio

        await asyncio.sleep(0)
        return f"attempt {context.attempt}"

    receipt = app.call("later")
    worked_off(app, receipt)

    assert "attempt 1" == app.result(receipt.job_id)


def test_a_function_stops_at_a_checkpoint_after_a_cancel(app: Penstock):
    @app.function("endless")
    def endless(payload: Payload, context: Context) -> None:
        while True:
            time.sleep(0.01)
            context.checkpoint()

    receipt = app.call("endless")
    with app.worker_thread():
        wait_until(app, receipt, lambda job: job.status is Status.IN_PROGRESS)
        app.cancel(receipt.job_id)
        job = app.wait(receipt.job_id, timeout=120)
    assert Status.CANCELLED is job.status


def test_progress_of_a_running_function_can_be_read(app: Penstock):
    @app.function("slow")
    def slow(payload: Payload, context: Context) -> None:
        while True:
            context.progress(3, 10, "third page", pages=3)
            time.sleep(0.01)

    receipt = app.call("slow")
    with app.worker_thread():
        job = wait_until(app, receipt, lambda job: job.progress is not None)
        app.cancel(receipt.job_id)
    assert job.progress is not None
    assert (3, 10, 30.0, "third page") == tuple(
        job.progress[key] for key in ("current", "total", "percent", "message")
    )


def test_a_message_that_is_no_text_is_made_readable(app: Penstock):
    """A message may quote a file name that is not valid text; the job does not fail."""

    @app.function("read")
    def read(payload: Payload, context: Context) -> None:
        context.progress(1, 2, "b\udce4r\0.pdf")
        time.sleep(0.5)

    receipt = app.call("read")
    with app.worker_thread():
        job = wait_until(app, receipt, lambda job: job.progress is not None or job.ended)
        app.wait(receipt.job_id, timeout=120)
    assert job.progress is not None
    assert r"b\udce4r\x00.pdf" == job.progress["message"]


def test_calls_of_one_entity_run_in_order_also_while_one_waits_for_a_retry(app: Penstock):
    ran = []

    @app.function("step", backoff=1)
    def step(payload: Payload, context: Context) -> None:
        ran.append((payload["n"], context.attempt))
        if payload["n"] == 1 and context.attempt == 1:
            raise RuntimeError("once")

    calls = [{"name": "step", "payload": {"n": n}, "entity": ("worker", "w1")} for n in (1, 2, 3)]
    other = {"name": "step", "payload": {"n": 9}, "entity": ("worker", "w2")}
    receipts = app.call_many([*calls, other])  # type: ignore[list-item]
    with app.worker_thread():
        for receipt in receipts:
            app.wait(receipt.job_id, timeout=120)

    assert [(1, 1), (9, 1), (1, 2), (2, 1), (3, 1)] == ran


def test_a_priority_or_a_delay_asks_for_another_order_than_that_of_the_calls(app: Penstock):
    ran = []
    app.function("step")(lambda payload: ran.append(payload["n"]))
    entity = ("worker", "w1")
    later = app.call("step", {"n": "later"}, entity=entity, delay=3_600)
    first = app.call("step", {"n": "first"}, entity=entity)
    urgent = app.call("step", {"n": "urgent"}, entity=entity, priority=10)
    with app.worker_thread():
        for receipt in (first, urgent):
            app.wait(receipt.job_id, timeout=120)

    assert ["urgent", "first"] == ran
    assert Status.PENDING is app.job(later.job_id).status


# Handlers of other jobs.


def test_a_handler_of_other_jobs_is_run_by_the_same_worker(app: Penstock):
    @app.handler("content", "ingest")
    def keep(context: Context) -> str:
        return str(context.payload["content"]).upper()

    receipt = app.submit(item_type="content", op="ingest", payload={"content": "at dawn"})
    assert Status.DONE is worked_off(app, receipt).status

    assert "AT DAWN" == app.result(receipt.job_id)


def test_a_batch_handler_answers_for_each_job(app: Penstock):
    @app.handler("content", "ingest", batch=10)
    def keep(contexts: Sequence[Context]) -> list[Any]:
        return [PermanentFailure("blank") if "bad" in c.payload["content"] else "kept" for c in contexts]

    texts = ("good", "bad")
    receipts = [app.submit(item_type="content", op="ingest", payload={"content": text}) for text in texts]
    assert [Status.DONE, Status.FAILED] == [worked_off(app, receipt).status for receipt in receipts]


def test_a_stopped_worker_thread_gives_its_job_to_the_next(app: Penstock):
    app.function("f")(takes_payload)
    receipt = app.call("f")
    (claim,) = app.queue.claim(ClaimRequest("gone", lease=timedelta(seconds=1)))
    app.queue.settle([transitions.released(claim, "worker stopped")])

    assert Status.DONE is worked_off(app, receipt).status


def test_an_application_of_functions_alone_opens_no_catalog(tmp_path: Path):
    with Penstock(settings=config.load({}, url="memory://", state_dir=tmp_path)) as app:
        app.function("f")(takes_payload)

        assert Status.DONE is worked_off(app, app.call("f")).status
        assert not (tmp_path / "catalog.db").exists()

        note = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})
        assert Status.DONE is worked_off(app, note).status
        assert (tmp_path / "catalog.db").exists()
