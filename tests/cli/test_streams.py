"""Closed, full or abandoned standard streams, and a low limit of open files."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock
from tests.power_loss.recording import COMPILER
from tests.worker.faults import Faults

OUTPUT = "Redirect the output to a writable file, or to /dev/null."
CLOSED = f"error: standard output is closed (ERR_OUTPUT). {OUTPUT}\n"
FULL = f"error: standard output cannot be written (No space left on device) (ERR_OUTPUT). {OUTPUT}\n"
LIMIT = "(ERR_TOO_MANY_FILES). Raise the limit on open files, for example with: ulimit -n 1024\n"


def shell(place: Path, line: str) -> tuple[int, str, str]:
    """Run a line in which PENSTOCK stands for the command."""
    command = f"{sys.executable} -P -m penstock"
    done = subprocess.run(
        ["bash", "-c", line.replace("PENSTOCK", command)],
        cwd=place,
        env={**os.environ, "PENSTOCK_STATE": str(place / "state")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("PENSTOCK queue stats >&-", (1, "", CLOSED)),
        ("PENSTOCK --json queue stats >&- <&-", (1, "", CLOSED)),
        ("PENSTOCK worker --until-idle >&-", (1, "", CLOSED)),
        ("PENSTOCK queue stats >&- 2>&-", (1, "", "")),
        ("PENSTOCK config show >/dev/full", (1, "", FULL)),
        ("PENSTOCK queue --help >/dev/full", (1, "", FULL)),
        ("PENSTOCK --version >/dev/full", (1, "", FULL)),
        ("PENSTOCK --json queue show nothing >/dev/full", (4, "", FULL)),
        ("PENSTOCK config show | true; exit ${PIPESTATUS[0]}", (141, "", "")),
        ("PENSTOCK --help | true; exit ${PIPESTATUS[0]}", (141, "", "")),
        ("PENSTOCK queue list <&- 2>&-", (0, "No jobs match.\n", "")),
        (
            "PENSTOCK queue add content ingest --payload - <&-",
            (
                1,
                "",
                "error: --payload: standard input is empty or closed (ERR_INVALID_PAYLOAD). "
                "Pipe a JSON object into the command, or give @FILE.\n",
            ),
        ),
    ],
)
def test_a_stream_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, line: str, expected: tuple[int, str, str]
):
    assert expected == shell(tmp_path, line)


def test_what_asks_and_gets_no_answer_says_how_to_go_on(tmp_path: Path):
    code, _, err = shell(tmp_path, "PENSTOCK delete-tenant mill <&-")

    assert 1 == code
    refused = "confirmation is required, but standard input is not a terminal (ERR_INVALID_REQUEST)"
    assert f"error: {refused}. Add --yes.\n" == err


def test_a_no_on_the_terminal_changes_nothing(tmp_path: Path):
    controller, terminal = pty.openpty()
    os.write(controller, b"n\n")

    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path), "delete-tenant", "mill"]
    asked = subprocess.run(command, stdin=terminal, capture_output=True, text=True)
    os.close(terminal)
    os.close(controller)

    assert (1, "Nothing was removed.\n") == (asked.returncode, asked.stdout)
    assert asked.stderr.startswith("Remove all documents and jobs of tenant mill? [y/N]: ")
    assert not (tmp_path / "queue.db").exists()


def test_a_store_never_gets_the_number_of_a_closed_stream(tmp_path: Path):
    url = f"jsonl://{tmp_path}/journal"
    add = f"PENSTOCK --url {url} queue add content ingest --text 'The mill runs.'"

    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        assert 0 == shell(tmp_path, f"{add} --force {closed}")[0]

    code, out, _ = shell(tmp_path, f"PENSTOCK --url {url} queue list --json")
    assert (0, 3) == (code, out.count('"job_id"'))


@pytest.mark.parametrize("limit", [8, 20])
@pytest.mark.parametrize("command", ["index mill.md", "status --json", "worker --until-idle"])
def test_too_few_open_files_are_told_with_the_remedy(tmp_path: Path, command: str, limit: int):
    (tmp_path / "mill.md").write_text("The mill runs.\n")

    code, out, err = shell(tmp_path, f"ulimit -n {limit}; PENSTOCK {command}")

    # With 20 files, commands which need few can run.
    assert code in ((7,) if limit == 8 else (7, 0)), err
    if code:
        told = out if "--json" in command else err
        assert "ERR_TOO_MANY_FILES" in told
        assert "--json" in command or err.endswith(LIMIT)


@pytest.mark.parametrize("limit", [12, 20])
def test_a_server_with_too_few_open_files_is_refused_in_one_line(tmp_path: Path, limit: int):
    code, out, err = shell(tmp_path, f"ulimit -n {limit}; PENSTOCK serve --port 0")

    needs = f"error: a server needs at least 64 open files; the limit is {limit} "
    assert (7, "", needs + LIMIT) == (code, out, err)


def test_a_server_raises_its_limit_on_open_files_as_far_as_it_may(tmp_path: Path):
    """Below the number of connections, clients could take all files from the stores."""
    code = "import resource; from penstock.http import server; server._raise_open_files(); "
    code += "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    python = f"{sys.executable} -P -c '{code}'"

    assert (0, "900 900\n", "") == shell(tmp_path, f"ulimit -Sn 100; ulimit -Hn 900; {python}")
    assert (0, "2528 4000\n", "") == shell(tmp_path, f"ulimit -Sn 100; ulimit -Hn 4000; {python}")


@pytest.mark.skipif(
    COMPILER is None and not os.environ.get("CI"), reason="the disk is made full by a library in C"
)
@pytest.mark.parametrize(
    ("command", "file"),
    [("serve --no-auth --no-worker --port 0", "server.json"), ("keys add mill", "keys.made")],
)
def test_a_full_disk_is_not_taken_for_an_output_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, file: str
):
    faults = Faults(tmp_path, f"{tmp_path}/state")
    for name, value in faults.environment.items():
        monkeypatch.setenv(name, value)

    # Open stores can be read on a full disk: the first file to be written is that of the command.
    with Penstock(state_dir=tmp_path / "state") as app:
        app.documents.note("The mill takes in water.")
        with faults.on(disk_full=True):
            code, _, said = shell(tmp_path, f"PENSTOCK {command}")

    path = f"{tmp_path}/state/{file}"
    assert 7 == code
    assert (
        f"error: {path} cannot be written (No space left on device) (ERR_DISK_FULL). "
        "Free some space and try again.\n" == said.splitlines(keepends=True)[-1]
    )
