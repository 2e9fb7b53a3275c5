"""Imports from another store of Penstock: all rows, once, compared by checksums."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.backup.backups import StoreTarget
from penstock.config import Settings
from penstock.queue.job import WorkerReport
from tests.backup.places import assembled, give_all_back, index_of, settings_of
from tests.backup.test_backups import KILLS, Source, folder, jobs_of, killed, one, run  # noqa: F401 - fixtures
from tests.servers.stores import DURABLE, others_later


@pytest.fixture(autouse=True)
def _given_back(tmp_path: Path) -> Iterator[None]:
    yield
    give_all_back(tmp_path)


def imported(settings: Settings, source: Settings, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(settings, "import", "penstock", source.url, "--json", *options).stdout
    )
    return found


@pytest.mark.parametrize("engine", others_later(DURABLE))
def test_a_store_moves_to_every_engine_once(tmp_path: Path, one: Source, engine: str) -> None:  # noqa: F811
    other = settings_of(engine, tmp_path / "other")
    assert 10 == sum(imported(other, one.settings, "--dry-run")["counts"].values())
    first = imported(other, one.settings)
    assert {"imported": 3, "merged": 0, "ended": 7, "refused": 0} == first["counts"]
    assert (True, 6) == (first["verified"], first["parts"]["catalog/sources"]["rows"])
    assert jobs_of(one.settings).keys() == jobs_of(other).keys()
    assert index_of(one.settings, one.folder).pieces == index_of(other, one.folder).pieces
    again = imported(other, one.settings, "--verify")
    assert (True, first["parts"]) == (again["verified"], again["parts"])
    assert {"imported before"} == {row["reason"] for row in again["rows"]}
    assert 10 == len(jobs_of(other))


def test_a_dry_run_makes_no_store(tmp_path: Path, one: Source) -> None:  # noqa: F811
    other = settings_of("sqlite", tmp_path / "other")
    imported(other, one.settings, "--dry-run")
    assert not other.store.path.exists()


def test_workers_on_either_side_are_refused(tmp_path: Path) -> None:
    for number, busy in enumerate(("source", "target")):
        source, other = (settings_of("sqlite", tmp_path / f"{name}{number}") for name in ("a", "b"))
        with assembled(source) as made, assembled(other) as there:
            assert made.catalog.transfer.is_empty()
            assert there.catalog.transfer.is_empty()
            queue = made.queue if busy == "source" else there.queue
            queue.report(WorkerReport(worker_id="w7", host="h", pid=1, started_at=clock.now()))
        refused = run(other, "import", "penstock", source.url, code=5)
        assert "w7 on h" in refused.output


def test_an_interrupted_move_starts_again(
    tmp_path: Path,
    one: Source,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    with monkeypatch.context() as broken:
        broken.setattr(StoreTarget, "end_queue", lambda _: 1 / 0)
        failed = run(other, "import", "penstock", one.settings.url, code=1)
        assert isinstance(failed.exception, ZeroDivisionError)
    assert "the restore did not finish" in run(other, "status", code=7).output
    assert imported(other, one.settings)["verified"]
    assert jobs_of(one.settings).keys() == jobs_of(other).keys()


@pytest.mark.parametrize(
    ("engine", "point", "calls"),
    [
        pytest.param(engine, *kill, marks=[pytest.mark.long] * ((engine, kill) != ("sqlite", KILLS[2])))
        for engine in DURABLE
        for kill in KILLS
    ],
)
def test_a_killed_move_is_not_used_and_can_be_run_again(
    tmp_path: Path,
    one: Source,  # noqa: F811
    engine: str,
    point: str,
    calls: int,
) -> None:
    other, source = settings_of(engine, tmp_path / "other"), one.settings
    before = jobs_of(source)
    assert -9 == killed(engine, tmp_path / "other", source.url, point, calls)
    assert "the restore did not finish" in run(other, "status", code=7).output
    again = imported(other, source)
    assert (True, len(before)) == (again["verified"], sum(again["counts"].values()))
    assert before == jobs_of(source)
    assert before.keys() == jobs_of(other).keys()
    assert index_of(source, one.folder).pieces == index_of(other, one.folder).pieces


def test_a_moved_store_is_set_aside(tmp_path: Path) -> None:
    source, other = settings_of("sqlite", tmp_path / "a"), settings_of("sqlite", tmp_path / "b")
    with Penstock(settings=source) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "a note"})
        assert app.documents.catalog.transfer.is_empty()
    imported(other, source, "--retire")
    assert not source.store.path.exists()
    retired = str(source.store.path.with_name("queue.db_retired"))
    third = settings_of("sqlite", tmp_path / "c")
    answer = run(third, "import", "penstock", retired, "--verify", "--drop", "--json")
    assert ["all jobs", "all documents"] == json.loads(answer.stdout)["dropped"]
    assert 1 == len(jobs_of(third))
    again = run(third, "import", "penstock", retired, "--drop", code=1)
    assert "the stores differ in queue/jobs" in again.output


def test_wrong_sources_are_named(tmp_path: Path) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    for address, words in (
        (str(tmp_path / "none.db"), "does not exist"),
        (other.url, "the same store"),
        ("memory://", "not a store"),
        ("redis://localhost/0", "are in another store"),
    ):
        assert words in run(other, "import", "penstock", address, code=1).output
    assert not other.store.path.exists()
