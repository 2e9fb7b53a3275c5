"""Leftovers: processes and files that a stopped deployment should not have left."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import leftovers


def test_a_process_with_the_mark_is_found_while_it_runs():
    environ = os.environ | {"CHAOS_MARK": "mill"}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE) as process:
        (found,) = leftovers.processes("CHAOS_MARK=mill", patience_s=0)
        process.communicate(b"\n")

    assert f"process {process.pid} " in found
    assert [] == leftovers.processes("CHAOS_MARK=mill")


def test_files_that_do_not_belong_in_a_state_directory():
    kept = ["queue.db", "queue.db-wal", "queue/jobs/index_queue.log.1", "vectors/ab/default-hashing.vectors"]
    left = ["queue/jobs/index_queue.snapshot.tmp", "workers/0af3/w1.state", "vectors/x", "queue.db.young"]
    assert left == leftovers.unexpected([*kept, *left])


def test_files_are_named_by_their_path_below_the_folder(tmp_path: Path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.txt").touch()
    assert ["a/b/c.txt"] == leftovers.files_below(tmp_path)


def test_shared_memory_of_a_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path)
    with (tmp_path / "mill").open("w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096):
            assert {"mill"} == leftovers.mapped_memory([os.getpid()])
    assert set() == leftovers.mapped_memory([os.getpid()])
