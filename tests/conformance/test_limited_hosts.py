"""A limit with workers on two hosts, of which one is killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.queue.job import JobQuery, Status
from penstock.queue.limits import Limit
from tests.conformance import durable_engines
from tests.conformance.conftest import put
from tests.conformance.limit_process import moment
from tests.conformance.test_limits import API, limited

STEP_MS = 500
WINDOW_MS = 60_000


LONG = [pytest.param(engine, marks=pytest.mark.long) for engine in ("postgres", "redis")]


@pytest.mark.parametrize("engine", ["sqlite", *LONG])
def test_a_rate_holds_with_four_workers_on_two_hosts_of_which_one_is_killed(
    engine: str, tmp_path: Path
) -> None:
    """60 a minute within 5 %; the slots of the killed host are free when its leases are lost."""
    queue = durable_engines.opened(engine, tmp_path)
    queue.put_limit(Limit(key=API, concurrent=4, starts=60, period_s=60), now=moment(0))
    put(queue, *limited(150), now=moment(0))

    hosts = [durable_engines.started("limit_process", engine, tmp_path, die_at) for die_at in (30_000, 0)]
    starts = rounds(hosts, range(0, WINDOW_MS + 6_000, STEP_MS))

    ends = [host.communicate(timeout=60) and host.returncode for host in hosts]
    assert [-signal.SIGKILL, 0] == ends
    windows = [
        sum(number for at_ms, number in starts if first <= at_ms < first + WINDOW_MS)
        for first in range(0, 6_001, STEP_MS)
    ]
    # The killed host did not answer its last round, in which it started a job.
    assert all(57 <= number + 1 <= 63 for number in windows), windows
    lost = [job for job in queue.find(JobQuery(limit=1000)) if job.lost_count]
    assert lost
    assert all(job.status is Status.DONE for job in lost)
    assert queue.slots_of(API) <= 4
    queue.close()
    durable_engines.given_back(tmp_path)


def rounds(hosts: list[subprocess.Popen[str]], times: Iterable[int]) -> list[tuple[int, int]]:
    """Tell the hosts one time after the other. Returns the times with the number of started jobs."""
    starts = []
    for host in hosts:
        assert "ready" == said(host)
    for at_ms in times:
        for host in hosts:
            with suppress(BrokenPipeError):
                assert host.stdin is not None
                host.stdin.write(f"{at_ms}\n")
                host.stdin.flush()
        starts.append((at_ms, sum(int(said(host) or 0) for host in hosts)))
    return starts


def said(host: subprocess.Popen[str]) -> str:
    assert host.stdout is not None
    return host.stdout.readline().strip()
