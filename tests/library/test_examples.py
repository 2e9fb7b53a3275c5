"""The examples run, and what they say is true: each asserts it itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_planner_finds_the_answer_with_a_real_worker():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    ran = subprocess.run(
        [sys.executable, "-m", "examples.planner.run"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert 0 == ran.returncode, ran.stderr
    # The books are in use the first time, which is logged; nothing else is.
    for line in ran.stderr.splitlines():
        assert "(function execute_sql_worker) failed in attempt 1 of 4 and is tried again" in line
        assert line.endswith("TransientFailure: the books are in use")
    assert "Upper ground 21 sacks" in ran.stdout
    assert "COMPLETED  execute_sql_worker        p1-w1   after 1 retry" in ran.stdout
