"""A very long PDF beside small files: memory of the processes, progress, and the delay of the small files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import MEMORY_MB, index_command
from bench.plan import Plan
from bench.processes import tree
from bench.results import Line, most
from penstock import Penstock, config
from penstock.errors import PenstockError

TREE_MB = 1_024
LONG = "a-long.pdf"
NEIGHBOURS = 50
WATCH_S = 0.2


class Seen(NamedTuple):
    """What was seen while the folder was indexed."""

    process_mb: float
    tree_mb: float
    """Sum over the tree, where pages of memory that processes share are counted once for each."""
    progress: list[int]
    """Different numbers of pages read, in order."""
    pages_before_neighbours: int
    """Pages read when the last small file was done."""
    seconds: float


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine != "sqlite":
        # The catalog is the same for the other engines.
        return
    seen = watched(engine, plan.long_pages, plan.directory)
    what = f"a PDF of {plan.long_pages:,} pages"
    print(f"    {what}: {seen.seconds:.0f} s, {len(seen.progress)} steps of progress", file=sys.stderr)
    yield most(engine, f"memory of a process, {what}", "MB", [seen.process_mb], [0.0], budget=MEMORY_MB)
    yield most(engine, f"memory of all processes, {what}", "MB", [seen.tree_mb], [0.0], budget=TREE_MB)
    share = seen.pages_before_neighbours / plan.long_pages
    yield most(engine, f"{what}: read when {NEIGHBOURS} small files were done", "share", [share], [0.0])


def watched(engine: str, pages: int, directory: Path) -> Seen:
    with tempfile.TemporaryDirectory(dir=directory) as below:
        folder, state = Path(below, "files"), Path(below, "state")
        state.mkdir(mode=0o700)
        write_folder(folder, pages)
        command, environment = index_command(engine, folder, state, 2, "hashing")
        begun = time.monotonic()
        running = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return _watch(running, config.load(environment), folder, begun)
        finally:
            running.kill()
            running.wait()


def write_folder(folder: Path, pages: int) -> None:
    from tests.pipeline.sample_documents import pdf

    folder.mkdir()
    lines = "Water drives the wheel, and the wheel drives the stone of the mill.\n" * 12
    (folder / LONG).write_bytes(pdf(*[f"Page {number}.\n{lines}" for number in range(pages)]))
    for number in range(NEIGHBOURS):
        (folder / f"note{number:03}.md").write_text(f"# Note {number}\n\nThe miller counts sack {number}.\n")


def _watch(running: subprocess.Popen[bytes], settings: config.Settings, folder: Path, begun: float) -> Seen:
    process_mb = tree_mb = 0.0
    progress: list[int] = []
    before = None
    while running.poll() is None:
        sizes = [_resident_mb(pid) for pid in tree(running.pid)]
        process_mb, tree_mb = max(process_mb, *sizes), max(tree_mb, sum(sizes))
        read, done = _state(settings, folder)
        if read and progress[-1:] != [read]:
            progress.append(read)
        if before is None and done == NEIGHBOURS:
            before = read
        time.sleep(WATCH_S)
    if running.returncode:
        raise RuntimeError(f"penstock index ended with {running.returncode}")
    return Seen(process_mb, tree_mb, progress, before or 0, time.monotonic() - begun)


def _state(settings: config.Settings, folder: Path) -> tuple[int, int]:
    """Pages of the PDF read so far, and small files done. Nothing is known before the catalog is there."""
    with suppress(PenstockError), Penstock(settings=settings) as app:
        done = len(app.documents.sources(path="**/note*.md", limit=NEIGHBOURS))
        source = app.documents.source(str(folder / LONG))
        current = app.documents.progress(source.building_id or source.published_id or 0)
        return (current.ocr_completed_pages if current is not None else 0), done
    return 0, 0


def _resident_mb(pid: int) -> float:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return 0.0
