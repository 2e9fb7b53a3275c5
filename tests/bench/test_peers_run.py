"""A run of seconds, with whoever is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from bench.peers import field
from bench.peers.__main__ import Report

ROOT = Path(__file__).resolve().parents[2]


def test_a_quick_run_measures_who_is_there_and_lists_who_is_not(tmp_path):
    report = tmp_path / "report.json"
    # Of the peers one is enough: all of them are what `make peers` is for.
    command = [sys.executable, "-m", "bench.peers", "--quick", "--store", "sqlite", "--dir", str(tmp_path)]
    command += [f"--peer={name}" for name in ("Penstock", "floor", "huey")]
    command += ["--only=drain", "--only=pickup", f"--json={report}"]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert (0, True) == (ran.returncode, report.exists()), ran.stderr
    figures = msgspec.json.decode(report.read_bytes(), type=Report).figures
    assert [field.OURS, field.FLOOR, "huey"] == [each.name for each in figures]
    for each in figures:
        if each.trouble == field.MISSING:
            assert f"{each.name}: {field.MISSING}" in ran.stdout
        else:
            assert ("", True) == (each.trouble, all((each.one, each.many, each.drain[1], each.moments))), each
    assert [] == [path.name for path in tmp_path.iterdir() if path != report]
