"""``penstock doctor``: what works on this machine, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.pipeline.extract.sandbox import server
from penstock.queue.job import WorkerReport
from penstock.service import doctor
from tests.cli.conftest import Run

Ask = Callable[..., Any]


def checks(answer: Any) -> dict[str, dict[str, str]]:
    return {check["subject"]: check for check in answer["checks"] if not check["subject"].startswith("extra")}


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "100")
    return state


def test_a_working_installation_ends_with_0(run: Run, ask: Ask, state: Path):
    shown = run("doctor").stdout

    assert "failed" not in shown
    found = ask("doctor")
    assert found["healthy"] is True
    assert [
        "penstock",
        "python",
        "state directory",
        "disk",
        "queue",
        "workers",
        "catalog",
        "embedder",
        "sandbox",
        "ocr",
        "vector search",
    ] == list(checks(found))
    assert checks(found)["state directory"]["detail"] == f"{state}, writable"
    assert "eng" in checks(found)["ocr"]["detail"]


def test_a_variable_that_is_no_setting_is_a_note(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_JOB_TIMEOUT", "60")

    note = checks(ask("doctor"))["environment"]

    assert ("note", "Set PENSTOCK_JOB_TIMEOUT_S instead.") == (note["status"], note["remedy"])
    assert "PENSTOCK_JOB_TIMEOUT " in note["detail"]


def test_an_unreachable_store_ends_with_1_and_shows_no_password(run: Run, ask: Ask):
    url = "postgresql://me:secret@127.0.0.1:1/x"

    found = ask("--url", url, "doctor", code=1)

    assert found["healthy"] is False
    assert ("failed", "failed") == tuple(checks(found)[name]["status"] for name in ("queue", "catalog"))
    shown = run("--url", url, "doctor", "--quiet", code=1).stdout
    assert "cannot be reached" in shown
    assert "secret" not in shown + str(found)
    assert "What to do:" in shown
    assert "penstock  " not in shown


def test_a_language_without_a_model_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_OCR_LANGUAGES", "eng+xyz")

    ocr = checks(ask("doctor", code=1))["ocr"]

    assert "failed" == ocr["status"]
    assert "xyz" in ocr["detail"]
    assert ocr["remedy"]


def test_a_state_directory_that_cannot_be_written(ask: Ask, tmp_path: Path):
    (tmp_path / "file").write_text("")

    found = ask("--state", str(tmp_path / "file" / "below"), "doctor", code=1)

    assert "failed" == checks(found)["state directory"]["status"]
    assert "PENSTOCK_STATE" in checks(found)["state directory"]["remedy"]


def test_missing_extras_and_a_weak_sandbox_are_notes(
    run: Run, ask: Ask, app: Penstock, monkeypatch: pytest.MonkeyPatch
):
    present = importlib.util.find_spec
    absent = ("tree_sitter_ruby", "usearch")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name in absent else present(name, *more)
    )
    monkeypatch.setattr(doctor, "supported", server.Confinement)

    found = ask("doctor")

    assert found["healthy"] is True
    assert "note" == checks(found)["sandbox"]["status"]
    assert "neither Landlock nor seccomp" in checks(found)["sandbox"]["detail"]
    extras = {
        check["subject"].removeprefix("extra "): check
        for check in found["checks"]
        if check["subject"].startswith("extra ")
    }
    assert "tree-sitter-ruby" in extras["grammars"]["remedy"]
    assert "61 MB" in extras["grammars"]["detail"]
    assert "exact" == checks(found)["vector search"]["detail"]
    app.queue.report(WorkerReport(worker_id="w", host="h", pid=1, started_at=clock.now()))
    assert "1 worker alive" == checks(ask("doctor"))["workers"]["detail"]
