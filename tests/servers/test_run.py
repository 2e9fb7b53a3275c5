"""The end of a test run: nothing of it is left, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import postgres, run
from tests.worker.worker_processes import alive, until

ROOT = Path(__file__).resolve().parents[2]
LEADER = """
import subprocess, sys, time
from types import SimpleNamespace
from tests.servers import redis, run
run.begin(SimpleNamespace())
process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
server = redis.Server(run.place() / "redis")
server.start()
print(run.place(), process.pid, server.process.pid, flush=True)
time.sleep(600)
"""
USING = """
import sys
from tests.servers import postgres, redis, run
with run.whole_run():
    {"redis": redis.server_url, "postgres": postgres.fresh_store}[sys.argv[1]]()
"""
RESERVING = """
import sys
from tests.servers import run
for port in sys.argv[1:]:
    try:
        run._reserve(int(port))
    except OSError:
        print(port)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_run_started_ends_with_it(number: signal.Signals):
    command = [sys.executable, "-c", LEADER]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as leader:
        assert leader.stdout is not None
        place, *pids = leader.stdout.readline().split()
        started = [int(pid) for pid in pids]
        assert started == alive(started)
        leader.send_signal(number)
    until(lambda: not alive(started) and not Path(place).exists())


@pytest.mark.parametrize("engine", ["redis", pytest.param("postgres", marks=pytest.mark.long)])
def test_servers_that_outlive_a_process_are_not_warned_of(engine: str):
    environ = {name: value for name, value in os.environ.items() if name not in (run.PLACE, postgres._HOME)}
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", USING, engine]

    ended = subprocess.run(
        command, cwd=ROOT, env=environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )

    assert "" == ended.stderr


def test_a_port_is_chosen_once():
    ports = [run.free_port() for _ in range(20)]

    command = [sys.executable, "-c", RESERVING, *map(str, ports)]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert ports == [int(line) for line in other.stdout.split()]
    assert len(set(ports)) == len(ports)


def test_a_second_port_of_a_server_is_chosen_with_the_first():
    ports = [run.free_port(second=10_000) + 10_000 for _ in range(20)]

    command = [sys.executable, "-c", RESERVING, *map(str, ports)]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert ports == [int(line) for line in other.stdout.split()]
    assert max(ports) < 30_000
