"""Typed payloads, and one function over many payloads."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from penstock import Penstock
from penstock.errors import InvalidPayload, InvalidRequest
from penstock.handlers.context import Context
from penstock.queue.job import Status
from penstock.service.functions import MapProgress
from tests.handlers.conftest import Payload, takes_payload, worked_off


@dataclass
class Order:
    sacks: int
    day: date
    note: str | None = None


class Mail(msgspec.Struct, forbid_unknown_fields=True):
    to: str
    order: Order


class Letter(pydantic.BaseModel):
    to: str
    copies: int = pydantic.Field(default=1, ge=1)


class Parcel(TypedDict):
    weight: float


def on_order(payload: Order) -> str:
    return f"{payload.sacks} on {payload.day:%d.%m.} {payload.note}"


def on_mail(payload: Mail, context: Context) -> str:
    return f"{payload.to} {payload.order.sacks}"


def on_letter(payload: Letter) -> str:
    return f"{payload.to} {payload.copies}"


def on_parcel(payload: Parcel) -> float:
    return payload["weight"]


@pytest.mark.parametrize(
    ("function", "given", "result"),
    [
        (on_order, Order(3, date(2026, 3, 1)), "3 on 01.03. None"),
        (on_order, {"sacks": 3, "day": "2026-03-01", "note": "wet"}, "3 on 01.03. wet"),
        (on_mail, Mail("miller", Order(2, date(2026, 3, 1))), "miller 2"),
        (on_letter, Letter(to="miller", copies=2), "miller 2"),
        (on_letter, {"to": "miller"}, "miller 1"),
        (on_parcel, {"weight": 1.5}, 1.5),
    ],
)
def test_a_typed_payload_is_passed_as_its_type(registering: Penstock, function: Any, given: Any, result: Any):
    handle = registering.function(function)

    receipt = handle.call(given)

    assert Status.DONE is worked_off(registering, receipt).status
    assert result == registering.result(receipt.job_id)


@pytest.mark.parametrize(
    ("function", "given", "reason"),
    [
        (on_order, {"day": "2026-03-01"}, "missing required field 'sacks'"),
        (on_order, {"sacks": "3", "day": "2026-03-01"}, "field 'sacks': expected int, got str"),
        (on_order, {"sacks": 3, "day": "March"}, "field 'day'"),
        (on_order, {"sacks": 3, "day": "2026-03-01", "amount": 1}, "unknown field 'amount'"),
        (on_order, None, "missing required field 'sacks'"),
        (on_order, Letter(to="x"), "expected an object, got Letter"),
        (on_mail, {"to": "m", "order": {"day": "2026-03-01"}}, "missing required field 'order.sacks'"),
        (on_mail, {"to": "m", "order": {"sacks": 1, "day": "2026-03-01"}, "x": 1}, "unknown field 'x'"),
        (on_letter, {"to": "m", "copies": 0}, "field 'copies': Input should be greater than or equal to 1"),
        (on_letter, {}, "missing required field 'to'"),
        (on_parcel, {"weight": "heavy"}, "field 'weight': expected float, got str"),
    ],
)
def test_a_payload_of_another_shape_is_refused_at_the_call(
    registering: Penstock, function: Any, given: Any, reason: str
):
    handle = registering.function(function)

    with pytest.raises(InvalidPayload) as refusal:
        handle.call(given)
    assert f"payload of {handle.name}: {reason}" in str(refusal.value)
    with pytest.raises(InvalidPayload):
        handle.call(given, priority=3)
    assert [] == registering.jobs()


def test_a_job_older_than_the_type_fails_at_once(app: Penstock):
    app.function("order")(on_order)
    receipt = app.submit(
        item_type="function", op="run", payload={"function_name": "order", "payload": {"bags": 3}}
    )

    job = worked_off(app, receipt)

    assert (Status.FAILED, 0) == (job.status, job.retry_count)
    assert "unknown field 'bags'" in str(job.error_message)


def test_a_type_that_cannot_be_found_is_refused_unless_it_is_a_mapping(registering: Penstock):
    def hidden(payload: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    def mapping(payload: Mapping[str, Any]) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(InvalidRequest, match="the type 'Missing' of its payload cannot be found"):
        registering.function(hidden)
    registering.function(mapping).call({"any": "thing"})


def test_a_type_that_json_cannot_hold_is_refused(registering: Penstock):
    def takes(payload: Strange) -> None: ...

    with pytest.raises(InvalidRequest, match="Strange cannot be checked"):
        registering.function(takes)


@dataclass
class Strange:
    first: dict[int, str] | dict[str, datetime]


def test_pydantic_is_not_imported_for_other_payloads():
    script = (
        "import sys; from penstock import Penstock; app = Penstock('memory://')\n"
        "app.function('f')(lambda payload: 1); app.call('f', {'n': 1})\n"
        "assert 'pydantic' not in sys.modules and 'asyncio' not in sys.modules, sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# One function over many payloads.


def test_a_map_runs_one_call_for_each_payload_below_one_parent(app: Penstock):
    @app.function
    def square(payload: Payload) -> int:
        return int(payload["n"]) ** 2

    receipt = square.map([{"n": n} for n in range(12)], max_retries=1, timeout=60)
    progress = app.map_progress(receipt.job_id)
    assert (12, 0, 12, 0.0) == (progress.total, progress.done, progress.open, progress.percent)

    with app.worker_thread():
        parent = app.wait(receipt.job_id, timeout=60)
    calls = app.map_results(receipt.job_id)
    assert [n**2 for n in range(12)] == [call.result for call in calls]
    assert (Status.DONE, {"function": "square", "calls": 12}) == (parent.status, parent.result)
    assert 100.0 == app.map_progress(receipt.job_id).percent
    assert (1, 60) == (app.job(calls[0].job_id).max_retries, app.job(calls[0].job_id).timeout_s)


def test_cancelled_calls_of_a_map_are_not_done(app: Penstock):
    app.limit("stones", concurrent=1)

    @app.function(limit="stones")
    def mill(payload: Payload) -> int:
        if payload["n"] == 0:
            # The others wait for the limit.
            app.cancel(app.map_results(receipt.job_id)[3].job_id)
            seen.append(app.map_progress(receipt.job_id))
        return int(payload["n"])

    seen: list[MapProgress] = []
    receipt = app.map("mill", [{"n": n} for n in range(5)])
    assert "cancelled" == app.cancel(receipt.job_id).status
    progress = app.map_progress(receipt.job_id)
    assert (0, 5, 0, 100.0) == (progress.done, progress.cancelled, progress.open, progress.percent)

    app.retry(receipt.job_id)
    with app.worker_thread():
        app.wait(receipt.job_id, timeout=60)
    (progress,) = seen
    assert (0, 1, 4, 20.0) == (progress.done, progress.cancelled, progress.open, progress.percent)
    progress = app.map_progress(receipt.job_id)
    assert (4, 1, 0, 100.0) == (progress.done, progress.cancelled, progress.open, progress.percent)


def test_a_map_fails_with_its_calls_and_retries_only_those(app: Penstock):
    broken = {3}

    @app.function
    def mill(payload: Payload) -> int:
        if payload["n"] in broken:
            raise ValueError("stone cracked")
        return int(payload["n"])

    receipt = app.map("mill", [{"n": n} for n in range(5)], max_retries=0)
    with app.worker_thread():
        parent = app.wait(receipt.job_id, timeout=60)
        assert Status.FAILED is parent.status
        progress = app.map_progress(receipt.job_id)
        assert (4, 1, 0) == (progress.done, progress.failed, progress.open)
        assert "stone cracked" in str(app.map_results(receipt.job_id)[3].error)

        broken.clear()
        app.retry(receipt.job_id)
        assert Status.DONE is app.wait(receipt.job_id, timeout=60).status
    assert list(range(5)) == [call.result for call in app.map_results(receipt.job_id)]


def test_a_map_with_a_wrong_payload_adds_nothing(registering: Penstock):
    registering.function("order")(on_order)

    with pytest.raises(InvalidPayload, match="payload 2: payload of order: missing required field 'sacks'"):
        registering.map("order", [Order(1, date(2026, 3, 1)), {"day": "2026-03-01"}])
    with pytest.raises(InvalidRequest, match="no payloads"):
        registering.map("order", [])
    with pytest.raises(InvalidRequest, match="call has no option 'retries'"):
        registering.map("order", [Order(1, date(2026, 3, 1))], retries=3)  # type: ignore[call-arg]
    assert [] == registering.jobs()


def test_results_of_another_job_are_no_map(registering: Penstock):
    registering.function("f")(takes_payload)
    receipt = registering.call("f")

    with pytest.raises(InvalidRequest, match="was not added by map"):
        registering.map_results(receipt.job_id)
