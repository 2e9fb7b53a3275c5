"""Functions with their own name, methods that queue calls, async functions and middleware."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock import Penstock, config
from penstock.errors import InvalidName, InvalidRequest
from penstock.handlers.context import Context
from penstock.queue.job import Status
from penstock.queue.retry import Backoff
from tests.handlers.conftest import Payload, takes_payload, wait_until, waits, worked_off

# Names and handles.


def test_a_function_is_registered_under_its_own_name(registering: Penstock):
    handle = registering.function(takes_payload)

    assert ["takes_payload"] == registering.functions.names()
    assert "payload" == handle({}), "still callable as before"
    assert takes_payload.__doc__ == handle.__doc__
    assert "takes_payload" == handle.name == handle.__name__  # type: ignore[attr-defined]


def test_options_may_come_without_a_name(registering: Penstock):
    @registering.function(max_retries=7, priority=9)
    def grind(payload: Payload) -> None: ...

    job = registering.job(grind.call({}).job_id)
    assert (7, 9) == (job.max_retries, job.priority)
    assert 2 == registering.job(grind.call({}, priority=2).job_id).priority, "the call's own counts first"


def test_a_function_without_a_name_needs_one(registering: Penstock):
    with pytest.raises(InvalidRequest, match="has no name"):
        registering.function(lambda payload: payload)
    with pytest.raises(InvalidName, match=r"must not start with 'penstock\.'"):
        registering.function("penstock.map")(takes_payload)


def test_a_handle_queues_one_call_or_many(app: Penstock):
    @app.function
    def double(payload: Payload) -> int:
        return int(payload["n"]) * 2

    one = double.call({"n": 1}, entity=("mill", "m1"))
    many = double.call_many([{"n": n} for n in range(2, 5)], max_retries=0)

    with app.worker_thread():
        ended = [app.wait(receipt.job_id, timeout=60) for receipt in (one, *many)]
    assert [2, 4, 6, 8] == [job.result for job in ended]
    assert ["m1", 3] == [ended[0].payload["entity_id"], ended[0].max_retries]
    assert 0 == ended[1].max_retries


module_app = Penstock(settings=config.load({}, url="memory://"))


@module_app.function("pickled")
def pickled(payload: Payload) -> str:
    return "unpickled"


def test_a_handle_is_pickled_by_its_name():
    assert pickled is pickle.loads(pickle.dumps(pickled))  # noqa: S301 - its own bytes


# Async functions.


def test_async_functions_share_the_loop_of_their_worker(app: Penstock):
    loops = []

    @app.function
    async def note_loop(payload: Payload) -> None:
        loops.append(asyncio.get_running_loop())

    receipts = note_loop.call_many([{}, {}])
    with app.worker_thread():
        for receipt in receipts:
            app.wait(receipt.job_id, timeout=60)
    assert loops[0] is loops[1]


def test_a_cancel_reaches_an_async_function_while_it_awaits(registering: Penstock):
    seen = []

    @registering.function
    async def sleep(payload: Payload) -> None:
        seen.append("started")
        try:
            await asyncio.sleep(600)
        finally:
            seen.append("cleaned up")

    receipt = sleep.call()
    with registering.worker_thread():
        wait_until(registering, receipt, lambda job: bool(seen))
        registering.cancel(receipt.job_id)
        job = registering.wait(receipt.job_id, timeout=60)
    assert (Status.CANCELLED, "Cancelled by user") == (job.status, job.error_message)
    assert ["started", "cleaned up"] == seen


def test_a_task_left_behind_ends_with_its_job(registering: Penstock):
    ended = []

    async def forever() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    @registering.function
    async def leave(payload: Payload) -> None:
        leave.task = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    assert Status.DONE is worked_off(registering, leave.call()).status
    assert [True] == ended


def stop_loop() -> None:
    asyncio.get_running_loop().stop()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [sys.exit, interrupt, stop_loop])
def test_an_async_function_that_stops_the_loop_harms_no_other(app: Penstock, stop: Callable[[], None]):
    @app.function(max_retries=0)
    async def stop_in_task(payload: Payload) -> None:
        async def stops() -> None:
            stop()

        await asyncio.gather(stops(), asyncio.sleep(600))

    @app.function(max_retries=0)
    async def work(payload: Payload) -> str:
        await asyncio.sleep(0)
        return "done"

    receipts = [stop_in_task.call(), work.call(), work.call()]
    with app.worker_thread():
        jobs = [app.wait(receipt.job_id, timeout=60) for receipt in receipts]
    assert [Status.FAILED, Status.DONE, Status.DONE] == [job.status for job in jobs]


LEFT_OPEN = """
import asyncio
from penstock import Penstock

