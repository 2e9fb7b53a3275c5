"""The steps of one side on one folder, each command in a new process."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.pipeline_peers import corpus
from bench.pipeline_peers.command import Failed, Spent, run
from bench.pipeline_peers.field import Side
from bench.pipeline_peers.figures import Figures, Run

CHANGES: dict[str, Callable[[Path], None]] = {
    "edited": corpus.edit,
    "renamed": corpus.rename,
    "deleted": corpus.delete,
}


class Place:
    """A copy of a corpus and an empty state for one side."""

    def __init__(self, side: Side, python: Path, source: Path, below: Path) -> None:
        self._side, self._python = side, python
        self.folder, self._state, self._counter = below / "files", below / "state", below / "embedded"
        # Times are kept: a file that was written just now is not what a folder of documents is made of.
        shutil.copytree(source, self.folder)
        self._state.mkdir()

    def index(self, *, kill_at: int | None = None) -> Spent:
        return run(self._command("index"), self._environment, self._counter, kill_at=kill_at)

    def stored(self) -> dict[str, list[str]]:
        command = [*self._command("stored")]
        spent = run(command, self._environment, self._counter)
        return msgspec.json.decode(spent.output.strip().rpartition("\n")[2], type=dict[str, list[str]])

    def checked(self, *spent: Spent) -> Run:
        """Compare the index with the folder; several commands are one step."""
        return Run(
            cpu_s=sum(each.cpu_s for each in spent),
            wall_s=sum(each.wall_s for each in spent),
            memory_mb=max(each.memory_mb for each in spent),
            embedded=sum(each.embedded for each in spent),
            wrong=corpus.difference(self.folder, self.stored()),
        )

    def _command(self, verb: str) -> list[str]:
        return self._side.command(self._python, verb, self.folder, self._state)

    @property
    def _environment(self) -> dict[str, str]:
        return self._side.environment(self._state)


def measure(side: Side, python: Path, source: Path, directory: Path, figures: Figures) -> None:
    """Add one run of every step to the figures; a side that fails says why."""
    try:
        with tempfile.TemporaryDirectory(dir=directory) as below:
            changes(Place(side, python, source, Path(below)), figures)
        with tempfile.TemporaryDirectory(dir=directory) as below:
            kill(Place(side, python, source, Path(below)), figures)
    except (Failed, subprocess.CalledProcessError) as error:
        figures.trouble = str(error)


def changes(place: Place, figures: Figures) -> None:
    spent = place.index()
    _add(figures, "first", place.checked(spent))
    figures.chunks = sum(map(len, place.stored().values()))
    _add(figures, "unchanged", place.checked(place.index()))
    for step, change in CHANGES.items():
        change(place.folder)
        _add(figures, step, place.checked(place.index()))


def kill(place: Place, figures: Figures) -> None:
    """Kill a first run once half of its texts are embedded, then give the same command again."""
    half = figures.steps["first"][0].embedded // 2
    killed = place.index(kill_at=max(1, half))
    _add(figures, "killed", place.checked(killed, place.index()))


def _add(figures: Figures, step: str, found: Run) -> None:
    figures.steps[step] = [*figures.steps.get(step, []), found]


def warm(side: Side, python: Path, directory: Path) -> None:
    """Index one line, so that modules are compiled and in the cache of the disk."""
    with tempfile.TemporaryDirectory(dir=directory) as below:
        source = Path(below, "source", "part")
        source.mkdir(parents=True)
        (source / "line.txt").write_text("Water drives the wheel.\n")
        Place(side, python, source.parent, Path(below)).index()
