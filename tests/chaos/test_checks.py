"""Checks after a run of chaos: what counts as an error in a log."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.checks import tracebacks


def errors_of(code: str, *arguments: str, descriptors: tuple[int, ...] = ()) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, pass_fds=descriptors, capture_output=True, text=True, timeout=120, check=False
    ).stderr


def log_of_orphan(sent: bytes) -> str:
    """What a new process writes whose parent sent only these bytes and was killed."""
    pipe, parent = os.pipe()
    os.write(parent, sent)
    os.close(parent)
    start = f"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd={pipe}, pipe_handle={pipe})"
    log = errors_of(start, "--multiprocessing-fork", descriptors=(pipe,))
    os.close(pipe)
    return log


@pytest.mark.parametrize("sent", [b"", pickle.dumps({"name": "worker" * 10})[:40]])
def test_a_process_whose_parent_was_killed_at_its_start_is_no_error(tmp_path: Path, sent: bytes) -> None:
    log = log_of_orphan(sent)
    assert "Traceback" in log
    (tmp_path / "server.log").write_text(f"started\n{log}")

    assert not list(tracebacks(tmp_path))


def test_the_end_of_other_input_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(errors_of("import pickle; pickle.loads(b'')"))

    assert ["log of server: EOFError: Ran out of input"] == list(tracebacks(tmp_path))
