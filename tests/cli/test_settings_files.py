"""``penstock config``, and commands in a folder with a settings file."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Penstock
from penstock.cli.main import cli
from penstock.errors import UntrustedState
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


# State directories.


def shipped(clone: Path) -> Path:
    """The state directory of a stranger, with a key that they know."""
    with Penstock(state_dir=clone / ".penstock") as app:
        assert app.settings.state_dir.is_dir()
    (clone / ".penstock" / "keys.json").write_text("{}")
    return clone / ".penstock"


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        "index .",
        "search mill",
        "jobs",
        "worker --until-idle",
        "serve",
        "start",
        "watch .",
        "mcp",
        "keys list",
        "why readme.md",
        "backup kept.tar",
        "import penstock sqlite:///other.db",
        "config show",
        "redis gateway --rags rags.yaml",
    ],
)
def test_no_command_uses_a_state_directory_that_came_with_a_clone(clone: Path, command: str):
    directory = shipped(clone)
    before = content(directory)

    refused = CliRunner().invoke(cli, command.split())

    assert 3 == refused.exit_code, refused.output
    assert "ERR_UNTRUSTED_STATE" in refused.stderr
    assert f"penstock config trust {directory}" in refused.stderr
    assert "--state" in refused.stderr
    assert before == content(directory)


def test_the_library_and_an_adapter_refuse_it_as_well(clone: Path):
    shipped(clone)

    with pytest.raises(UntrustedState):
        Penstock()
    with pytest.raises(UntrustedState):
        Penstock("sqlite:///elsewhere.db")


def test_a_trusted_state_directory_is_used_until_it_is_moved(clone: Path, monkeypatch: pytest.MonkeyPatch):
    directory = shipped(clone)
    run = CliRunner().invoke

    assert f"Trusted: {directory}.\n" == run(cli, ["config", "trust", ".penstock"]).stdout
    assert 0 == run(cli, ["jobs"]).exit_code
    moved = clone.rename(clone.with_name("moved"))
    monkeypatch.chdir(moved)
    assert 3 == run(cli, ["jobs"]).exit_code
    assert 0 == run(cli, ["--state", ".penstock", "jobs"]).exit_code
    assert {"directory": str(moved / ".penstock"), "trusted": True} == json.loads(
        run(cli, ["--json", "config", "trust", str(moved / ".penstock")]).stdout
    )
    assert 0 == run(cli, ["jobs"]).exit_code
    run(cli, ["config", "trust", "--revoke", ".penstock"])
    assert 3 == run(cli, ["jobs"]).exit_code


def test_keys_that_a_pull_brought_into_a_trusted_directory_count_only_after_an_answer(
    clone: Path, tmp_path: Path
):
    run, files = CliRunner().invoke, "keys.json"
    (clone / ".penstock").mkdir()
    assert 0 == run(cli, ["keys", "create", "own"]).exit_code
    assert 0 == run(cli, ["--state", str(tmp_path / "other"), "keys", "create", "planted"]).exit_code
    (clone / ".penstock" / files).write_bytes((tmp_path / "other" / files).read_bytes())

    refused = run(cli, ["keys", "list"])
    assert "ERR_STATE_DAMAGED" in refused.stderr
    assert "'planted', which was not made in this directory" in refused.stderr
    assert 0 == run(cli, ["config", "trust", ".penstock"]).exit_code
    assert "planted" in run(cli, ["keys", "list"]).stdout


def test_only_a_state_directory_of_a_project_is_trusted_as_one(clone: Path):
    refused = CliRunner().invoke(cli, ["config", "trust", "."])

    assert 2 == refused.exit_code
    assert "one is named .penstock" in refused.stderr
    assert ["readme.md"] == [path.name for path in clone.iterdir()]


@pytest.mark.parametrize(("answer", "code"), [("n", 3), ("y", 0)])
def test_a_person_at_a_terminal_is_asked_once(clone: Path, answer: str, code: int):
    shipped(clone)

    said, ended = at_a_terminal(["jobs"], answer)
    again, ended_again = at_a_terminal(["jobs"], None if answer == "y" else "n")

    assert said.count("Did you make it, and is it to be used? [y/N]") == 1
    assert code == ended == ended_again
    assert (answer == "n") is ("Did you make it" in again)


def at_a_terminal(arguments: list[str], answer: str | None) -> tuple[str, int]:
    """What a command in a terminal says to a person who types an answer."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments], stdin=terminal, stdout=terminal, stderr=terminal
    ) as command:
        os.close(terminal)
        said = b""
        with suppress(OSError):
            while part := os.read(controller, 4096):
                said += part
                if answer is not None and b"[y/N]" in said:
                    os.write(controller, f"{answer}\n".encode())
                    answer = None
        code = command.wait(60)
    os.close(controller)
    return " ".join(said.decode().split()), code
