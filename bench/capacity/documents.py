"""``python -m bench.capacity.documents``: a catalog that grows to 200,000 documents with 2,000,000 chunks.

Documents are stored by the catalog's own calls. At each size, the last tenth of the chunks waits to be
embedded while tasks are claimed. CPU time counts this process, the commands it runs and the server.

A large catalog takes many minutes: ``--seconds`` ends a run early, and the next one with the same ``--dir``
continues. ``--keep`` leaves the store for it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from bench.capacity.document_calls import DocumentCalls, Measured
from bench.capacity.document_texts import CHUNKS_EACH, DocumentTexts
from bench.capacity.figures import Filled, Report, read_report, write_report
from bench.capacity.kept_store import KeptStore, kept_store
from bench.vectors import ONE_THREAD
from penstock import Penstock

SIZES = (10_000, 100_000, 1_000_000, 2_000_000)
A_CALL = 100
"""Documents in one call of ``store``."""
UNFINISHED = 3
"""Exit code: more to do."""


class Fill:
    """The documents so far, recorded after each call."""

    def __init__(self, store: KeptStore, app: Penstock, texts: DocumentTexts, report: Report) -> None:
        self._store = store
        self._catalog = app.documents.catalog
        self._texts = texts
        self._file = store.directory / "documents"
        self._report = report

    @property
    def documents(self) -> int:
        return int(self._file.read_text()) if self._file.exists() else 0

    def until(self, documents: int, deadline: float) -> bool:
        """Store documents up to a number; False: the time was too short."""
        begun, cpu = self.documents, time.process_time() + self._store.server_cpu_s()
        started, made = time.monotonic(), 0.0
        while (at := self.documents) < documents and time.monotonic() < deadline:
            before = time.process_time()
            ready = documents - documents // 10
            count = min(A_CALL, (ready if at < ready else documents) - at)
            new = self._texts.documents(at, count, vectors=at < ready)
            made += time.process_time() - before
            self._catalog.store(new)
            self._file.write_text(str(at + count))
        stored = self.documents - begun
        if stored:
            self._report.filled.append(
                Filled(
                    engine=self._store.engine,
                    chunks=self.documents * CHUNKS_EACH,
                    added=stored * CHUNKS_EACH,
                    seconds=time.monotonic() - started,
                    cpu_s=time.process_time() + self._store.server_cpu_s() - cpu - made,
                )
            )
        return self.documents >= documents


def run(options: argparse.Namespace, report: Report) -> bool:
    """Fill and measure what the report has not yet; False: the time was too short."""
    deadline = time.monotonic() + options.seconds
    done = {each.chunks for each in report.catalogs if each.engine == options.engine}
    directory = options.dir / f"documents-{options.engine}"
    texts = DocumentTexts(options.embedded)
    with kept_store(options.engine, directory) as store, Penstock(settings=store.settings()) as app:
        fill = Fill(store, app, texts, report)
        for chunks in sorted(set(options.chunks) - done):
            documents = chunks // CHUNKS_EACH
            complete = fill.until(documents, deadline)
            write_report(options.json, report)
            if not complete or time.monotonic() > deadline:
                return False
            # In a separate process: its memory is that of a search.
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                measured = pool.submit(measure, store, documents, options.embedded).result()
            report.catalogs.append(measured)
            write_report(options.json, report)
            print(msgspec.json.encode(measured).decode(), flush=True)
    if not options.keep:
        shutil.rmtree(directory)
    return True


def measure(store: KeptStore, documents: int, embedded: int) -> Measured:
    with Penstock(settings=store.settings()) as app:
        return _measured(store, app, DocumentTexts(embedded), documents)


def _measured(store: KeptStore, app: Penstock, texts: DocumentTexts, documents: int) -> Measured:
    counts = app.documents.task_counts().get("vector_chunks", {})
    found = Measured(
        engine=store.engine,
        chunks=documents * CHUNKS_EACH,
        documents=documents,
        waiting=counts.get("pending", 0),
    )
    DocumentCalls(store, app, texts, documents).measure(found)
    found.disk_mb, found.cache_mb = store.disk_mb(), store.state_mb()
    found.server_mb = store.server_mb()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.documents", description=__doc__)
    parser.add_argument("engine", choices=("sqlite", "postgres"))
    parser.add_argument("--chunks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "penstock-capacity")
    parser.add_argument("--json", type=Path, required=True, help="the report, continued if it exists")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing more after this time")
    parser.add_argument("--keep", action="store_true", help="leave the store in DIR")
    parser.add_argument("--embedded", type=int, default=2_000, help="texts with vectors of the model")
    options = parser.parse_args(arguments)
    os.environ |= ONE_THREAD
    return 0 if run(options, read_report(options.json)) else UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
