"""Tasks of one entity never overlap and keep their order, while tasks of others run beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Penstock, config
from penstock.queue.job import Status
from tests.worker.worker_processes import WorkerHost


def check_order(host: WorkerHost, processes: int, entities: int, tasks: int, seconds: float) -> None:
    host.queue.add(
        [
            host.new("sleep", payload={"seconds": seconds}, lock_key=f"worker:w{entity}")
            for _ in range(tasks)
            for entity in range(entities)
        ]
    )

    assert 0 == host.worker(processes=processes, until_idle=True).ended(1200)

    assert entities * tasks == host.count(Status.DONE)
    began = {line[1]: line for line in host.recorded("began")}
    ended = {line[1]: line for line in host.recorded("ended")}
    by_entity: defaultdict[str | None, list[str]] = defaultdict(list)
    for job in host.jobs():
        by_entity[job.lock_key].append(job.queue_id)
    assert {tasks} == {len(ids) for ids in by_entity.values()}
    for ids in by_entity.values():
        # In the order they were added, each after the one before had ended.
        assert all(float(ended[one][4]) <= float(began[other][4]) for one, other in pairwise(ids))
    assert overlaps(began, ended) > 0


def overlaps(began: dict[str, list[str]], ended: dict[str, list[str]]) -> int:
    """Count how often a job began in one process while one ran in another."""
    in_order = sorted(began.values(), key=lambda line: float(line[4]))
    return sum(
        one[3] != other[3] and float(other[4]) < float(ended[one[1]][4]) for one, other in pairwise(in_order)
    )


APP = """
import os, time
from penstock import Penstock

app = Penstock({url!r}, state_dir={state!r})
record = os.open({record!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def write(*words):
    os.write(record, (" ".join(map(str, words)) + "\\n").encode())

@app.function("hello")
def hello(payload):
    write("hello", os.getpid())
    time.sleep(0.1)

@app.function("note")
def note(payload):
    write(payload["entity"], payload["number"], "began")
    write(payload["entity"], payload["number"], "ended")
"""
ENTITIES, CALLS = 20, 12


def test_the_command_with_4_processes_does_the_calls_of_an_entity_in_order(host: WorkerHost, tmp_path: Path):
    record, state = tmp_path / "notes", tmp_path / "state"
    record.touch()
    (tmp_path / "tasks.py").write_text(APP.format(url=host.url, state=str(state), record=str(record)))

    def recorded() -> list[list[str]]:
        return [line.split() for line in record.read_text().splitlines()]

    with Penstock(settings=config.load({}, url=host.url, state_dir=state)) as app, working(tmp_path):
        for name in ("hello", "note"):
            app.function(name)(lambda payload: None)
        # All processes are up and idle, and claim the first calls at the same moment.
        while len({line[1] for line in recorded() if line[0] == "hello"}) < 4:
            hello = app.call_many([{"name": "hello"}] * 8)
            app.wait(hello[-1].job_id, timeout=120)
        notes: list[Any] = [
            {"name": "note", "payload": {"entity": e, "number": n}, "entity": ("customer", str(e))}
            for n in range(CALLS)
            for e in range(ENTITIES)
        ]
        for each in [receipt.job_id for receipt in app.call_many(notes)][-ENTITIES:]:
            app.wait(each, timeout=240)

    expected = [[str(n), what] for n in range(CALLS) for what in ("began", "ended")]
    for entity in range(ENTITIES):
        assert expected == [line[1:] for line in recorded() if line[0] == str(entity)]


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """Run ``penstock worker --processes 4`` beside the test."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    clean["PYTHONPATH"] = str(Path(penstock.__file__).resolve().parents[1])
    options = ["--app", "tasks:app", "--processes", "4", "--start-method", "fork"]
    command = [sys.executable, "-m", "penstock", "worker", *options]
    process = subprocess.Popen(command, cwd=folder, env=clean)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.chaos
def test_two_processes_and_a_few_entities(host: WorkerHost):
    # Long enough for the second process to start while the first is still working.
    check_order(host, processes=2, entities=20, tasks=6, seconds=0.03)


@pytest.mark.chaos
def test_4_processes_200_entities_and_50_tasks_each(host: WorkerHost):
    check_order(host, processes=4, entities=200, tasks=50, seconds=0.001)
