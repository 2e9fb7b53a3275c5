"""Schedules in the library: adding, changing, running and removing them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.errors import (
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    InvalidSchedule,
    ScheduleExists,
    ScheduleNotFound,
    UnknownFunction,
)
from penstock.queue.engine import wait_for
from penstock.queue.job import Status
from penstock.worker.upkeep import ScheduleRunner


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    with Penstock(
        settings=config.load({}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)
    ) as opened:
        yield opened


def test_a_call_is_added_by_the_clock_and_run_by_a_worker(app: Penstock):
    @app.function(requires=["n"])
    def double(payload: dict[str, Any]) -> int:
        return int(payload["n"]) * 2

    record = app.schedules.add_call("every 1s", "double", {"n": 21}, call={"priority": 8})
    assert ("double", "call double", "run-once") == (record.name, record.does, record.missed)

    with app.worker_thread():
        assert wait_for(app.queue, lambda: app.schedules.show("double").last_job_id is not None, 60)
        job = app.wait(str(app.schedules.show("double").last_job_id), timeout=60)
    assert (Status.DONE, 42, 8) == (job.status, job.result, job.priority)


def test_a_folder_is_indexed_by_the_clock(app: Penstock, tmp_path: Path):
    notes = tmp_path / "my notes"
    notes.mkdir()
    (notes / "a.md").write_text("The mill runs at dawn.")
    record = app.schedules.add_index("0 3 * * *", notes, zone="Europe/Berlin", index={"collection": "home"})
    assert ("index-my-notes", f"index {notes}") == (record.name, record.does)
    assert record.next_at is not None

    ScheduleRunner(app.queue).run(record.next_at)
    (job,) = app.jobs()
    with app.worker_thread():
        assert Status.DONE is app.wait(job.queue_id, timeout=60).status
    assert ["a.md"] == [Path(hit.path).name for hit in app.search("mill", collection="home")]
    assert job.queue_id == app.schedules.show("index-my-notes").last_job_id


def test_the_next_times_are_shown_in_the_zone_of_the_schedule(app: Penstock):
    app.schedules.add_call("0 3 * * *", "report", zone="Asia/Tokyo")

    record = app.schedules.show("report", count=3)
    assert ["T03:00:00+09:00"] * 3 == [text[10:] for text in record.next_in_zone]
    assert [timedelta(days=1)] * 2 == [b - a for a, b in zip(record.next, record.next[1:], strict=False)]
    assert record.next_at == record.next[0]


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("61 * * * *", "f"), {}, InvalidSchedule),
        (("0 0 30 2 *", "f"), {}, InvalidSchedule),
        (("@daily", "f"), {"zone": "Mars/Olympus"}, InvalidSchedule),
        (("@daily", "f"), {"missed": "never"}, InvalidSchedule),
        (("@daily", "f"), {"name": "a b"}, InvalidName),
        (("@daily", "f"), {"name": "../x"}, InvalidName),
        (("@daily", "f"), {"call": {"delay": 5}}, InvalidSchedule),
        (("@daily", "f"), {"call": {"colour": 5}}, InvalidRequest),
        (("@daily", "g"), {}, UnknownFunction),
        (("@daily", "f", {"n": {1, 2}}), {}, InvalidPayload),
        (("@daily", "f", {"m": 1}), {}, InvalidPayload),
    ],
)
def test_a_refused_schedule_changes_nothing(
    app: Penstock, arguments: Any, options: Any, error: type[Exception]
):
    app.function("f", requires=["n"])(lambda payload: payload)
    if arguments[1:] == ("f",):
        arguments = (*arguments, {"n": 1})
    with pytest.raises(error):
        app.schedules.add_call(*arguments, **options)
    assert [] == app.schedules.list()


def test_a_name_is_taken_once_unless_it_is_replaced(app: Penstock):
    first = app.schedules.add_call("@daily", "report", {"v": 1}, name="r")
    with pytest.raises(ScheduleExists, match="named 'r' exists already: call report"):
        app.schedules.add_call("@daily", "report", name="r")

    same = app.schedules.add_call("@daily", "report", {"v": 2}, name="r", replace=True)
    assert (first.next_at, first.created_at) == (same.next_at, same.created_at)
    assert {"v": 2} == same.payload["payload"]
    other = app.schedules.add_call("@hourly", "report", name="r", replace=True, missed="skip")
    assert ("@hourly", "skip") == (other.timing, other.missed)
    app.schedules.add_call("@daily", "report", name="r", tenant_id="acme")
    assert [("acme", "r"), ("default", "r")] == [(one.tenant_id, one.name) for one in app.schedules.list()]


def test_a_paused_schedule_does_not_run_until_it_is_resumed(app: Penstock):
    app.schedules.add_call("every 1s", "report", missed="run-all")
    app.schedules.pause("report")
    assert (None, True) == (app.schedules.show("report").next_at, app.schedules.show("report").paused)

    ScheduleRunner(app.queue).run(app.queue.now() + timedelta(hours=1))
    assert [] == app.jobs()
    resumed = app.schedules.resume("report")
    assert resumed.next_at is not None
    assert resumed.next_at > app.queue.now() - timedelta(seconds=1), "the pause is not caught up"
    assert resumed == app.schedules.resume("report"), "twice changes nothing"


def test_a_run_now_adds_a_job_and_leaves_the_next_time(app: Penstock):
    app.schedules.add_call("@daily", "report")
    before = app.schedules.show("report")

    receipts = [app.schedules.run_now("report") for _ in range(2)]

    after = app.schedules.show("report")
    assert 2 == len({receipt.job_id for receipt in receipts})
    assert (before.next_at, receipts[1].job_id, 2) == (after.next_at, after.last_job_id, after.runs)


def test_a_removed_schedule_is_gone(app: Penstock):
    app.schedules.add_call("@daily", "report")
    app.schedules.remove("report")
    for use in (app.schedules.remove, app.schedules.show, app.schedules.pause, app.schedules.run_now):
        with pytest.raises(ScheduleNotFound):
            use("report")


def test_calls_with_a_key_do_not_pile_up(app: Penstock):
    app.schedules.add_call("* * * * *", "report", call={"key": "report"})
    start = app.schedules.show("report").next_at
    assert start is not None
    for minute in range(5):
        ScheduleRunner(app.queue).run(start + timedelta(minutes=minute))
    assert 1 == len(app.jobs())
