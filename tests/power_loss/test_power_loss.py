"""Power cuts: what the store has acknowledged is there afterwards, whatever of the rest reached the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.protocol import Queue
from tests.power_loss.power_cut import FileSystem
from tests.power_loss.recorded_process import opened
from tests.power_loss.recording import ACKNOWLEDGED, COMPILER, SOURCE, Change, compiled, recorded
from tests.stores.new_jobs import new

SCHEMES = {"sqlite": "store/queue.db", "jsonl": "store/queue"}
ROUNDS = 60
CUTS = [30, pytest.param(300, marks=pytest.mark.long)]

pytestmark = pytest.mark.skipif(
    COMPILER is None and not os.environ.get("CI"), reason="changes of files are recorded by a library in C"
)


class Cut(NamedTuple):
    """A store after a power cut, and the answers that its user had got before."""

    url: str
    added: list[str]
    done: list[str]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("recorder"))


def changes_of(engine: str, synchronous: str, library: Path, root: Path) -> list[Change]:
    (root / "store").mkdir(parents=True)
    return recorded(
        "tests.power_loss.recorded_process",
        f"{engine}://{root}/{SCHEMES[engine]}",
        synchronous,
        str(ROUNDS),
        f"{root}/{ACKNOWLEDGED}",
        library=library,
        root=root,
    )


def power_cuts(
    engine: str, changes: list[Change], root: Path, target: Path, times: int, random: Random
) -> Iterator[Cut]:
    """Cut the power after some of the changes, in order, since the files are brought up to each."""
    files = FileSystem(os.path.realpath(root))
    answers: dict[str, list[str]] = {"added": [], "done": []}
    points = sorted(random.choices(range(1, len(changes) + 1), k=times))
    at = 0
    for number, point in enumerate(points):
        for change in changes[at:point]:
            if change.path.endswith(ACKNOWLEDGED):
                if change.what != "w":
                    continue
                what, *ids = change.data.decode().split()
                answers.setdefault(what, []).extend(ids)
            else:
                files.apply(change)
        at = point
        place = target / str(number)
        (place / "store").mkdir(parents=True)
        files.cut(place, random)
        yield Cut(f"{engine}://{place}/{SCHEMES[engine]}", [*answers["added"]], [*answers["done"]])


def found(queue: Queue) -> dict[str, Status]:
    return {job.queue_id: job.status for job in queue.find(JobQuery(limit=10_000))}


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("engine", SCHEMES)
def test_acknowledged_work_survives_a_power_cut(engine: str, cuts: int, library: Path, tmp_path: Path):
    changes = changes_of(engine, "FULL", library, tmp_path / "recorded")
    assert ROUNDS * 2 == sum(change.path.endswith(ACKNOWLEDGED) and change.what == "w" for change in changes)

    for cut in power_cuts(engine, changes, tmp_path / "recorded", tmp_path / "cut", cuts, Random(cuts)):
        queue = opened(cut.url)
        jobs = found(queue)
        assert set(cut.added) <= jobs.keys()
        assert {Status.DONE} >= {jobs[job_id] for job_id in cut.done}
        check_usable(queue)


@pytest.mark.parametrize("cuts", CUTS)
def test_a_power_cut_takes_the_last_commits_of_sqlite_without_a_sync(
    cuts: int, library: Path, tmp_path: Path
):
    changes = changes_of("sqlite", "NORMAL", library, tmp_path / "recorded")
    lost = []
    for cut in power_cuts("sqlite", changes, tmp_path / "recorded", tmp_path / "cut", cuts, Random(cuts)):
        queue = opened(cut.url, "NORMAL")
        jobs = found(queue)
        missing = [job_id for job_id in cut.added if job_id not in jobs]
        # The last ones, never one from the midst.
        assert missing == cut.added[len(cut.added) - len(missing) :]
        lost.append(len(missing))
        check_usable(queue)

    assert max(lost) > 0


def check_usable(queue: Queue) -> None:
    """A store that was left by a power cut takes and gives jobs."""
    with closing(queue):
        queue.check()
        queue.add([new(900_000)])
        assert queue.claim(ClaimRequest("worker after the cut", 1))