app = Penstock("memory://")

@app.function
async def work(payload):
    return await asyncio.to_thread(lambda: 5)

worker = app.worker_thread()
worker.__enter__()
print(app.wait(work.call({}).job_id, timeout=60).result)
"""


def test_a_process_ends_although_its_worker_thread_is_open():
    told = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60)

    assert (0, "5\n", "") == (told.returncode, told.stdout, told.stderr)


def test_a_loop_ends_with_its_thread_although_an_error_is_kept(registering: Penstock):
    kept: list[object] = []

    @registering.function(max_retries=0)
    async def fail(payload: Payload) -> None:
        kept.extend([asyncio.get_running_loop(), error := ValueError("kept")])
        raise error

    with registering.worker_thread():
        assert Status.FAILED is registering.wait(fail.call().job_id, timeout=60).status
    loop = kept[0]
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert loop.is_closed()


# Back-off in parts of a second.


@pytest.mark.parametrize(
    ("steps", "expected"),
    [((0.1,), [0.1, 0.125, 0.25, 0.5]), ((0.25, 1.5), [0.25, 1.5, 2, 4]), ((0,), [0, 1, 2, 4])],
)
def test_delays_may_be_parts_of_a_second(steps: tuple[float, ...], expected: list[float]):
    assert expected == [Backoff(steps).seconds(number) for number in (1, 2, 3, 4)]


def test_a_function_is_retried_after_a_part_of_a_second(app: Penstock):
    @app.function(backoff=0.2)
    def fail(payload: Payload) -> None:
        raise OSError("down")

    assert 0.2 == pytest.approx(waits(worked_off(app, fail.call())), rel=0.15)


# Middleware.

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


def test_middleware_surrounds_a_run_in_the_order_of_registration(registering: Penstock):
    seen: list[str] = []

    @registering.middleware
    def outer(context: Context) -> Iterator[None]:
        seen.append(f"before {context.payload['function_name']} attempt {context.attempt}")
        yield
        seen.append("after")

    @registering.middleware
    def inner(context: Context) -> Iterator[None]:
        request_id.set(context.job_id)
        yield

    @registering.function
    async def work(payload: Payload) -> str:
        seen.append("run")
        return request_id.get()

    receipt = work.call()
    worked_off(registering, receipt)
    assert ["before work attempt 1", "run", "after"] == seen
    assert receipt.job_id == registering.result(receipt.job_id)
    assert "none" == request_id.get(), "values end with the job"


def test_middleware_sees_a_failure_and_cannot_hide_it(registering: Penstock):
    seen = []

    @registering.middleware
    def swallow(context: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))

    @registering.function(max_retries=0)
    def fail(payload: Payload) -> None:
        raise ValueError("wet flour")

    job = worked_off(registering, fail.call())
    assert (Status.FAILED, ["wet flour"]) == (job.status, seen)
    assert "wet flour" in str(job.error_message)


def test_middleware_that_cannot_surround_is_refused(registering: Penstock):
    async def later(context: Context) -> None: ...

    for wrong in (later, 3):
        with pytest.raises(InvalidRequest, match="middleware"):
            registering.middleware(wrong)  # type: ignore[type-var]
