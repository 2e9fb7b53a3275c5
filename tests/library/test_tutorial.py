"""The commands of the tutorial have the output shown there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.library.conftest import ROOT

PAGE = ROOT / "docs/guides/index-a-folder.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIES = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+\.\d s\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|/\S*?/(?=mill/)"
)


def steps() -> list[tuple[str, list[str]]]:
    """Commands with the lines shown below them, up to where a worker is left running."""
    found: list[tuple[str, list[str]]] = []
    for line in "".join(BLOCK.findall(PAGE.read_text(encoding="utf-8"))).splitlines():
        if line.startswith("$ penstock worker"):
            break
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def alike(text: str) -> str:
    """The output without ids, times and paths."""
    return " ".join(VARIES.sub(" ", text).split())


def test_the_tutorial_answers_as_it_says(tmp_path: Path):
    typed = steps()
    script = "\n".join(f"echo @step; {command} 2>/dev/null" for command, _ in typed)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
    run = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = run.stdout.split("@step\n")[1:]

    assert len(typed) == len(answers) > 10
    for (command, shown), answer in zip(typed, answers, strict=True):
        got = {alike(line) for line in answer.splitlines()}
        missing = [line for line in shown if alike(line) not in got]
        assert not missing, f"$ {command}\n{answer}"


def test_its_python_runs(run_page: Any, capsys: Any):
    run_page("docs/guides/index-a-folder.md")
    assert "race.md 1 The race leads the water past the wheel." in capsys.readouterr().out
