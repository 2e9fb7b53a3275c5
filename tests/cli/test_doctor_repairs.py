"""Every check of ``penstock doctor`` fails on its fault, and ``--fix`` repairs what is safe."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.queue.job import ClaimRequest, JobQuery, Status, WorkerReport
from penstock.service import doctor
from penstock.service.keys import Keys
from penstock.service.runtime_file import FILE
from penstock.worker.launch import _own_directory

Ask = Callable[..., Any]


def found(answer: Any, subject: str) -> dict[str, Any] | None:
    return next((check for check in answer["checks"] if check["subject"] == subject), None)


def noted(ask: Ask, subject: str, words: str, *, fixable: bool = False) -> None:
    check = found(ask("doctor"), subject)
    assert check is not None, subject
    assert ("note", fixable) == (check["status"], check["fixable"])
    assert words in check["detail"]
    assert check["remedy"]


def fixed(ask: Ask, subject: str, words: str) -> None:
    check = found(ask("doctor", "--fix"), subject)
    assert check is not None
    assert ("fixed", True) == (check["status"], words in check["detail"]), check
    assert found(ask("doctor"), subject) is None


def test_little_space_is_noted_and_none_fails(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FEW_BYTES", 1 << 60)
    noted(ask, "disk", "GB free")
    monkeypatch.setattr(doctor, "RESERVED_BYTES", 1 << 60)
    check = found(ask("doctor", code=1), "disk")
    assert check is not None
    assert "failed" == check["status"]


def test_low_limits_of_inotify(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max_user_watches").write_text("100\n")
    (tmp_path / "max_user_instances").write_text("4096\n")
    monkeypatch.setattr(doctor, "INOTIFY", tmp_path)
    noted(ask, "inotify", "can watch 100 folders")


def test_keys_that_others_can_read(ask: Ask, state: Path) -> None:
    Keys(state).create("ci", "read")
    (state / "keys.json").chmod(0o644)
    noted(ask, "keys", "mode 644", fixable=True)
    fixed(ask, "keys", "for this user only")
    assert 0o600 == (state / "keys.json").stat().st_mode & 0o777


def test_a_lost_file_of_keys(ask: Ask, state: Path) -> None:
    state.mkdir(parents=True, exist_ok=True)
    (state / "keys.made").touch()
    noted(ask, "keys", "there is no key, and every request needs one")
    (state / "keys.json").write_text("[]")
    (state / "keys.json").chmod(0o600)
    noted(ask, "keys", "there is no key, and every request needs one")


def test_the_address_of_a_dead_server(ask: Ask, state: Path) -> None:
    state.mkdir(parents=True, exist_ok=True)
    (state / FILE).write_text("{}")
    noted(ask, "server", "has died", fixable=True)
    fixed(ask, "server", "was removed")


def test_files_of_dead_processes(ask: Ask, state: Path) -> None:
    vectors = state / "vectors" / "abc"
    vectors.mkdir(parents=True)
    for name, age in (("old.young", 200_000), ("new.young", 0)):
        (vectors / name).write_text("x")
        then = clock.now().timestamp() - age
        os.utime(vectors / name, (then, then))
    noted(ask, "leftover files", "1 unfinished vector file", fixable=True)
    fixed(ask, "leftover files", "removed")
    assert ["new.young"] == [path.name for path in vectors.iterdir()]


def test_interrupted_uploads_are_left_to_the_server(ask: Ask, state: Path) -> None:
    incoming = state / "uploads" / ".incoming" / "owner"
    incoming.mkdir(parents=True)
    (incoming / "x").write_text("half")
    noted(ask, "uploads", "1 file of interrupted uploads")
    ask("doctor", "--fix")
    assert (incoming / "x").exists()


def held_job(state: Path, *, ago: timedelta) -> None:
    with Penstock(state_dir=state) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "a note"})
        app.queue.claim(ClaimRequest("w1", 1, timedelta(seconds=60)), now=clock.now() - ago)


def test_jobs_whose_lease_ended(ask: Ask, state: Path) -> None:
    held_job(state, ago=timedelta(hours=1))
    noted(ask, "leases", "1 jobs are held", fixable=True)
    fixed(ask, "leases", "1 job of workers")
    with Penstock(state_dir=state) as app:
        assert [Status.PENDING] == [job.status for job in app.queue.find(JobQuery())]


def test_jobs_of_a_dead_worker_of_this_host(ask: Ask, state: Path) -> None:
    held_job(state, ago=timedelta(0))
    with Penstock(state_dir=state) as app:
        directory = _own_directory(app.settings)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "dead.worker").write_text("w1\n")
    noted(ask, "dead workers", "has died", fixable=True)
    fixed(ask, "dead workers", "1 job or task released")


def test_reports_of_workers_long_silent(ask: Ask, state: Path) -> None:
    with Penstock(state_dir=state) as app:
        report = WorkerReport(worker_id="w9", host="h", pid=1, started_at=clock.now())
        app.queue.report(report, now=clock.now() - timedelta(hours=2))
    noted(ask, "worker reports", "w9", fixable=True)
    fixed(ask, "worker reports", "1 report removed")


def test_a_clock_that_was_set_back(ask: Ask, state: Path) -> None:
    with Penstock(state_dir=state) as app:
        job = app.submit(item_type="content", op="ingest", payload={"content": "a note"})
        app.queue.cancel([job.job_id], now=clock.now() + timedelta(days=1))
    noted(ask, "clock", "s in the future: a clock was set back")


def test_rows_of_the_catalog_without_an_owner(ask: Ask, run: Any, state: Path, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# Mill\n\nA mill by the river.")
    run("index", str(folder))
    with sqlite3.connect(state / "penstock.db") as raw:
        raw.execute("INSERT INTO catalog_vector VALUES (999999 * 256 + 1, x'00000000')")
    raw.close()
    noted(ask, "catalog rows", "vector", fixable=True)
    fixed(ask, "catalog rows", "repaired")


def test_a_damaged_model_fails(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "minilm")
    monkeypatch.setenv("PENSTOCK_MODELS_DIR", str(tmp_path))
    check = found(ask("doctor", code=1), "embedder")
    assert check is not None
    assert "failed" == check["status"]
    assert "penstock models install minilm" in check["remedy"]
