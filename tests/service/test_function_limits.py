"""Limits of pending calls of a function, and results with a time to live."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock
from penstock.errors import InvalidRequest, NoResult, QueueFull, ResultExpired
from penstock.queue.job import ClaimRequest, JobQuery
from penstock.queue.protocol import Queue


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    with Penstock(f"sqlite:///{tmp_path / 'queue.db'}") as made:
        yield made


def later(queue: Queue, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    moment = queue.now() + timedelta(seconds=seconds)
    monkeypatch.setattr(type(queue), "now", lambda self: moment)


def test_a_full_function_refuses_calls_of_every_kind(app: Penstock):
    mail = app.function("mail", queue_limit=2)(lambda payload: None)
    app.function("other")(lambda payload: None)
    mail.call({})
    with pytest.raises(QueueFull, match="calls of mail") as refused:
        mail.call_many([{}, {}])
    assert (1, "mail") == (refused.value.pending, refused.value.function)
    assert "queue_limit of mail" in (refused.value.remedy or "")
    app.call("mail", {}, delay=60)
    for call in (
        lambda: mail.call({}),
        lambda: app.call("mail", {}, priority=9),
        lambda: app.call_many([{"name": "other"}, {"name": "mail"}]),
        lambda: app.submit(item_type="function", op="run", payload={"function_name": "mail"}),
    ):
        with pytest.raises(QueueFull):
            call()
    assert 2 == len(app.jobs(limit=10))
    app.call("other")
    app.queue.claim(ClaimRequest("w1"))
    mail.call({})


def test_a_map_has_no_limit_of_pending_calls(app: Penstock):
    mail = app.function("mail", queue_limit=1)(lambda payload: None)
    batch = mail.map([{}, {}, {}])
    with app.worker_thread():
        app.wait(batch.job_id, timeout=60)
    assert 3 == app.map_progress(batch.job_id).done


def test_a_result_is_kept_for_its_time(app: Penstock, monkeypatch: pytest.MonkeyPatch):
    app.function("grind", result_ttl=60)(lambda payload: 3)
    short, long = app.call("grind").job_id, app.call("grind", result_ttl=3600).job_id
    with app.worker_thread():
        app.wait(short, timeout=60)
        app.wait(long, timeout=60)
    assert (3, 3) == (app.result(short), app.result(long))
    later(app.queue, monkeypatch, 61)
    with pytest.raises(ResultExpired, match="kept for 60 s"):
        app.result(short)
    assert (None, 3) == (app.job(short).result, app.job(long).result)
    assert ["3"] == [job.result_json for job in app.queue.find(JobQuery(prefix=short))]
    assert 1 == app.queue.expire_results()
    assert [None] == [job.result_json for job in app.queue.find(JobQuery(prefix=short))]
    with pytest.raises(NoResult):
        app.result(short)


@pytest.mark.parametrize("payloads", [None, 5, [], "abc", [1], [None, 2]])
def test_a_map_over_something_else_is_refused(app: Penstock, payloads: Any):
    app.function("f")(lambda payload: None)
    with pytest.raises(InvalidRequest):
        app.map("f", payloads)
    assert [] == app.jobs(limit=1)


def test_the_calls_of_a_map_have_the_time_of_the_function(app: Penstock):
    app.function("grind", result_ttl=60)(lambda payload: 3)
    batch = app.map("grind", [{}])
    with app.worker_thread():
        app.wait(batch.job_id, timeout=60)
    (call,) = app.map_results(batch.job_id)
    assert 60 == app.job(call.job_id).result_ttl_s


@pytest.mark.parametrize(
    "options",
    [
        {"queue_limit": 0},
        {"queue_limit": -1},
        {"queue_limit": True},
        {"queue_limit": "10"},
        {"queue_limit": 10**9},
        {"result_ttl": 0},
        {"result_ttl": -5},
        {"result_ttl": 1.5},
        {"result_ttl": 10**12},
        {"result_ttl": "1h"},
    ],
)
def test_wrong_limits_of_a_function_are_refused(app: Penstock, options: dict[str, Any]):
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        app.function("f", **options)(lambda payload: None)
    app.function("g")(lambda payload: None)
    if "result_ttl" in options:
        with pytest.raises(InvalidRequest, match="result_ttl"):
            app.call("g", **options)
    assert [] == app.jobs(limit=1)


def test_functions_are_listed_with_their_limits(app: Penstock):
    app.function("f", queue_limit=5, result_ttl=9, limit="mill")(lambda payload: None)
    (found,) = app.known().functions
    assert {"queue_limit": 5, "result_ttl_s": 9, "limit": "mill"}.items() <= msgspec.structs.asdict(
        found
    ).items()
