"""Ctrl-C while a process starts: its interpreter has no handlers yet."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock.worker.pool import start_context
from tests.servers.stores import ON_FILES
from tests.worker.worker_processes import WorkerHost

ENGINES = ON_FILES


def test_an_interrupt_does_not_end_a_process_that_starts(capfd: pytest.CaptureFixture[str]):
    process = start_context("spawn").Process(target=time.sleep, args=(0,))  # type: ignore[attr-defined]
    process.start()
    os.kill(process.pid, signal.SIGINT)
    process.join(60)

    assert (0, "") == (process.exitcode, capfd.readouterr().err)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_child_that_takes_jobs_blocks_no_signal(host: WorkerHost):
    job_id = host.put()
    worker = host.worker(processes=1, start_method="spawn")
    host.ended(job_id)

    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in worker.children()]

    assert statuses
    assert [] == [status for status in statuses if "\nSigBlk:\t0000000000000000\n" not in status]
