"""Calls of functions: one, many, in a transaction, and their results."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock, clock, config
from penstock.errors import (
    AppNotFound,
    InvalidName,
    InvalidPayload,
    InvalidPriority,
    InvalidRequest,
    InvalidSetting,
    InvalidTime,
    JobNotFound,
    NoResult,
    PayloadTooLarge,
    QueueFull,
    UnknownFunction,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held
from penstock.queue.retry import Classification
from tests.servers.stores import DURABLE, given_back, store_url

BROKEN = Classification("permanent", "ERR_PARSE")


@pytest.fixture(params=["memory", *DURABLE])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    url = store_url(request.param, tmp_path)
    with Penstock(settings=config.load({}, url=url, state_dir=tmp_path)) as opened:
        opened.function("mail", requires=["to"], max_retries=5, timeout=60)(lambda payload: payload["to"])
        opened.function("tick")(lambda payload: None)
        yield opened
    given_back(tmp_path)


def test_a_call_is_a_function_job_with_its_entity_as_the_lock(app: Penstock):
    receipt = app.call("mail", {"to": "miller"}, entity=("customer", "c1"))
    job = app.job(receipt.job_id)

    assert ("function", "run", 5) == (job.item_type, job.op, job.priority)
    assert (5, 60) == (job.max_retries, job.timeout_s)
    assert "entity:customer:c1" == job.lock_key
    assert {
        "function_name": "mail",
        "payload": {"to": "miller"},
        "entity_type": "customer",
        "entity_id": "c1",
    } == job.payload


@pytest.mark.parametrize("entity", [None, ("customer", "c1")])
@pytest.mark.parametrize("payload", [{"to": "müller", "copies": [1, {"at": None}]}, {"to": ()}])
def test_a_call_without_options_is_the_job_that_one_with_options_is(payload: Any, entity: Any):
    with Penstock("memory://") as app:
        app.function("mail", requires=["to"], max_retries=5, timeout=60)(lambda payload: None)
        (many,) = app.call_many([{"name": "mail", "payload": payload, "entity": entity}])
        receipts = [app.call("mail", payload, entity=entity), many]
        # Equal to the default, but named, so that each field is checked.
        receipts.append(app.call("mail", payload, entity=entity, priority=5))
        rows = [msgspec.structs.asdict(app.job(receipt.job_id)) for receipt in receipts]

    own = {"queue_id", "root_id", "idempotency_key", "turn", "created_at", "updated_at"}
    short, bulk, general = ({name: row[name] for name in row.keys() - own} for row in rows)
    assert short == bulk == general
    assert 3 == len({row["idempotency_key"] for row in rows})


def test_a_call_is_answered_without_counting_who_is_ahead(app: Penstock):
    app.call("mail", {"to": "miller"})
    receipt = app.call("mail", {"to": "baker"})

    assert (None, None) == (receipt.queue_position, receipt.queue_length)
    assert 2 == len(app.jobs())


def test_what_a_call_says_counts_more_than_what_the_function_says(app: Penstock):
    receipt = app.call(
        "mail",
        {"to": "miller"},
        priority=9,
        max_retries=0,
        timeout=7,
        tenant_id="acme",
        collection="mails",
        metadata={"trace": "t1"},
        job_id="my-mail-1",
    )
    job = app.job("my-mail-1")

    assert "my-mail-1" == receipt.job_id
    assert (9, 0, 7, "acme", "mails") == (
        job.priority,
        job.max_retries,
        job.timeout_s,
        job.tenant_id,
        job.collection,
    )
    assert '{"trace":"t1"}' == job.metadata


def test_a_function_that_says_nothing_leaves_it_to_the_settings(app: Penstock):
    job = app.job(app.call("tick").job_id)

    assert (3, 7200, None) == (job.max_retries, job.timeout_s, job.lock_key)


def test_a_call_may_be_for_later(app: Penstock):
    moment = datetime(2099, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(InvalidTime, match="ten years"):
        app.call("tick", run_at=moment)
    soon = clock.now() + timedelta(hours=1)
    at, after = app.call("tick", run_at=soon), app.call("tick", delay=90)

    assert soon == app.job(at.job_id).run_at
    assert Held.TIME is app.job(after.job_id).held
    with pytest.raises(InvalidTime):
        app.call("tick", run_at=soon, delay=1)


def test_two_calls_are_two_jobs_unless_a_key_says_they_are_one(app: Penstock):
    assert app.call("tick").job_id != app.call("tick").job_id
    first, second = app.call("tick", key="daily"), app.call("tick", key="daily")

    assert (first.job_id, True) == (second.job_id, second.dedupe_hit)


@pytest.mark.parametrize(
    "payload",
    [{"to": object()}, {"to": float("nan")}, {"to": b"x"}, {"to": {1: 2}}, {"to": "\0"}, {"to": "\ud800"}],
    ids=["object", "nan", "bytes", "number as key", "nul", "surrogate"],
)
def test_a_payload_json_cannot_hold_is_refused(app: Penstock, payload: Any):
    with pytest.raises(InvalidRequest, match="payload"):
        app.call("mail", payload)
    assert [] == app.jobs()


@pytest.mark.parametrize("payload", [[], "to", 7, [("to", "miller")]], ids=str)
def test_a_payload_that_is_no_object_is_refused(app: Penstock, payload: Any):
    with pytest.raises(InvalidPayload, match="expected an object"):
        app.call("mail", payload)


def test_a_payload_without_a_required_field_is_refused_with_those_required(app: Penstock):
    with pytest.raises(InvalidPayload, match="payload of mail: missing required field 'to'") as refusal:
        app.call("mail", {"cc": "miller"})
    assert "mail requires to" in refusal.value.remedy
    with pytest.raises(InvalidPayload):
        app.call("mail")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"priority": 11}, InvalidPriority),
        ({"max_retries": -1}, InvalidRequest),
        ({"timeout": 0}, InvalidRequest),
        ({"key": ""}, InvalidName),
        ({"job_id": "no blanks"}, InvalidName),
        ({"metadata": 7}, InvalidPayload),
        ({"delay": -1}, InvalidTime),
        ({"colour": "red"}, InvalidRequest),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(app: Penstock, options: Any, error: type[Exception]):
    with pytest.raises(error):
        app.call("tick", **options)
    assert [] == app.jobs()


def test_a_payload_over_the_limit_is_refused(app: Penstock):
    with pytest.raises(PayloadTooLarge):
        app.call("mail", {"to": "x" * app.settings.max_payload_bytes})


def test_many_calls_are_one_transaction(app: Penstock):
    receipts = app.call_many([{"name": "mail", "payload": {"to": f"m{n}"}} for n in range(50)])
    claims = app.queue.claim(ClaimRequest("w1", 100))

    assert [receipt.job_id for receipt in receipts] == [claim.queue_id for claim in claims]
    assert [] == app.call_many([])


@pytest.mark.parametrize(
    ("last", "error", "message"),
    [
        ({"name": "unknown"}, UnknownFunction, "call 3 of 3: no function named 'unknown'"),
        ({"name": "mail"}, InvalidPayload, "call 3 of 3: payload of mail"),
        ({"name": "tick", "priority": 99}, InvalidPriority, "submission 3 of 3: priority"),
        ({"name": "tick", "entity": "w1"}, InvalidRequest, "call 3 of 3: entity"),
        ({"payload": {}}, InvalidRequest, "call 3 of 3: missing field 'name'"),
        ({"name": "tick", "colour": 1}, InvalidRequest, "call 3 of 3: call has no option 'colour'"),
        ("tick", InvalidRequest, "call 3 of 3: a call is a mapping"),
    ],
    ids=str,
)
def test_one_bad_call_of_many_refuses_them_all(
    app: Penstock, last: Any, error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        app.call_many([{"name": "tick"}, {"name": "tick"}, last])
    assert [] == app.jobs()


def test_functions_have_a_limit_of_their_own(tmp_path: Path):
    app = Penstock(settings=config.load({}, url="memory://", max_function_queue=2))
    app.function("tick")(lambda payload: None)
    app.call("tick")

    with pytest.raises(QueueFull):
        app.call_many([{"name": "tick"}, {"name": "tick"}])
    assert 1 == len(app.jobs())


# Joining a transaction.


@pytest.mark.parametrize("commit", [True, False])
def test_calls_join_the_callers_transaction(tmp_path: Path, commit: bool):
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:
        app.function("tick")(lambda payload: None)
        own = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        own.execute("CREATE TABLE orders (number INTEGER)")
        own.execute("BEGIN IMMEDIATE")
        own.execute("INSERT INTO orders VALUES (1)")
        app.call("tick", {"big": "x" * 5000}, entity=("order", "1"), connection=own)
        app.call_many([{"name": "tick"}, {"name": "tick", "key": "daily"}], connection=own)
        own.execute("COMMIT" if commit else "ROLLBACK")

        assert (3 if commit else 0) == len(app.jobs())
        assert [(int(commit),)] == own.execute("SELECT count(*) FROM orders").fetchall()
        own.close()


def test_a_refused_call_leaves_the_callers_transaction_as_it_was(tmp_path: Path):
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:
        app.function("tick")(lambda payload: None)
        own = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        app.call("tick", connection=own)
        with pytest.raises(UnknownFunction):
            app.call_many([{"name": "tick"}, {"name": "tock"}], connection=own)
        own.execute("COMMIT")
        own.close()

        assert 1 == len(app.jobs())


# Results.


def test_a_result_is_read_by_any_prefix_of_the_id(app: Penstock):
    receipt = app.call("mail", {"to": "miller"})
    with app.worker_thread():
        app.wait(receipt.job_id, timeout=120)

    assert "miller" == app.result(receipt.job_id[:-3])


def test_a_job_that_is_not_done_has_no_result(app: Penstock):
    receipt = app.call("tick")
    with pytest.raises(NoResult, match="is pending"):
        app.result(receipt.job_id)
    claims = app.queue.claim(ClaimRequest("w1"))
    with pytest.raises(NoResult, match="is running"):
        app.result(receipt.job_id)
    app.queue.settle([transitions.failed_attempt(claim, BROKEN, "torn page") for claim in claims])
    with pytest.raises(NoResult, match="is failed: torn page"):
        app.result(receipt.job_id)
    with pytest.raises(JobNotFound):
        app.result("job_unknown")


def test_a_function_that_returns_nothing_has_the_result_none(app: Penstock):
    receipt = app.call("tick")
    with app.worker_thread():
        app.wait(receipt.job_id, timeout=120)

    assert app.result(receipt.job_id) is None


# Workers.


def test_a_store_that_fails_ends_the_worker_thread_and_is_told(tmp_path: Path):
    app = Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)

    def lose(request: object) -> None:
        raise OSError("disk on fire")

    app.queue.claim = lose  # type: ignore[method-assign,assignment]
    with pytest.raises(OSError, match="disk on fire"), app.worker_thread():
        pass
    app.close()


def test_a_worker_thread_keeps_the_lease_of_a_job_that_outlasts_it(tmp_path: Path):
    app = Penstock(settings=config.load({}, url="memory://", state_dir=tmp_path, lease_s=2, heartbeat_s=0.5))
    late: list[int] = []

    @app.function("slow")
    def slow(payload: dict[str, Any]) -> None:
        for _ in range(30):
            time.sleep(0.1)
            late.append(len(app.queue.expired()))

    receipt = app.call("slow")
    with app.worker_thread():
        app.wait(receipt.job_id, timeout=120)
    assert [0] * 30 == late


def test_processes_cannot_serve_a_memory():
    app = Penstock("memory://")

    with pytest.raises(AppNotFound, match="is not a global of a module"):
        app.run_worker(until_idle=True)
    globals()["MEMORY"] = app
    try:
        with pytest.raises(InvalidSetting, match="exists in one process only"):
            app.run_worker(until_idle=True)
    finally:
        del globals()["MEMORY"]


@pytest.mark.parametrize(
    "options",
    [{"processes": 0}, {"processes": 257}, {"grace": -1}, {"processes": True}, {"start_method": "clone"}],
)
def test_a_worker_with_terms_that_make_no_sense_is_refused(tmp_path: Path, options: Any):
    app = Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)
    globals()["APP"] = app
    try:
        with pytest.raises(InvalidSetting):
            app.run_worker(until_idle=True, **options)
    finally:
        del globals()["APP"]
        app.close()
