"""``penstock config``, and commands in a folder with a settings file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository, as working directory."""
    made = tmp_path / "clone"
    made.mkdir()
    (made / "readme.md").write_text("The mill runs at dawn.\n")
    monkeypatch.chdir(made)
    return made


HOSTILE = {
    "store": 'url = "sqlite:///{elsewhere}/queue.db"',
    "catalog": 'catalog_url = "sqlite:///{elsewhere}/catalog.db"',
    "state": 'state_dir = "{elsewhere}"',
    "server": 'url = "postgresql://evil.example/queue"',
    "redis": 'contract_url = "redis://evil.example"',
    "rags": 'rag_config = "rags.yaml"',
    "model": 'embedder = "hashing"',
    "tenant": 'tenant_id = "other"',
    "limits": "file_memory_mb = 900000",
    "history": "failed_retention_days = 1",
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_clone_cannot_say_where_the_documents_go(
    run: Run, clone: Path, tmp_path: Path, state: Path, attack: str
):
    elsewhere = tmp_path / "elsewhere"
    (clone / "penstock.toml").write_text(HOSTILE[attack].format(elsewhere=elsewhere))

    # --state is given, which a hostile state_dir does not change: that is not refused.
    told = run("index", ".", "--no-wait", code=0 if attack == "state" else 3).stderr

    if attack != "state":
        assert "ERR_UNTRUSTED_SETTING" in told
        assert str(clone / "penstock.toml") in told
        assert not state.exists()
    assert not elsewhere.exists()


def test_a_free_setting_counts_and_is_shown_with_its_file(run: Run, ask: Callable[..., Any], clone: Path):
    file = clone / "penstock.toml"
    file.write_text('collection = "handbook"\n')
    run("index", ".", "--no-wait")

    (job,) = ask("jobs", "--collection", "handbook")["jobs"]
    assert str(clone) == job["payload"]["folder_path"]
    assert {"value": "handbook", "source": str(file)} == ask("config", "show")["collection"]
    shown = run("config", "show").stdout
    assert f"{file} (not trusted)" in shown
    assert re.search(r"^collection +project file +handbook$", shown, re.M)
    assert "(does not exist)" in shown


def test_trust_is_given_by_a_command_and_passwords_stay_masked(run: Run, clone: Path):
    file = clone / "penstock.toml"
    file.write_text('url = "postgresql://mill:secret@db.example/queue"\n')
    assert "secret" not in run("config", "show", code=3).stderr

    told = run("config", "trust").stdout
    assert f"Trusted: {file}. It sets url.\n" == told
    shown = run("config", "show").stdout
    assert "postgresql://mill:***@db.example/queue" in shown
    assert "secret" not in shown
    assert f"{file} (trusted)" in shown
    answer = json.loads(run("--json", "config", "trust", "--revoke").stdout)
    assert {"file": str(file), "trusted": False, "settings": ["url"]} == answer
    assert "config trust" in run("jobs", code=3).stderr


def test_trust_is_for_one_file_however_its_path_is_written(
    run: Run, clone: Path, monkeypatch: pytest.MonkeyPatch
):
    (clone / "penstock.toml").write_text('tenant_id = "acme"\n')
    (clone / "below").mkdir()
    monkeypatch.chdir(clone / "below")
    assert "ERR_UNTRUSTED_SETTING" in run("jobs", code=3).stderr
    run("config", "trust", "../penstock.toml")

    assert "No jobs match." in run("jobs").stdout


def test_trust_without_a_file_is_refused(run: Run, clone: Path):
    assert "no penstock.toml" in run("config", "trust", code=3).stderr
    assert "cannot be read" in run("config", "trust", "none.toml", code=3).stderr


def test_the_users_file_is_found_by_a_command(run: Run, clone: Path):
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "penstock"
    place.mkdir(parents=True)
    (place / "penstock.toml").write_text('tenant_id = "acme"\n')

    shown = run("config", "show").stdout
    assert f"{place / 'penstock.toml'}\n" in shown
    assert re.search(r"^tenant_id +user file +acme$", shown, re.M)
    (place / "penstock.toml").write_text("tenant_id = 5\n")
    told = run("status", code=3).stderr
    assert f"{place / 'penstock.toml'}: tenant_id = '5': expected" in told
    assert "ERR_SETTINGS_FILE" in told
