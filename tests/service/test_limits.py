"""Limits in the library: set, used by functions and calls, shown and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.errors import InvalidLimit, LimitNotFound
from penstock.queue.job import Held
from penstock.queue.limits import Limit, parse_rate


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    settings = config.load({}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)
    with Penstock(settings=settings) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("60/min", (60, 60)),
        ("5/s", (5, 1)),
        ("1000 / hour", (1000, 3600)),
        ("100/15min", (100, 900)),
        ("2/days", (2, 86_400)),
        ("0/min", None),
        ("5", None),
        ("5/", None),
        ("5/0s", None),
        ("5/31d", None),
        ("-1/s", None),
        ("1.5/s", None),
        ("9999999999/s", None),
        ("٣/s", None),
    ],
)
def test_rates_are_read(text: str, parsed: tuple[int, int] | None):
    assert parsed == parse_rate(text)
    if parsed:
        limit = Limit(key="k", starts=parsed[0], period_s=parsed[1])
        assert limit.rate is not None
        assert parsed == parse_rate(limit.rate)


def test_a_worker_runs_all_calls_of_a_limited_function(app: Penstock):
    app.limit("mill", concurrent=1)

    @app.function(limit="mill")
    def grind(payload: dict[str, Any]) -> int:
        return int(payload["n"])

    receipts = app.call_many([{"name": "grind", "payload": {"n": n}} for n in range(6)])
    shown = app.limits.show("mill")
    assert (1, 5) == (shown.slots, shown.waiting)
    with app.worker_thread():
        assert list(range(6)) == [app.wait(one.job_id, timeout=60).result for one in receipts]
    assert (0, 0) == ((after := app.limits.show("mill")).slots, after.waiting)


def test_a_call_may_name_another_limit(app: Penstock):
    app.function("f", limit="mill")(lambda payload: None)
    assert "mill" == app.job(app.call("f").job_id).limit_key
    assert "other" == app.job(app.call("f", limit="other").job_id).limit_key


def test_limits_are_set_again_listed_and_removed(app: Penstock):
    app.limit("a", rate="60/min")
    app.limit("a", rate="60/min")
    app.limit("b", concurrent=2)
    assert [("a", None, "60/min"), ("b", 2, None)] == [
        (one.key, one.concurrent, one.rate) for one in app.limits.list()
    ]
    app.limits.remove("a")
    with pytest.raises(LimitNotFound):
        app.limits.show("a")
    with pytest.raises(LimitNotFound):
        app.limits.remove("a")


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("", {"concurrent": 1}),
        ("a b", {"concurrent": 1}),
        ("a\0", {"concurrent": 1}),
        (".", {"concurrent": 1}),
        ("..", {"concurrent": 1}),
        ("a/b", {"concurrent": 1}),
        ("\ud800", {"concurrent": 1}),
        (b"k", {"concurrent": 1}),
        ("k", {"concurrent": -1}),
        ("k", {"concurrent": 10**30}),
        ("k", {"rate": "0/s"}),
        ("k", {"rate": "-1/s"}),
        ("k", {"rate": "1/31day"}),
        ("k", {"rate": "1e3/s"}),
        ("k" * 201, {"concurrent": 1}),
        ("k", {}),
        ("k", {"concurrent": 0}),
        ("k", {"concurrent": True}),
        ("k", {"concurrent": 1.5}),
        ("k", {"rate": "often"}),
        ("k", {"rate": 60}),
    ],
)
def test_wrong_limits_are_refused(app: Penstock, key: str, fields: dict[str, Any]):
    with pytest.raises(InvalidLimit):
        app.limit(key, **fields)
    assert [] == app.limits.list()


def test_calls_of_an_entity_wait_for_it_and_for_the_limit(app: Penstock):
    app.limit("mill", concurrent=2)
    app.function("f", limit="mill")(lambda payload: None)
    first, second = (app.call("f", entity=("mill", "m1")).job_id for _ in range(2))
    assert (None, Held.LOCK) == (app.job(first).held, app.job(second).held)
    assert ("mill", "entity:mill:m1") == (app.job(first).limit_key, app.job(first).lock_key)
    with app.worker_thread():
        app.wait(second, timeout=60)


def test_the_calls_of_a_map_wait_for_the_limit_and_its_parent_does_not(app: Penstock):
    app.limit("mill", concurrent=1)
    app.function("f", limit="mill")(lambda payload: payload["n"])
    parent = app.map("f", [{"n": number} for number in range(3)]).job_id
    assert app.job(parent).limit_key is None
    with app.worker_thread():
        app.wait(parent, timeout=60)
    assert [0, 1, 2] == [one.result for one in app.map_results(parent)]
    assert {"mill"} == {app.job(one.job_id).limit_key for one in app.map_results(parent)}
    with pytest.raises(InvalidLimit):
        app.map("f", [{}], limit="a b")


def test_a_call_in_a_transaction_waits_for_upkeep(app: Penstock, tmp_path: Path):
    """The limit would stay locked until the caller commits."""
    import sqlite3

    app.function("f", limit="mill")(lambda payload: None)
    connection = sqlite3.connect(tmp_path / "queue.db")
    receipt = app.call("f", connection=connection)
    connection.commit()
    connection.close()
    assert Held.LIMIT is app.job(receipt.job_id).held
    app.queue.admit()
    assert app.job(receipt.job_id).held is None
