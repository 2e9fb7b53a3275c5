"""An application's functions: how they are registered, checked and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, Receipt, clock, config, lifecycle
from penstock.errors import (
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    PermanentFailure,
    UnknownEntity,
    UnknownFunction,
)
from penstock.handlers.context import Context
from penstock.job import ClaimRequest, Held, Job, Status
from penstock.retry import Backoff
from penstock.worker.breaker import Breakers
from penstock.worker.execute import RESULT_LIMIT, Executor

Payload = dict[str, Any]


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/queue.db", "jsonl": f"jsonl://{tmp_path}"}
    with Penstock(settings=config.load({}, url=urls[request.param], state_dir=tmp_path)) as opened:
        yield opened


@pytest.fixture
def registering() -> Penstock:
    """For what is decided before any engine is asked."""
    return Penstock(settings=config.load({}, url="memory://"))


def wait_until(app: Penstock, receipt: Receipt, reached: Callable[[Job], bool]) -> Job:
    deadline = time.monotonic() + 20
    while not reached(job := app.job(receipt.job_id)):
        assert time.monotonic() < deadline, job
        time.sleep(0.005)
    return job


def worked_off(app: Penstock, receipt: Receipt) -> Job:
    """The job after one attempt at it, whatever came of it."""
    with app.worker_thread():
        return wait_until(app, receipt, lambda job: job.ended or job.held is Held.TIME)


def waits(job: Job) -> float:
    assert job.run_at is not None
    return (job.run_at - job.updated_at).total_seconds()


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


def test_a_function_that_raises_is_tried_again_after_a_second(app: Penstock):
    @app.function("flaky")
    def flaky(payload: Payload) -> None:
        raise RuntimeError("no route")

    job = worked_off(app, app.call("flaky"))

    assert (Status.PENDING, 1, "RuntimeError: no route") == (job.status, job.retry_count, job.error_message)
    assert 0.9 <= waits(job) <= 1.1


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [(7, 7), ([20, 90], 20), (Backoff((60,), cap=60), 60)],
    ids=["base", "steps", "value"],
)
def test_a_function_may_have_a_back_off_of_its_own(registering: Penstock, backoff: Any, seconds: int):
    registering.function("flaky", backoff=backoff)(lambda payload: 1 / 0)

    job = worked_off(registering, registering.call("flaky"))

    assert 0.9 * seconds <= waits(job) <= 1.1 * seconds


def test_a_failure_is_logged_with_the_place_where_it_was_raised(
    registering: Penstock, caplog: pytest.LogCaptureFixture
):
    @registering.function("flaky", max_retries=1, backoff=0)
    def flaky(payload: Payload) -> None:
        raise RuntimeError("on line one")

    receipt = registering.call("flaky")
    with registering.worker_thread():
        registering.wait(receipt.job_id, timeout=20)

    job = f"job {receipt.job_id} (function flaky) failed in attempt"
    assert [
        f"{job} 1 of 2 and is tried again at once: RuntimeError: on line one",
        f"{job} 2 of 2 and ends as failed: RuntimeError: on line one",
    ] == caplog.messages
    assert 2 == caplog.text.count("in flaky")


def test_a_cancel_is_no_failure_in_the_log(registering: Penstock, caplog: pytest.LogCaptureFixture):
    @registering.function("polite")
    def polite(payload: Payload, context: Context) -> None:
        while True:
            context.checkpoint()
            time.sleep(0.01)

    receipt = registering.call("polite")
    with registering.worker_thread():
        wait_until(registering, receipt, lambda job: job.status is Status.IN_PROGRESS)
        registering.cancel(receipt.job_id)
        registering.wait(receipt.job_id, timeout=20)

    assert [] == caplog.messages


def test_the_last_failure_is_final(app: Penstock):
    attempts: list[int] = []

    @app.function("flaky", backoff=0, max_retries=1)
    def flaky(payload: Payload, context: Context) -> float:
        attempts.append(context.attempt)
        return 1 / 0

    receipt = app.call("flaky")

    with app.worker_thread():
        job = app.wait(receipt.job_id, timeout=20)
    assert (Status.FAILED, 1, [1, 2]) == (job.status, job.retry_count, attempts)
    assert "ZeroDivisionError: division by zero" == job.error_message


def test_a_permanent_failure_is_not_tried_again(app: Penstock):
    @app.function("hopeless")
    def hopeless(payload: Payload) -> None:
        raise PermanentFailure("no such customer", code="ERR_NO_CUSTOMER")

    job = worked_off(app, app.call("hopeless"))

    assert (Status.FAILED, 0, "ERR_NO_CUSTOMER") == (job.status, job.retry_count, job.error_code)


def test_required_fields_are_checked_again_at_the_run(app: Penstock, tmp_path: Path):
    newer = Penstock(settings=app.settings)
    if app.settings.url == "memory://":
        newer.queue = app.queue
    app.function("mail")(lambda payload: None)
    newer.function("mail", requires=["to"])(lambda payload: payload["to"])
    job = worked_off(newer, app.call("mail"))

    assert (Status.FAILED, 0, "ERR_INVALID_PAYLOAD") == (job.status, job.retry_count, job.error_code)
    assert "missing required field 'to'" in (job.error_message or "")


def test_a_function_this_worker_does_not_have_is_given_back_unspent(app: Penstock):
    app.function("known")(lambda payload: None)
    receipt = app.submit(item_type="function", op="run", payload={"function_name": "elsewhere"})
    job = worked_off(app, receipt)

    assert (Status.PENDING, 0, "ERR_NO_HANDLER") == (job.status, job.retry_count, job.error_code)
    assert "no function 'elsewhere' here (this worker runs known)" == job.error_message
    assert 30 == waits(job)
    assert "ERR_NO_HANDLER" in (app.details(receipt.job_id).reason or "")


def test_each_time_it_is_given_back_for_longer_but_not_for_ever(registering: Penstock):
    app = registering
    receipt = app.submit(item_type="function", op="run", payload={"function_name": "elsewhere"})
    executor, now, waited = Executor(app.handlers(), Breakers()), clock.now(), []
    for _ in range(6):
        claims = app.queue.claim(ClaimRequest("w1"), now=now)
        app.queue.settle(executor.run(claims, _contexts), now=now)
        run_at = app.job(receipt.job_id).run_at
        assert run_at is not None
        waited.append((run_at - now).total_seconds())
        now = run_at

    assert [30, 60, 120, 240, 300, 300] == waited


def _contexts(_: int, claim: Any) -> Context:
    return Context(claim, tell=lambda text: None, asked_to_stop=lambda: False)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "cannot be kept as JSON"),
        ({(1, 2): 3}, "cannot be kept as JSON"),
        ("x" * RESULT_LIMIT, "the limit is"),
        ({"mean": [1.0, float("nan")]}, "result.mean[1]: nan is not a JSON number"),
        (float("inf"), "result: inf is not a JSON number"),
        ({"raw": b"abc"}, "result.raw: bytes is not a JSON value"),
        ({1, 2}, "result: set is not a JSON value"),
        ({"by": {1: "one"}}, "result.by: keys must be strings, got 1"),
        (timedelta(1), "result: timedelta is not a JSON value"),
        ("a\0b", "result holds a NUL character"),
    ],
    ids=["object", "odd key", "too large", "nan", "inf", "bytes", "set", "key", "timedelta", "NUL"],
)
def test_a_result_that_cannot_be_kept_fails_the_job_with_a_reason(
    registering: Penstock, result: Any, reason: str
):
    registering.function("odd")(lambda payload: result)
    job = worked_off(registering, registering.call("odd"))

    assert Status.FAILED is job.status
    assert reason in (job.error_message or "")


@pytest.mark.parametrize(
    "result", [0, False, "ä", 1.5, [], {}, {"a": [1, None, {"b": "c"}]}, (1, 2)], ids=repr
)
def test_a_result_comes_back_as_it_was_returned(registering: Penstock, result: Any):
    registering.function("plain")(lambda payload: result)
    receipt = registering.call("plain")
    worked_off(registering, receipt)

    assert registering.result(receipt.job_id) == (list(result) if isinstance(result, tuple) else result)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_function_that_wants_to_leave_only_fails(registering: Penstock, error: BaseException):
    @registering.function("leave", max_retries=0)
    def leave(payload: Payload) -> None:
        raise error

    job = worked_off(registering, registering.call("leave"))

    assert Status.FAILED is job.status


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
        job = app.wait(receipt.job_id, timeout=20)
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
    """It quotes the name of a file, for one; that fails no job."""

    @app.function("read")
    def read(payload: Payload, context: Context) -> None:
        context.progress(1, 2, "b\udce4r\0.pdf")
        time.sleep(0.5)

    receipt = app.call("read")
    with app.worker_thread():
        job = wait_until(app, receipt, lambda job: job.progress is not None or job.ended)
        app.wait(receipt.job_id, timeout=20)
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
            app.wait(receipt.job_id, timeout=20)

    assert [(1, 1), (9, 1), (1, 2), (2, 1), (3, 1)] == ran


def test_a_priority_or_a_delay_asks_for_another_order_than_that_of_the_calls(app: Penstock):
    ran = []
    app.function("step")(lambda payload: ran.append(payload["n"]))
    entity = ("worker", "w1")
    later = app.call("step", {"n": "later"}, entity=entity, delay=1)
    first = app.call("step", {"n": "first"}, entity=entity)
    urgent = app.call("step", {"n": "urgent"}, entity=entity, priority=10)
    with app.worker_thread():
        for receipt in (later, first, urgent):
            app.wait(receipt.job_id, timeout=20)

    assert ["urgent", "first", "later"] == ran


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


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (("function", "run"), {}, "function/run has a handler already"),
        (("pamphlet", "ingest"), {}, "pamphlet"),
        (("content", "ingest"), {"batch": 101}, "a batch has 1 to 100 jobs"),
        (("content", "ingest"), {"batch": "many"}, "a batch has 1 to 100 jobs"),
    ],
)
def test_a_handler_that_makes_no_sense_is_refused(
    registering: Penstock, kind: tuple[str, str], options: Any, reason: str
):
    with pytest.raises(InvalidRequest, match=reason):
        registering.handler(*kind, **options)(lambda context: None)


# Registering.


def takes_payload(payload: Payload) -> str:
    return "payload"


def takes_both(payload: Payload, context: Context) -> str:
    return type(context).__name__


def takes_an_option(payload: Payload, verbose: bool = False) -> str:
    return f"verbose {verbose}"


def takes_an_optional_context(payload: Payload, context: Context | None = None) -> str:
    return type(context).__name__


def takes_anything(*arguments: Any) -> str:
    return f"{len(arguments)} arguments"


class Callable1:
    def __call__(self, payload: Payload, context: Context) -> str:
        return type(context).__name__


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (takes_payload, "payload"),
        (takes_both, "Context"),
        (takes_an_option, "verbose False"),
        (takes_an_optional_context, "Context"),
        (takes_anything, "1 arguments"),
        (Callable1(), "Context"),
        (partial(takes_an_option, verbose=True), "verbose True"),
        (dict, {}),
    ],
    ids=["payload", "both", "option", "optional context", "anything", "object", "partial", "dict"],
)
def test_the_signature_says_how_a_function_is_called(registering: Penstock, function: Any, answer: Any):
    registering.function("f")(function)
    receipt = registering.call("f")
    worked_off(registering, receipt)

    assert answer == registering.result(receipt.job_id)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, lambda payload, *, must: None, "text", None],
    ids=["no parameter", "three", "keyword only", "text", "none"],
)
def test_what_cannot_be_called_with_a_payload_is_refused(registering: Penstock, function: Any):
    with pytest.raises(InvalidRequest):
        registering.function("f")(function)
    assert [] == registering.functions.names()


@pytest.mark.parametrize("name", ["", " f", "f\n", "x" * 256, "\0"], ids=repr)
def test_a_name_that_cannot_be_shown_is_refused(registering: Penstock, name: str):
    with pytest.raises(InvalidName):
        registering.function(name)(takes_payload)


def test_the_decorator_without_a_name_says_what_is_missing(registering: Penstock):
    with pytest.raises(InvalidRequest) as refusal:
        registering.function(takes_payload)  # type: ignore[arg-type]
    assert '@app.function("name")' in refusal.value.remedy


def test_two_functions_cannot_have_one_name(registering: Penstock):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidRequest, match="registered already"):
        registering.function("f")(takes_both)


def test_the_decorator_leaves_the_function_as_it_is(registering: Penstock):
    assert takes_payload is registering.function("f")(takes_payload)


@pytest.mark.parametrize(
    "terms",
    [
        {"requires": "to"},
        {"requires": [1]},
        {"requires": 3},
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1001},
        {"timeout": 0},
        {"timeout": 1.5},
        {"timeout": "60"},
        {"backoff": -1},
        {"backoff": []},
        {"backoff": [1, "2"]},
        {"backoff": "5"},
        {"backoff": 1.5},
        {"backoff": Backoff(())},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_refused(registering: Penstock, terms: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        registering.function("f", **terms)(takes_payload)
    assert [] == registering.functions.names()


def test_an_unknown_function_is_refused_with_those_there_are(registering: Penstock):
    with pytest.raises(UnknownFunction, match="known are none"):
        registering.call("f")
    registering.function("send_mail")(takes_payload)
    with pytest.raises(UnknownFunction, match="did you mean 'send_mail'"):
        registering.call("send_mial")
    for garbage in (None, 7, ["send_mail"], "", "\0\ud800"):
        with pytest.raises(UnknownFunction):
            registering.call(garbage)  # type: ignore[arg-type]
    assert [] == registering.jobs()


# Entities.


def test_any_entity_type_may_be_named_until_one_is_registered(registering: Penstock):
    registering.function("f")(takes_payload)
    registering.call("f", entity=("anything", "a1"))
    registering.entity_type("planner", exists={"p1"}.__contains__)
    registering.entity_type("worker")

    registering.call("f", entity=("planner", "p1"))
    registering.call("f", entity=("worker", "never seen"))
    registering.call("f")
    with pytest.raises(UnknownEntity, match="known are planner, worker"):
        registering.call("f", entity=("anything", "a1"))
    with pytest.raises(UnknownEntity, match="there is no planner 'p2'"):
        registering.call("f", entity=("planner", "p2"))
    assert 4 == len(registering.jobs())


@pytest.mark.parametrize(
    "entity",
    [
        ("worker",),
        ("worker", "w1", "x"),
        "w1",
        ("worker", ""),
        ("", "w1"),
        ("worker", 7),
        {"worker": "w1"},
        7,
    ],
    ids=str,
)
def test_an_entity_that_is_no_pair_of_texts_is_refused(registering: Penstock, entity: Any):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidRequest, match="entity: expected a type and an id"):
        registering.call("f", entity=entity)


@pytest.mark.parametrize("entity", [("a:b", "w1"), ("x" * 256, "w1"), ("worker", "x" * 256)])
def test_an_entity_with_a_name_that_does_not_fit_is_refused(registering: Penstock, entity: Any):
    registering.function("f")(takes_payload)

    with pytest.raises(InvalidPayload):
        registering.call("f", entity=entity)


def test_a_stopped_worker_thread_gives_its_job_to_the_next(app: Penstock):
    app.function("f")(takes_payload)
    receipt = app.call("f")
    (claim,) = app.queue.claim(ClaimRequest("gone", lease=timedelta(seconds=1)))
    app.queue.settle([lifecycle.released(claim, "worker stopped")])

    assert Status.DONE is worked_off(app, receipt).status
