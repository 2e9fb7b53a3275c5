"""The whole tree of ``penstock index`` is killed at random moments; the same command finishes the work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock import Penstock, config
from penstock.catalog.values import EntryKind
from penstock.job import Status
from penstock.pipeline.embed.hashing import HashingEmbedder
from penstock.pipeline.embed.protocol import space_of
from tests.documents.conftest import book
from tests.pipeline.making import pdf
from tests.worker.processes import ROOT, children_of

QUERIES = ("water", "subject277", "page", "wheel 33", "sentence")
URLS = {"sqlite": "sqlite:///{state}/queue.db", "jsonl": "jsonl://{state}/queue"}


class Shown(NamedTuple):
    """Everything a search could show, without the ids a rerun may give anew."""

    chunks: list[tuple[str, int, str, bytes]]
    hits: dict[str, list[tuple[str, int]]]


class Run:
    """One state directory and the command on it."""

    def __init__(self, state: Path, engine: str, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._environment = {
            "PENSTOCK_URL": URLS[engine].format(state=state),
            "PENSTOCK_CATALOG_URL": f"sqlite:///{state}/catalog.db",
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
        """Whether it was still at work."""
        with self._begin() as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            running = process.poll() is None
            below = children_of(process.pid) if running else []
            for pid in [process.pid, *below] if running else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return running

    def finished(self) -> dict[str, Any]:
        with self._begin() as process:
            out, _ = process.communicate(timeout=120)
        assert 0 == process.returncode, out
        result: dict[str, Any] = msgspec.json.decode(out)
        return result

    def shown(self) -> Shown:
        with Penstock(settings=config.load(self._environment)) as app:
            catalog = app.documents.catalog
            assert [] == catalog.audit()
            assert [] == catalog.outbox(EntryKind.JOB)
            assert [] == app.jobs(status=[Status.PENDING, Status.IN_PROGRESS])
            with catalog.snapshot() as snapshot:
                open_tasks = {
                    key: n
                    for key, n in snapshot.statistics().items()
                    if n and key[1] not in ("completed", "skipped")
                }
                assert {} == open_tasks
                chunks = list(self._chunks(snapshot))
            hits = {
                query: sorted(
                    (Path(hit.path).name, len(hit.text))
                    for hit in app.search(query, mode="keyword", limit=1000, per_source=None)
                )
                for query in QUERIES
            }
        return Shown(sorted(chunks), hits)

    def _chunks(self, snapshot: Any) -> Iterator[tuple[str, int, str, bytes]]:
        embedder = HashingEmbedder()
        width = embedder.dimension * 4
        for batch in snapshot.load("default", space_of(embedder)):
            ids = [
                int.from_bytes(batch.content_ids[at : at + 8], "little")
                for at in range(0, len(batch.content_ids), 8)
            ]
            for number, view in enumerate(snapshot.hydrate(ids)):
                assert view is not None
                vector = batch.vectors[number * width : (number + 1) * width]
                yield (
                    str(Path(view.path).relative_to(self._folder)),
                    view.page_number,
                    view.text,
                    bytes(vector),
                )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files for the short path, and documents long enough for both task lanes."""
    made = tmp_path_factory.mktemp("files")
    for number in range(120):
        (made / f"{number}.md").write_text(f"# Wheel {number}\n\nWater drives wheel {number} of the mill.")
    (made / "book.md").write_text(book(300))
    (made / "paper.pdf").write_bytes(pdf(*(f"Words of page {number}, water too." for number in range(80))))
    return made


def disturbed(tmp_path: Path, engine: str, folder: Path, kills: int, chance: random.Random) -> None:
    calm = Run(tmp_path / "calm", engine, folder)
    began = time.monotonic()
    calm.finished()
    usual = time.monotonic() - began
    expected = calm.shown()
    assert len(expected.chunks) > 120 + 256 + 80
    killed, rounds = 0, 0
    while killed < kills:
        rounds += 1
        run = Run(tmp_path / f"disturbed-{rounds}", engine, folder)
        # Some times in one index: what was killed once is what the next one begins with.
        for _ in range(min(kills - killed, chance.randint(1, 3))):
            if not run.killed_after(chance.uniform(0.2, usual)):
                break
            killed += 1
        result = run.finished()
        assert (0, "done") == (result["counts"]["failed"], result["status"])
        assert expected == run.shown()


@pytest.mark.parametrize("engine", URLS)
def test_an_index_killed_at_any_moment_is_finished_by_the_same_command(
    tmp_path: Path, engine: str, folder: Path
):
    disturbed(tmp_path, engine, folder, 5, random.Random())


@pytest.mark.chaos
@pytest.mark.parametrize("engine", URLS)
def test_an_index_killed_a_hundred_times(tmp_path: Path, engine: str, folder: Path):
    disturbed(tmp_path, engine, folder, 100, random.Random())
