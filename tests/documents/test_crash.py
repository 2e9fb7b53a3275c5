"""Crashes: all processes of ``penstock index`` are killed at random; the same command finishes the work."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock, clock, config
from penstock.assembly import Assembly
from penstock.catalog.values import Phase, TaskRequest
from tests.documents.conftest import QUEUES, book
from tests.documents.index_contents import IndexContents, read_index, settled
from tests.documents.worker_commands import kill_tree
from tests.pipeline.mail_samples import mail, message
from tests.pipeline.sample_documents import pdf
from tests.servers.stores import given_back
from tests.worker.worker_processes import ROOT

ENGINES = ("sqlite", "postgres", "jsonl")
"""Queue URLs. With JSONL, the catalog is in a SQLite file."""


class Run:
    """One state directory and the command on it."""

    def __init__(self, state: Path, engine: str, folder: Path) -> None:
        state.mkdir()
        self._state = state
        self._folder = folder
        self._environment = {
            "PENSTOCK_URL": QUEUES[engine](state),
            "PENSTOCK_STATE": str(state),
            "PENSTOCK_EMBEDDER": "hashing",
            "PENSTOCK_SQLITE_SYNCHRONOUS": "NORMAL",
        }

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "index", str(self._folder), "--wait", "--json"],
            cwd=ROOT,
            env=os.environ | self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def killed_after(self, seconds: float) -> bool:
        """Kill the command; returns whether it was still running."""
        with self._begin() as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            running = process.poll() is None
            if running:
                kill_tree(process.pid)
        return running

    def finished(self) -> dict[str, Any]:
        with self._begin() as process:
            try:
                out, _ = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                # Otherwise the next command would wait for it for ever.
                kill_tree(process.pid)
                raise
        assert 0 == process.returncode, out
        result: dict[str, Any] = msgspec.json.decode(out)
        return result

    def read_index(self) -> IndexContents:
        with Penstock(settings=config.load(self._environment)) as app:
            settled(app)
            return read_index(app.documents.catalog, self._folder)

    def close(self) -> None:
        given_back(self._state)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files for the short path, documents long enough for both task lanes, and files inside mail."""
    made = tmp_path_factory.mktemp("files")
    for number in range(120):
        (made / f"{number}.md").write_text(f"# Wheel {number}\n\nWater drives wheel {number} of the mill.")
    (made / "book.md").write_text(book(300))
    (made / "paper.pdf").write_bytes(pdf(*(f"Words of page {number}, water too." for number in range(80))))
    for number in range(5):
        inner = message(f"Inner {number}", f"Grain {number}.", leaf__txt=f"Leaf {number} of grain.".encode())
        note = f"# Bread {number}".encode()
        (made / f"{number}.eml").write_bytes(mail(f"Mail {number}", "See it.", note__md=note, inner=inner))
    return made


def disturbed(tmp_path: Path, engine: str, folder: Path, kills: int, chance: random.Random) -> None:
    calm = Run(tmp_path / "calm", engine, folder)
    began = time.monotonic()
    calm.finished()
    usual = time.monotonic() - began
    expected = calm.read_index()
    assert len(expected.pieces) > 120 + 256 + 80
    killed, rounds = 0, 0
    while killed < kills:
        rounds += 1
        run = Run(tmp_path / f"disturbed-{rounds}", engine, folder)
        # Several times in one index: each run starts from the state that a kill left.
        for _ in range(min(kills - killed, chance.randint(1, 3))):
            if not run.killed_after(chance.uniform(0.2, usual)):
                break
            killed += 1
        began = time.monotonic()
        result = run.finished()
        # If the machine is faster by now, the kill comes too late and does not count.
        usual = max(min(usual, time.monotonic() - began), 0.5)
        assert (0, "done") == (result["counts"]["failed"], result["status"])
        assert expected == run.read_index()
        run.close()


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_killed_at_any_moment_is_finished_by_the_same_command(
    tmp_path: Path, engine: str, folder: Path
):
    disturbed(tmp_path, engine, folder, 2, random.Random())


@pytest.mark.chaos
@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_killed_a_hundred_times(tmp_path: Path, engine: str, folder: Path):
    disturbed(tmp_path, engine, folder, 100, random.Random())


def test_a_task_of_a_silent_worker_is_done_after_its_lease(tmp_path: Path):
    parts = (f"# Part {number}\n\n" + f"Subject {number} of the mill. " * 60 for number in range(300))
    (tmp_path / "a.md").write_text("\n\n".join(parts))
    settings = config.load(
        {}, state_dir=tmp_path / "state", embedder="hashing", task_lease_s=5, heartbeat_s=1, upkeep_s=0.1
    )
    with Penstock(settings=settings) as app:
        app.index(tmp_path / "a.md")
        Assembly(settings).worker(lanes=["jobs"], until_idle=True, start_method="fork").run()
        catalog = app.documents.catalog
        request = TaskRequest(Phase.VECTOR, "silent", 10)
        claimed = catalog.claim(request, now=clock.now() - timedelta(seconds=60))
        assert 10 == len(claimed)
        assert [] == catalog.expired(lease=timedelta(seconds=120))

        Assembly(settings).worker(until_idle=True, start_method="fork").run()

        assert [] == catalog.held("silent")
        assert ["a.md"] == [Path(hit.path).name for hit in app.search("mill", mode="vector", limit=1)]
