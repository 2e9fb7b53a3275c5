"""SIGKILL at random moments: whatever was going on, nothing is out of joint afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from random import Random
from time import sleep

import pytest

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import UNFINISHED
from penstock.catalog.values import Phase, Place, TaskRequest
from tests.catalog.conftest import CATALOGS, VECTOR, completed_graph, found, page, put
from tests.conformance.durable_engines import given_back

ROOT = Path(__file__).resolve().parent.parent.parent


KILLS = [8, pytest.param(24, marks=pytest.mark.long), pytest.param(100, marks=pytest.mark.chaos)]


@pytest.mark.parametrize("name", CATALOGS)
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_process_leaves_nothing_out_of_joint(name: str, kills: int, tmp_path: Path):
    catalog = CATALOGS[name](tmp_path)
    random = Random(kills)
    kept: set[str] = set()
    command = [sys.executable, "-m", "tests.catalog.crash_process", name, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as crew:
        assert crew.stdin is not None
        assert crew.stdout is not None
        for number in range(kills):
            crew.stdin.write(f"{number}\n")
            pid = int(crew.stdout.readline())
            # Some die while they begin, most in the midst of work, which a database server is slow to begin.
            first = [crew.stdout.readline()] if number % 4 else []
            # The moment is the point here: a time, not a state.
            sleep(random.uniform(0.02, 0.25))
            os.kill(pid, signal.SIGKILL)
            said = [*first, *iter(crew.stdout.readline, "gone\n")]
            assert [] == [line for line in said if line.startswith("error")]
            kept |= {line.removeprefix("kept ").strip() for line in said}
            assert [] == catalog.audit()
            with catalog.snapshot() as snapshot:
                known = snapshot.known(Place("acme", "kept"), limit=100_000)
            # What was answered is there, though whoever was answered is not.
            assert kept <= {source.path for source in known if source.published_id is not None}
        crew.stdin.close()
    # All but every fourth lived until it had kept something; how much more they did depends on the machine.
    assert len(kept) >= kills * 3 // 4
    _finish(catalog)
    put(catalog, "/after.md", page("still working"), asked_at=clock.now())
    assert {"still working"} == found(catalog, "still")
    catalog.close()
    given_back(tmp_path)


def _finish(catalog: Catalog) -> None:
    """The next process picks everything up: claims given back, all tasks done, the outbox emptied."""
    catalog.settle([publication.released(claim) for claim in catalog.held("victim")])
    for document_id in catalog.unfinished(silent=timedelta(0), limit=1000):
        assert catalog.drop(document_id, UNFINISHED)
    for _ in range(10):
        for entry in catalog.outbox(limit=1000):
            catalog.clear([entry.entry_id])
        for lane in Phase:
            _do(catalog, lane)
    assert [] == catalog.outbox()
    assert [] == catalog.audit()
    with catalog.snapshot() as snapshot:
        assert 0 == sum(snapshot.open_tasks(lane) for lane in Phase)


def _do(catalog: Catalog, lane: Phase) -> None:
    while tasks := catalog.claim(TaskRequest(lane, "next", 100)):
        done = {
            Phase.OCR: lambda task: publication.completed_page(task, page("done", number=task.page_number)),
            Phase.VECTOR: lambda task: publication.completed_vector(task, VECTOR),
            Phase.GRAPHRAG: lambda task: completed_graph(task, 1, 1),
        }[lane]
        catalog.settle([done(task) for task in tasks])
