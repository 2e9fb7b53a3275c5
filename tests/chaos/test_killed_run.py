"""A chaos run that is killed leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import leftovers
from tests.servers import run
from tests.worker.worker_processes import ROOT, until


@pytest.mark.long
def test_all_that_a_killed_run_started_ends_with_it(tmp_path: Path):
    command = [sys.executable, "-m", "tests.chaos", "--engines", "sqlite", "--minutes", "5"]
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL) as process:
        (queue,) = until(lambda: [*tmp_path.glob("*/sqlite/state/queue.db")])
        mark = f"{run.PLACE}={queue.parents[2]}"
        before = leftovers.processes(mark, patience_s=0)
        process.kill()

    assert any("penstock worker" in each for each in before)
    assert [] == leftovers.processes(mark)
    until(lambda: [] == [*tmp_path.iterdir()])
