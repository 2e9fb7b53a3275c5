"""``python -m bench.pipeline_guarantees FOLDER STORE``: the bare loop, with what a crash needs.

The loop of ``pipeline_floor``, and what any pipeline has to write that gives the same promises:

- a job for each file, stored before the first file is read, claimed in batches with a claim number, and ended
  in the transaction that stores the file: a killed run goes on where it was, and no file is done twice;
- a source, a generation and a page for each file, and chunks with ids and hashes of their own: a changed file
  replaces its chunks at once, and unchanged texts keep id and vector;
- limits of memory and time for each file.

It has no second process, no leases, no priorities, no folders that change and no reasons for skipped files.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.pipeline_floor import Loop
from penstock.catalog.rules.identity import ChunkIds, text_hash
from penstock.handlers.generations import MAX_DOCUMENTS
from penstock.pipeline.budget import MemoryShare
from penstock.pipeline.embed import open_embedder
from penstock.pipeline.pipeline import Pipeline

ADDED_AT_ONCE, MEMORY_MB = 1_000, 2_048
TABLES = """
CREATE TABLE job (id TEXT PRIMARY KEY, path TEXT UNIQUE, size INTEGER, status TEXT, claim_number INTEGER,
    worker TEXT, added_at REAL, claimed_at REAL, ended_at REAL, result TEXT);
CREATE INDEX job_pending ON job (added_at, id) WHERE status = 'pending';
CREATE INDEX job_running ON job (worker) WHERE status = 'running';
CREATE TABLE source (id INTEGER PRIMARY KEY, source_id TEXT UNIQUE, path TEXT UNIQUE, published INTEGER,
    hash TEXT, mtime INTEGER, size INTEGER, published_at REAL);
CREATE TABLE generation (id INTEGER PRIMARY KEY, source INTEGER, hash TEXT, job TEXT, state TEXT,
    read_at REAL);
CREATE INDEX generation_source ON generation (source);
CREATE TABLE page (id INTEGER PRIMARY KEY, generation INTEGER, number INTEGER, chunks INTEGER);
CREATE INDEX page_generation ON page (generation);
CREATE TABLE piece (id INTEGER PRIMARY KEY, page INTEGER, generation INTEGER, chunk_id TEXT, hash TEXT,
    content INTEGER);
CREATE INDEX piece_generation ON piece (generation);
CREATE INDEX piece_hash ON piece (hash);
"""


class GuardedLoop(Loop):
    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self._connection.executescript(TABLES)
        share = MemoryShare.of(MEMORY_MB, 1, store.parent)
        self._pipeline.close()
        self._pipeline = Pipeline(open_embedder("static"), memory=share)
        self._claimed: dict[str, tuple[str, int]] = {}

    def _files_of(self, folder: Path) -> Iterator[Path]:
        """Store a job for each file, then claim them batch by batch."""
        with os.scandir(folder) as entries:
            found = sorted((entry.path, entry.stat().st_size) for entry in entries)
        execute, many = self._connection.execute, self._connection.executemany
        for start in range(0, len(found), ADDED_AT_ONCE):
            execute("BEGIN IMMEDIATE")
            new = [(str(uuid.uuid4()), *one, time.time()) for one in found[start : start + ADDED_AT_ONCE]]
            many("INSERT OR IGNORE INTO job VALUES (?, ?, ?, 'pending', 0, NULL, ?, NULL, NULL, NULL)", new)
            execute("COMMIT")
        while claimed := self._claim():
            self._claimed |= {path: (job, number) for job, path, number in claimed}
            yield from (Path(path) for _, path, _ in claimed)

    def _claim(self) -> list[tuple[str, str, int]]:
        return self._connection.execute(
            "UPDATE job SET status = 'running', claim_number = claim_number + 1, worker = 'here', "
            "claimed_at = ? WHERE id IN "
            "(SELECT id FROM job WHERE status = 'pending' ORDER BY added_at, id LIMIT ?) "
            "RETURNING id, path, claim_number",
            (time.time(), MAX_DOCUMENTS),
        ).fetchall()

    def _store_more(self, some: list[Any]) -> None:
        """Write the rows of generations and end their jobs, within the transaction of the loop."""
        many, at = self._connection.executemany, time.time()
        sources, generations, pages, pieces, ended = [], [], [], [], []
        content = self.chunks
        for number, (path, known, about, texts) in enumerate(some, self._files):
            source_id = str(uuid.uuid4())
            job, claim_number = self._claimed.pop(path, ("", 0))
            ids = ChunkIds("default", source_id)
            sources.append((number, source_id, path, number, known, about.st_mtime_ns, about.st_size, at))
            generations.append((number, number, known, job, "published", at))
            pages.append((number, number, 1, len(texts)))
            for text in texts:
                known_text = text_hash(text)
                pieces.append((content, number, number, ids.next(known_text), known_text, content))
                content += 1
            result = msgspec.json.encode({"outcome": "indexed", "chunks": len(texts)}).decode()
            ended.append((at, result, job, claim_number))
        many("INSERT OR IGNORE INTO source VALUES (?, ?, ?, ?, ?, ?, ?, ?)", sources)
        many("INSERT INTO generation VALUES (?, ?, ?, ?, ?, ?)", generations)
        many("INSERT INTO page VALUES (?, ?, ?, ?)", pages)
        many("INSERT INTO piece VALUES (?, ?, ?, ?, ?, ?)", pieces)
        many(
            "UPDATE job SET status = 'done', ended_at = ?, result = ? "
            "WHERE id = ? AND claim_number = ? AND status = 'running'",
            ended,
        )


def main() -> None:
    folder, store = map(Path, sys.argv[1:])
    loop = GuardedLoop(store)
    loop.run(folder)
    print(msgspec.json.encode({"chunks": loop.chunks, "spent": loop.spent}).decode())


if __name__ == "__main__":
    main()
