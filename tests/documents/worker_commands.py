"""Commands for worker processes, which may be killed in the middle of a command.

``python -m tests.documents.worker_commands SETTINGS COMMANDS TOGETHER``: submits one command after the other
has ended, or (1) all at once, together with any unfinished work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.service.requests import Submission
from tests.worker.worker_processes import ROOT, children_of

STARTED = b"started\n"


class Driver:
    """One index, and its worker processes."""

    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings
        self._values = msgspec.json.encode(config.portable_values(settings), enc_hook=str).decode()

    def run(self, commands: list[Submission], *, together: bool = False) -> None:
        """Run commands to the end, one by one, or all at once with any unfinished work."""
        with self._begun(commands, together) as process:
            process.communicate(timeout=120)
        assert 0 == process.returncode

    def killed(self, commands: list[Submission], after: float, *, together: bool = False) -> bool:
        """Run commands and kill all processes after some seconds; returns whether they were still running."""
        with self._begun(commands, together) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            if process.poll() is not None:
                assert 0 == process.returncode
                return False
            kill_tree(process.pid)
        return True

    def _begun(self, commands: list[Submission], together: bool) -> subprocess.Popen[bytes]:
        given = [self._values, msgspec.json.encode(commands).decode(), str(int(together))]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.documents.worker_commands", *given],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        # Wait until the interpreter has started: before that, a kill tests nothing.
        assert STARTED == process.stdout.readline()
        return process


def kill_tree(pid: int) -> None:
    for each in [pid, *children_of(pid)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def loaded(values: str) -> config.Settings:
    given: dict[str, Any] = msgspec.json.decode(values)
    return config.load({}, **given | {"state_dir": Path(given["state_dir"])})


def main() -> None:
    settings = loaded(sys.argv[1])
    commands: list[Submission] = msgspec.json.decode(sys.argv[2])
    together = sys.argv[3] == "1"
    sys.stdout.buffer.write(STARTED)
    sys.stdout.flush()
    with Penstock(settings=settings) as app:
        if together:
            app.submit_many(commands)
            Assembly(settings).worker(processes=2, until_idle=True, start_method="fork").run()
            return
        for command in commands:
            job_id = app.submit(**command).job_id
            Assembly(settings).worker(processes=2, until_job=job_id, start_method="fork").run()


if __name__ == "__main__":
    main()
