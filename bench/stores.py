"""Fresh stores for a run, gone after it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contenders import Contender, forget, open_contender
from bench.jobs import new_jobs
from bench.plan import BULK


@contextmanager
def fresh_directory(below: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=below))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def fresh(side: str, engine: str, below: Path) -> Iterator[tuple[Contender, Path]]:
    with fresh_directory(below) as directory:
        contender = open_contender(side, engine, directory)
        try:
            yield contender, directory
        finally:
            contender.close()
            forget(engine, directory)


def fill(contender: Contender, count: int, *, locks: bool = True) -> None:
    for start in range(0, count, BULK):
        contender.add(contender.prepare(new_jobs(min(BULK, count - start), locks=locks)))
