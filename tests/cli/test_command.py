"""The command as a whole: settings, JSON, exit codes, and real processes."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.cli import exit_codes
from penstock.cli.exit_codes import EXIT_CODES, INTERRUPTED
from penstock.cli.main import Root
from penstock.cli.session import Session
from tests.cli.conftest import Run, add, fail
from tests.signals import hear

# Settings, JSON, exit codes.


def test_config_show_names_values_and_their_origin(ask: Callable[..., Any], run: Run, state: Path):
    shown = ask("config", "show")

    assert {"value": str(state), "source": "argument"} == shown["state_dir"]
    assert {"value": 100, "source": "default"} == shown["max_queue"]
    assert f"sqlite:///{state}/penstock.db" in run("config", "show").stdout
    assert not state.exists()


def test_config_show_names_variables_that_are_no_setting(run: Run, monkeypatch: pytest.MonkeyPatch):
    assert "not a setting" not in run("config", "show").stderr
    for name in ("PENSTOCK_JOB_TIMEOUT", "PENSTOCK_XQ", "PENSTOCK_MAX_QUEUE"):
        monkeypatch.setenv(name, "60")

    shown = run("--json", "config", "show")

    assert 60 == json.loads(shown.stdout)["max_queue"]["value"]
    assert shown.stderr.splitlines() == [
        "PENSTOCK_JOB_TIMEOUT is not a setting and has no effect. Set PENSTOCK_JOB_TIMEOUT_S instead.",
        "PENSTOCK_XQ is not a setting and has no effect. Unset it.",
    ]


def test_config_show_masks_passwords(run: Run):
    assert "secret" not in run("--url", "postgresql://u:secret@host/db", "config", "show").stdout


@pytest.mark.parametrize("place", ["before", "behind"])
def test_json_may_stand_before_and_behind_the_command(run: Run, place: str):
    command = ["queue", "show", "unknown"]
    result = run(*(["--json", *command] if place == "before" else [*command, "--json"]), code=4)

    assert {"code", "message", "remedy"} == set(json.loads(result.stdout)["error"])
    assert "" == result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["queue", "add", "content", "ingest", "--text", " "], 1),
        (["queue", "list", "--status", "finished"], 1),
        (["queue", "lst"], 2),
        (["queue", "add", "content", "ingest", "--text", "a", "--delay", "soon"], 2),
        (["--url", "mysql://host/db", "queue", "list"], 3),
        (["--url", "nonsense", "queue", "list"], 3),
        (["queue", "show", "job_unknown"], 4),
        (["--url", "sqlite:////dev/null/queue.db", "queue", "list"], 7),
    ],
)
def test_exit_codes(run: Run, arguments: list[str], code: int):
    assert code in EXIT_CODES
    run(*arguments, code=code)


def test_every_exit_code_is_documented_as_it_is():
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "exit-codes.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    documented = [line[2:].replace("\\|", "¦").split(" | ")[:2] for line in rows[2:]]

    assert [[str(code), told.replace("|", "¦")] for code, told in EXIT_CODES.items()] == documented


def test_every_exit_code_that_the_code_gives_is_in_the_table():
    codes = {name: value for name, value in vars(exit_codes).items() if isinstance(value, int)}
    assert set(codes.values()) <= EXIT_CODES.keys()
    given = set()
    for path in Path(exit_codes.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and re.search(r"\b(SystemExit|exit|Exit)$", ast.unparse(call.func)):
                given |= {node for argument in call.args for node in ast.walk(argument)}
    assert not [node for node in given if isinstance(node, ast.Constant) and node.value not in EXIT_CODES]
    assert {"REFUSED", "INTERRUPTED"} <= {node.id for node in given if isinstance(node, ast.Name)}


def test_the_help_names_every_exit_code_and_the_page(run: Run):
    named = " ".join(run("--help").stdout.split()).partition("Exit codes: ")[2].partition(".md")[0]

    assert list(EXIT_CODES) == [int(number) for number in re.findall(r"\b\d+\b", named)]
    assert named.endswith("docs/reference/exit-codes")


def test_a_full_queue_exits_with_6(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "1")
    add(run, "one")

    assert (
        "Queue full (1 pending)" in run("queue", "add", "content", "ingest", "--text", "two", code=6).stderr
    )


# As a real process.


def process(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def test_help_and_version_need_no_heavy_package():
    heavy = "{'sqlite3', 'msgspec', 'penstock.config', 'penstock.queue.job'}"
    for arguments in ("['--help']", "['queue', 'add', '--help']", "['queue', '--help']"):
        code = (
            "import sys; from penstock.cli.main import cli\n"
            f"try: cli({arguments})\n"
            f"except SystemExit: print('loaded:', sorted({heavy} & set(sys.modules)))"
        )
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout.endswith("loaded: []\n")


def test_a_process_answers_with_the_documented_codes(tmp_path: Path):
    added = process("--state", str(tmp_path), "--json", "queue", "add", "content", "ingest", "--text", "é…")
    shown = process("--state", str(tmp_path), "queue", "show", json.loads(added.stdout)["job_id"])
    missing = process("--state", str(tmp_path), "queue", "show", "nothing")

    assert [0, 0, 4] == [added.returncode, shown.returncode, missing.returncode]
    assert "é…" in shown.stdout
    assert "Traceback" not in missing.stderr


def test_a_closed_pipe_is_no_complaint(tmp_path: Path):
    command = f"{sys.executable} -m penstock --state {tmp_path} config show | true; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)

    assert "" == answer.stderr
    assert answer.stdout.strip() in ("141", "0")


def test_a_terminal_gets_colours_and_a_question(tmp_path: Path):
    with Penstock(state_dir=tmp_path) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "x"})
        fail(app)

    assert "\x1b[31m" in in_terminal("--state", str(tmp_path), "queue", "list")
    assert "\x1b[31m" not in in_terminal(
        "--state", str(tmp_path), "queue", "list", environment={"NO_COLOR": "1"}
    )
    told = in_terminal("--state", str(tmp_path), "queue", "purge", "--status", "failed", typed=b"n\n")
    assert "Remove all failed jobs for good?" in told
    assert "Nothing was removed." in told
    told = in_terminal("--state", str(tmp_path), "queue", "purge", "--status", "failed", typed=b"y\n")
    assert "1 job removed" in told


def test_a_narrow_terminal_shows_the_end_of_a_path(tmp_path: Path):
    with Penstock(state_dir=tmp_path) as app:
        app.submit(
            item_type="folder", op="scan", payload={"folder_path": "/srv/mills/of/the/valley/handbook"}
        )

    def listed(columns: int) -> str:
        shown = in_terminal("--state", str(tmp_path), "jobs", environment={"COLUMNS": str(columns)})
        line = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()[-1].rstrip()
        assert len(line) <= columns
        return line.rpartition("  ")[2]

    narrow = listed(60)
    assert narrow.startswith("…")
    assert "/srv/mills/of/the/valley/handbook".endswith(narrow[1:])
    assert narrow.endswith("handbook")
    assert "folder scan /srv/mills/of/the/valley/handbook" == listed(100)


def test_what_was_queued_cannot_drive_the_terminal(tmp_path: Path):
    """Needs a terminal: click strips control sequences from other output."""
    with Penstock(state_dir=tmp_path) as app:
        receipt = app.submit(item_type="content", op="ingest", payload={"content": "\x1b[2J\x07"})

    for command in (["list"], ["show", receipt.job_id]):
        told = in_terminal("--state", str(tmp_path), "queue", *command)
        assert "\x1b[2J" not in told
        assert "\x07" not in told
        assert r"\x1b[2J" in told


def test_interrupting_exits_with_130(tmp_path: Path):
    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path)]
    command += ["queue", "add", "content", "ingest", "--payload", "-"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear
    )
    waiting = Path(f"/proc/{child.pid}/wchan")
    # Once it waits for standard input it sleeps in a pipe read; earlier, Python itself may be interrupted.
    deadline = time.monotonic() + 120
    while "pipe" not in (waiting.read_text() if waiting.exists() else "pipe"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, complaint = child.communicate(timeout=120)

    assert (130, "interrupted\n") == (child.returncode, complaint)


INTERRUPTED_IMPORT = """
import os, signal, sys
from penstock.__main__ import main
class Interrupt:
    def find_spec(name, *_):
        if name == "penstock.cli.session":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
main()
"""


def test_an_interrupt_while_modules_are_imported_ends_with_130(tmp_path: Path):
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, "--state", str(tmp_path), "status"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=hear)

    assert (130, "", "interrupted\n") == (ended.returncode, ended.stdout, ended.stderr)


def in_terminal(*arguments: str, typed: bytes = b"", environment: dict[str, str] | None = None) -> str:
    """Output of the command on a pseudo-terminal."""
    inner, outer = pty.openpty()[::-1]
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=plain | {"TERM": "xterm-256color"} | (environment or {}),
    )
    os.close(inner)
    os.write(outer, typed)
    shown = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # Linux says EIO when the other end is closed
            break
        if not part:
            break
        shown += part
    child.wait(timeout=120)
    os.close(outer)
    return shown.decode()


@pytest.mark.parametrize("moment", ["the command is loaded", "its stores are closed"])
def test_an_interrupt_before_or_after_the_command_ends_with_130(
    run: Run, monkeypatch: pytest.MonkeyPatch, moment: str
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    if moment == "its stores are closed":
        monkeypatch.setattr(Session, "close", interrupted)
    else:
        monkeypatch.setattr(Root, "parse_args", interrupted)

    assert "interrupted\n" == run("status", code=INTERRUPTED).stderr
