"""``rebuild``, and other commands while settings and documents have different models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run, index


@pytest.fixture
def indexed(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two documents with the hashing model, and settings with the static model."""
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "mill.md").write_text("Water drives the wheel.")
    (folder / "bakery.md").write_text("Bread comes out of the oven.")
    index(state, folder)
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "static")
    return folder


def test_what_would_make_other_vectors_is_refused_before_anything_is_queued(run: Run, indexed: Path):
    for arguments in (
        ("index", str(indexed)),
        ("note", "Buy flour."),
        ("rename", str(indexed / "mill.md"), str(indexed / "new.md")),
    ):
        refused = run(*arguments, code=5)
        assert "ERR_FINGERPRINT_MISMATCH" in refused.stderr
        assert "penstock rebuild" in refused.stderr
    assert 1 == len(json.loads(run("--json", "jobs").stdout)["jobs"])
    assert "the settings name static, so this host cannot index" in run("status").stdout


def test_a_dry_run_counts_and_changes_nothing(run: Run, indexed: Path):
    plan = json.loads(run("--json", "rebuild", "--dry-run").stdout)

    assert {"documents": 2, "chunks": 2} == plan["plan"]["total"]
    assert {"model": {"documents": 2, "chunks": 2}} == plan["plan"]["by_reason"]
    shown = run("rebuild", str(indexed / "mill.md"), "--dry-run").stdout
    assert re.search(r"vectors of another model +1 +1\n", shown)
    assert 1 == len(json.loads(run("--json", "jobs").stdout)["jobs"])


def test_what_matches_nothing_is_said_to_and_changes_no_model(run: Run, indexed: Path):
    for narrowed in (["--collection", "typo"], ["--tenant", "typo"], [str(indexed / "typo.md")]):
        assert run("rebuild", "--yes", *narrowed).stdout.startswith("No document matches")
    told = json.loads(run("--json", "rebuild", "--yes", "--collection", "typo").stdout)
    assert (0, []) == (told["plan"]["looked_at"], told["queued"])

    assert "the settings name static, so this host cannot index" in run("status").stdout


def test_a_part_is_rebuilt_then_the_rest(run: Run, indexed: Path):
    assert "Done." in run("rebuild", str(indexed / "mill.md")).stdout
    status = run("status").stdout
    assert re.search(
        r"^Former model +hashing-256-\w+: 1 chunk left; run penstock rebuild$", status, re.MULTILINE
    )
    assert "the settings name" not in status

    run("index", str(indexed))

    assert "Former model" not in run("status").stdout
    assert "All documents are up to date with static-256-" in run("rebuild").stdout
    (best, *_) = json.loads(run("--json", "search", "river", "--mode", "vector").stdout)["hits"]
    assert str(indexed / "mill.md") == best["path"]


def test_without_waiting_it_is_only_queued(run: Run, indexed: Path):
    assert "Only workers with embedder = static run them" in run("rebuild", "--no-wait").stdout
    queued = json.loads(run("--json", "rebuild", "--no-wait").stdout)["queued"]

    (job,) = [job for job in json.loads(run("--json", "jobs").stdout)["jobs"] if job["job_id"] in queued]
    assert ("pending", 0) == (job["status"], job["priority"])


def test_a_queue_that_is_full_does_not_leave_a_change_of_model_half_made(
    run: Run, indexed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "1")
    run("queue", "add", "content", "ingest", "--text", "Buy flour.")

    told = json.loads(run("--json", "rebuild", "--yes", "--no-wait").stdout)

    assert 1 == len(told["queued"])
