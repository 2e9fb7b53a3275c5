"""Gateways, workers and Redis killed at random moments, again and again, while messages pour in."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from penstock import Penstock
from tests.redis_contract.conftest import Town
from tests.redis_contract.killed_gateway import start_gateway
from tests.redis_contract.test_crash import all_ended, assert_once, ended, pushed
from tests.servers.redis import Server, own_server
from tests.worker.worker_processes import ROOT, until

KILLS = 40
BATCH = 15


class Running:
    """Processes, restarted as soon as they end."""

    def __init__(self, town: Town, server: Server, chance: random.Random) -> None:
        self._town = town
        self._server = server
        self._chance = chance
        self._gateways = [start_gateway(town.settings) for _ in range(3)]
        self._worker = self._new_worker()

    def _new_worker(self) -> subprocess.Popen[bytes]:
        settings = self._town.settings
        command = [sys.executable, "-m", "penstock", "worker", "--processes", "2", "--start-method", "fork"]
        env = os.environ | {
            "PENSTOCK_STATE": str(settings.state_dir),
            "PENSTOCK_URL": settings.url,
            "PENSTOCK_EMBEDDER": "hashing",
            "PENSTOCK_UPKEEP_S": "1",
        }
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=quiet, stderr=quiet, start_new_session=True
        )

    def kill_one(self) -> str:
        what = self._chance.choice(["gateway"] * 5 + ["worker", "redis", "redis and gateway"])
        if "gateway" in what:
            number = self._chance.randrange(3)
            self._gateways[number].kill()
            self._gateways[number].wait()
        if "redis" in what:
            self._server.kill()
            self._server.start()
        if "gateway" in what:
            self._gateways[number] = start_gateway(self._town.settings)
        if what == "worker":
            self._kill_worker()
            self._worker = self._new_worker()
        return what

    def revive(self) -> None:
        """Restart ended gateways: one started while Redis was away ends with an error."""
        for number, gateway in enumerate(self._gateways):
            if gateway.poll() is not None:
                self._gateways[number] = start_gateway(self._town.settings)

    def _kill_worker(self) -> None:
        """Kill all processes of the worker, also one being started."""
        with suppress(ProcessLookupError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait()

    def stop(self) -> None:
        self._kill_worker()
        for gateway in self._gateways:
            gateway.kill()
            gateway.wait()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    options = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
    with own_server(tmp_path / "redis", *options) as server:
        town = Town(tmp_path, server.url)
        running = Running(town, server, chance)
        expected: dict[str, str] = {}
        story = []
        try:
            for _ in range(KILLS):
                expected |= pushed(town, BATCH, bad_every=5, first=len(expected))
                goal = chance.randrange(len(expected) + 1)
                _until_ended(town, expected, goal, running)
                story.append(running.kill_one())
            _until_ended(town, expected, len(expected), running)
        except AssertionError as error:
            left = {job_id: town.hash(job_id) for job_id in expected if not _is_ended(town, job_id)}
            raise AssertionError(json.dumps([story[-5:], left, town.left_over()], indent=1)) from error
        finally:
            running.stop()
        assert all_ended(town, expected)()
        assert_once(town, expected)
        _assert_all_found(town.app, expected)
        town.close()


def _until_ended(town: Town, expected: dict[str, str], goal: int, running: Running) -> None:
    def reached() -> bool:
        running.revive()
        try:
            return ended(town, expected) >= goal
        except redis.exceptions.ConnectionError:
            return False

    until(reached, 120)


def _is_ended(town: Town, job_id: str) -> bool:
    return town.hash(job_id).get("status") in ("done", "failed")


def _assert_all_found(app: Penstock, expected: dict[str, str]) -> None:
    done = sum(status == "done" for status in expected.values())
    assert done == sum(one.sources for one in app.documents.overview().tenants)
    assert [] == app.documents.catalog.audit()
