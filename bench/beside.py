"""Pick-up of small jobs while a worker of two processes indexes a large text file, next to an idle worker."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.catalog import texts
from bench.pickup import quantile
from bench.plan import Plan
from bench.results import Line, most
from bench.stores import fresh_directory
from penstock import Penstock, config

LARGE_BYTES = 15 << 20
PATIENCE_S = 300.0
MIDDLE, WORST = 1.5, 5.0
"""Times the idle worker's, at most."""

_COMMAND = (sys.executable, "-m", "penstock", "worker", "--app", "bench.apps.ours:app", "--processes", "2")


class Pickups(NamedTuple):
    """Milliseconds from the call to the first line of a function, or to the claim of a note."""

    calls: list[float]
    notes: list[float]
    released: int
    """Times that one of these jobs was claimed and given back."""


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine not in ("sqlite", "jsonl"):
        return
    rounds = [one_round(engine, plan) for _ in range(plan.pickup_rounds)]
    for what in ("calls", "notes"):
        pairs = [(getattr(idle, what), getattr(beside, what)) for idle, beside in rounds]
        for name, part, budget in (("p50", 0.5, MIDDLE), ("worst", 1.0, WORST)):
            ratios = [_part(beside, part) / _part(idle, part) for idle, beside in pairs]
            told = f"{what} beside a large file, {name}"
            yield most(engine, told, "x idle", ratios, [1.0], budget=budget)
            ours = ", ".join(
                f"{_part(idle, part):.1f} -> {_part(beside, part):.1f}" for idle, beside in pairs
            )
            print(f"    {told}: {ours} ms", file=sys.stderr)


def _part(values: list[float], part: float) -> float:
    return max(values) if part == 1.0 else quantile(values, part)


def one_round(engine: str, plan: Plan) -> tuple[Pickups, Pickups]:
    """The same worker while it is idle, and from the moment the large file is queued until it is indexed."""
    with fresh_directory(plan.directory) as directory:
        large = directory / "large.txt"
        large.write_text(large_text())
        environment, app = _opened(engine, directory)
        with app, _worker(environment):
            app.wait(app.call("moment", {}).job_id, timeout=PATIENCE_S)
            idle = _pickups(app, plan.pickups)
            job_id = app.index(large, project=False).job_id
            beside = _pickups(app, None, job_id)
    return idle, beside


def large_text() -> str:
    (paragraphs,) = texts(1, 400)
    text = "\n\n".join(paragraphs)
    numbered = (f"{number} {text}\n\n" for number in range(LARGE_BYTES // len(text) + 1))
    return "".join(numbered)[:LARGE_BYTES]


def _pickups(app: Penstock, most_pairs: int | None, until_job: str | None = None) -> Pickups:
    calls: list[float] = []
    notes: list[float] = []
    released = 0
    while len(calls) < most_pairs if most_pairs is not None else not app.job(until_job or "").ended:
        # Not in step with anything the worker does by the clock.
        time.sleep(random.uniform(0.01, 0.05))
        start = time.monotonic()
        receipt = app.call("moment", {})
        job = app.wait(receipt.job_id, timeout=PATIENCE_S)
        calls.append((app.result(receipt.job_id) - start) * 1000)
        released += len(job.history)
        content = f"A note, the {len(notes)}th of {time.monotonic()}."
        receipt = app.submit(item_type="content", op="ingest", payload={"content": content})
        job = app.wait(receipt.job_id, timeout=PATIENCE_S)
        assert job.started_at is not None
        notes.append((job.started_at - job.created_at).total_seconds() * 1000)
        released += len(job.history)
    return Pickups(calls, notes, released)


def _opened(engine: str, directory: Path) -> tuple[dict[str, str], Penstock]:
    url = {"sqlite": f"sqlite:///{directory}/queue.db", "jsonl": f"jsonl://{directory}/queue"}[engine]
    environment = {"PENSTOCK_URL": url, "PENSTOCK_STATE": str(directory / "state")}
    app = Penstock(settings=config.load(environment))
    app.function("moment")(lambda payload: payload)
    return environment, app


@contextmanager
def _worker(environment: dict[str, str]) -> Iterator[None]:
    worker = subprocess.Popen(_COMMAND, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(timeout=60)
