"""The commands of the guide to the queue have the output shown there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "first-steps.md"
BLOCK = re.compile(r"^```\n(\$ .*?)^```", re.MULTILINE | re.DOTALL)
JOB = re.compile(r"job_[0-9a-f]+")
VARIES = re.compile(r"\bnow\b|\d+ s ago|/\S*?/(?=mill/)")


def steps() -> list[tuple[str, str]]:
    """Commands with the text shown below them, without the one that asks."""
    text = "".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    parts = [part.partition("\n") for part in re.split(r"^\$ penstock ", text, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in parts if "purge" not in command]


def alike(text: str) -> str:
    """The output without times, places and the width of columns."""
    return " ".join(VARIES.sub(" ", text).split())


def test_the_guide_answers_as_it_says(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mill" / "docs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mill")
    typed = steps()
    ids: dict[str, str] = {}

    def real(found: re.Match[str]) -> str:
        """The id in this run for one on the page, or for its beginning."""
        return next(ids[known] for known in ids if known.startswith(found[0]))

    for command, shown in typed:
        answer = run(*shlex.split(JOB.sub(real, command))).stdout
        ids |= dict(zip(JOB.findall(shown), JOB.findall(answer), strict=True))
        assert alike(JOB.sub(real, shown)) == alike(answer), f"$ penstock {command}"
    assert len(typed) > 10
    assert 3 == len(ids)
