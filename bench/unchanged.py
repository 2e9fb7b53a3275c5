"""What a second run over an unchanged tree costs: next to a bare loop that looks and skips, and to git."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import Spent, counted_run, index_command
from bench.plan import Plan
from bench.results import Line, most

BUDGET = 1.0
A_FOLDER = 100


class Pass(NamedTuple):
    """Seconds of CPU, and on the clock."""

    cpu: float
    wall: float


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine not in ("sqlite", "jsonl"):
        # The catalog is the same there.
        return
    with tempfile.TemporaryDirectory(dir=plan.directory) as below:
        place = Path(below)
        folder, line = tree(place / "files", plan.unchanged_files), tree(place / "line", 1)
        for one in (folder, line):
            _commit(one)
        runs = _runs(engine, place, folder)
        start = _runs(engine, place, line)
        for run in (*runs.values(), *start.values()):
            run.first()
        idle = {
            name: min((start[name].again() for _ in range(3)), key=lambda each: each.cpu) for name in runs
        }
        passes: dict[str, list[Pass]] = {name: [] for name in runs}
        for _ in range(plan.pipeline_runs):
            for name, run in runs.items():
                passes[name].append(run.again())
    yield from _lines(engine, f"{plan.unchanged_files:,} unchanged files", passes, idle)


def tree(folder: Path, number: int) -> Path:
    for at in range(number):
        path = folder / f"{at // A_FOLDER:04}" / f"{at:06}.md"
        if at % A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_text(f"Note {at} about water and wheel {at % 97}.\n")
    return folder


def _commit(folder: Path) -> None:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, stdout=subprocess.DEVNULL)


class Run(NamedTuple):
    """A command over a tree."""

    command: list[str]
    environment: dict[str, str]

    def first(self) -> None:
        """Run where there is everything to do."""
        self._counted()

    def again(self) -> Pass:
        """Run where nothing has changed; an error if something had."""
        began = time.monotonic()
        spent = self._counted()
        result = spent.output.get("result")
        if isinstance(result, dict) and result.get("changed", 0) + result.get("added", 0):
            raise RuntimeError(f"something had changed: {result}")
        return Pass(spent.cpu, time.monotonic() - began)

    def _counted(self) -> Spent:
        return counted_run(self.command, self.environment, decoded=self.command[0] != "git")


def _runs(engine: str, place: Path, folder: Path) -> dict[str, Run]:
    state = place / f"state-{folder.name}"
    floor = [sys.executable, "-m", "bench.unchanged_floor", str(folder)]
    stores = {how: f"{place}/{folder.name}-{how}.db" for how in ("plain", "tight")}
    return {
        "ours": Run(*index_command(engine, folder, state, 1, "hashing")),
        "plain": Run([*floor, stores["plain"], "plain"], {}),
        "tight": Run([*floor, stores["tight"], "tight"], {}),
        "git": Run(["git", "-C", str(folder), "status", "--porcelain"], {}),
    }


def _lines(engine: str, what: str, passes: dict[str, list[Pass]], idle: dict[str, Pass]) -> Iterator[Line]:
    """Less what the same command takes for a tree of one file: interpreters are started once."""
    net = {name: [run.cpu - idle[name].cpu for run in runs] for name, runs in passes.items()}
    for name, label in (("plain", "a loop with a SELECT a file"), ("tight", "a loop over a dict")):
        ground = min(net[name])
        ratios, floor = [each / ground for each in net["ours"]], [each / ground for each in net[name]]
        budget = BUDGET if name == "plain" else None
        yield most(engine, f"{what}, CPU, by {label}", "x bare", ratios, floor, budget=budget)
    for number, unit in ((0, "CPU"), (1, "wall")):
        ours = [run[number] for run in passes["ours"]]
        for name in ("plain", "git"):
            other = [run[number] for run in passes[name]]
            yield most(engine, f"{what}, whole command, {unit}, {name}", "s", ours, other, budget=None)
