"""A worker with outside stores, killed between two writes: ``python -m tests.documents.store_killer``.

Arguments: the number of the write at which all processes die (0: never), the settings as JSON, and the last
job. Writes are those to the stores, and those of tasks, fills and removals to the catalog; each has a point
before and a point after it. The counter is shared with forked children.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.assembly import Assembly
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.graph import CatalogGraphTexts
from penstock.catalog.sql.outside_stores import CatalogOutsideStores
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.handlers import outside_stores
from penstock.vector_stores.pgvector import PgvectorStore
from tests.documents.killed_worker import die
from tests.worker.worker_processes import ROOT

WRITES: list[tuple[type[Any], str]] = [
    (PgvectorStore, "upsert"),
    (PgvectorStore, "delete"),
    (Neo4jCopy, "write"),
    (Neo4jCopy, "remove"),
    (CatalogGraphTexts, "store"),
    (SqlCatalog, "settle"),
    (SqlCatalog, "clear"),
    (CatalogOutsideStores, "forget_removals"),
    (CatalogOutsideStores, "withdraw"),
    (CatalogOutsideStores, "advance_fill"),
    (CatalogOutsideStores, "end_fill"),
]


def _count(owner: type[Any], name: str, left: Any) -> None:
    write = getattr(owner, name)

    def counted(*given: Any, **more: Any) -> Any:
        _pass_point(left)
        answer = write(*given, **more)
        _pass_point(left)
        return answer

    setattr(owner, name, counted)


def _pass_point(left: Any) -> None:
    with left.get_lock():
        left.value -= 1
        if left.value == 0:
            die()


def run(settings: config.Settings, job_id: str, writes: int) -> int:
    """Run a worker until the job ends or the write is reached; returns the exit code."""
    values = msgspec.json.encode(config.portable_values(settings), enc_hook=str).decode()
    command = [sys.executable, "-m", "tests.documents.store_killer", str(writes), values, job_id]
    return subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode


def main() -> None:
    writes, values, job_id = sys.argv[1:]
    left = multiprocessing.get_context("fork").Value("i", int(writes))
    for owner, name in WRITES:
        _count(owner, name, left)
    # The next worker is there at once.
    outside_stores.LEASE = timedelta(seconds=1)
    given = msgspec.json.decode(values)
    settings = config.load({}, **given | {"state_dir": Path(given["state_dir"])})
    Assembly(settings).worker(processes=2, until_job=job_id, start_method="fork").run()


if __name__ == "__main__":
    main()
