"""A run of seconds, with whoever is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.peers import field
from bench.peers.__main__ import Report
from bench.peers.figures import Figures

ROOT = Path(__file__).resolve().parents[2]


def run(directory: Path, *arguments: str) -> tuple[list[Figures], str]:
    """What it wrote and what it said."""
    report = directory / "report.json"
    # Of the peers one is enough: all of them are what `make peers` is for.
    peers = [f"--peer={name}" for name in ("Penstock", "floor", "huey")]
    places = [f"--dir={directory}", f"--json={report}"]
    command = [sys.executable, "-m", "bench.peers", "--quick", *peers, *places, *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (0, True) == (ran.returncode, report.exists()), ran.stderr
    assert [report] == list(directory.iterdir())
    return msgspec.json.decode(report.read_bytes(), type=Report).figures, ran.stdout


@pytest.mark.long
def test_a_quick_run_measures_who_is_there_and_lists_who_is_not(tmp_path):
    figures, said = run(tmp_path, "--store=sqlite", "--only=drain", "--only=pickup")

    assert [field.OURS, field.FLOOR, "huey"] == [each.name for each in figures]
    for each in figures:
        if each.trouble == field.MISSING:
            assert f"{each.name}: {field.MISSING}" in said
        else:
            assert "" == each.trouble
            assert all((each.one, each.many, each.drain[1], each.moments))


@pytest.mark.long
def test_what_a_server_counts_is_divided_by_the_jobs(tmp_path):
    (ours, _), _ = run(tmp_path, "--store=redis", "--only=two")

    assert field.OURS == ours.name
    assert ours.counted, ours.trouble
    (commands,) = ours.counted["commands"]
    assert 1 < commands < 100
