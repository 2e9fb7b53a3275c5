"""``python -m bench.catalog``: the catalog next to a bare loop that writes text, keyword entry and vector.

CPU time, the smaller of some runs in turns, both sides on fresh files; so a busy machine changes little.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import (
    NewChunk,
    NewGeneration,
    NewPage,
    Phase,
    Place,
    Rename,
    Task,
    TaskOutcome,
    TaskRequest,
)

NOW = datetime.now(UTC)
DOCS = Place("acme", "docs")
VECTOR = os.urandom(1024)
PRAGMAS = "journal_mode=WAL synchronous=FULL cache_size=-32768 wal_autocheckpoint=8000".split()
BARE = """
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT UNIQUE, hash TEXT, mtime INTEGER, size INTEGER);
CREATE TABLE chunk (id INTEGER PRIMARY KEY, file INTEGER, text TEXT);
CREATE VIRTUAL TABLE words USING fts5
    (text, content='chunk', content_rowid='id', tokenize='porter unicode61');
CREATE TABLE vector (id INTEGER PRIMARY KEY, vector BLOB);
"""


def texts(documents: int, chunks: int) -> list[list[str]]:
    """About 1 KB each, words by Zipf's law."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(words))))
    return [
        [" ".join(chance.choices(words, cum_weights=weights, k=150)) for _ in range(chunks)]
        for _ in range(documents)
    ]


def bare(path: Path, content: list[list[str]], batch: int) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(BARE)
    number = 0
    begun = time.process_time()
    for start in range(0, len(content), batch):
        some = list(enumerate(content[start : start + batch], start + 1))
        rows = [(document, text) for document, chunks in some for text in chunks]
        ids = range(number, number := number + len(rows))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO file VALUES (?, ?, ?, ?, ?)", [(n, f"/{n}.md", f"{n:064d}", n, 1) for n, _ in some]
        )
        connection.executemany(
            "INSERT INTO chunk VALUES (?, ?, ?)", [(n, *row) for n, row in zip(ids, rows, strict=True)]
        )
        connection.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, ?)",
            [(n, row[1]) for n, row in zip(ids, rows, strict=True)],
        )
        connection.executemany("INSERT INTO vector VALUES (?, ?)", [(n, VECTOR) for n in ids])
        connection.execute("COMMIT")
    spent = time.process_time() - begun
    connection.close()
    return spent


def generation(path: str, chunks: list[str], hashes: list[str], *, now: datetime = NOW) -> NewGeneration:
    made = tuple(
        NewChunk(text=text, text_hash=known, start=0, end=len(text), vector=VECTOR)
        for text, known in zip(chunks, hashes, strict=True)
    )
    pages = tuple(NewPage(number=at // 5 + 1, chunks=made[at : at + 5]) for at in range(0, len(made), 5))
    return NewGeneration(
        place=DOCS, path=path, content_hash=path, asked_at=now, read_at=now, pages=pages, space="s"
    )


def ours(path: Path, content: list[list[str]], hashes: list[list[str]], batch: int) -> float:
    catalog = SqliteCatalog(path)
    begun = time.process_time()
    for start in range(0, len(content), batch):
        some = range(start, min(len(content), start + batch))
        catalog.store([generation(f"/{n}.md", content[n], hashes[n]) for n in some])
    spent = time.process_time() - begun
    catalog.close()
    return spent


def compare(below: Path, documents: int, chunks: int, batch: int, runs: int) -> Iterator[str]:
    content = texts(documents, chunks)
    # Both sides have hashed: a bare loop that recognises unchanged text must, too.
    hashes = [[text_hash(text) for text in some] for some in content]
    floor, full = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=below) as folder:
            floor.append(bare(Path(folder, "bare.db"), content, batch))
            full.append(ours(Path(folder, "ours.db"), content, hashes, batch))
    count = documents * chunks
    least, most = min(floor) / count * 1e6, min(full) / count * 1e6
    more = most - least
    what = f"store {documents:,} documents of {chunks}, {batch} a call"
    yield f"{what}: {most:.0f} µs a chunk, bare {least:.0f}"
    yield f"    +{more:.0f} µs a chunk, +{more * chunks:.0f} µs a document"


def spent(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def change(below: Path, files: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=below) as folder:
        catalog = SqliteCatalog(Path(folder, "change.db"))
        (content,) = texts(1, 2_500)
        hashes = [text_hash(text) for text in content]
        first = spent(lambda: catalog.store([generation("/large.md", content, hashes)]))
        content[1_000] += " edited"
        hashes[1_000] = text_hash(content[1_000])
        again = spent(lambda: catalog.store([generation("/large.md", content, hashes)]))
        entries = [entry.entry_id for entry in catalog.outbox()]
        swept = spent(lambda: [None for _ in iter(lambda: catalog.clear(entries), True)])
        yield f"document of 2,500 chunks: first {first * 1e3:.0f} ms, one edited {again * 1e3:.0f} ms"
        yield f"    what is left of the old one cleared in {swept * 1e3:.0f} ms"
        catalog.store([generation(f"/old/{n}.md", content[:1], hashes[:1]) for n in range(files)])
        move = Rename(place=DOCS, old="/old", new="/new", folder=True, asked_at=datetime.now(UTC))
        moved = spent(lambda: [None for _ in iter(lambda: catalog.rename(move).more, False)])
        with catalog.snapshot() as snapshot:
            walked = spent(lambda: snapshot.known(DOCS, "/new", limit=files))
        yield f"rename {files:,} files: {moved / files * 1e6:.0f} µs a file; walk: {walked / files * 1e6:.1f}"
        catalog.close()


class Tasks:
    """Everything by tasks: 5 chunks a page, read 64 pages, embedded 256 chunks at a time."""

    def __init__(self, catalog: Catalog, pages: int, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._catalog = catalog
        self._content = texts(pages, 5)
        self._spent: dict[str, float] = {}

    def run(self) -> str:
        unread = tuple(NewPage(number=number) for number in range(len(self._content)))
        new = NewGeneration(
            place=DOCS, path="/large.pdf", content_hash="", asked_at=NOW, read_at=NOW, pages=unread, space="s"
        )
        self._timed("begin", self._catalog.store, [new])
        self._work(TaskRequest(Phase.OCR, "w", 64), self._read)
        self._work(TaskRequest(Phase.VECTOR, "w", 256), self._embedded)
        count = 5 * len(self._content)
        shown = ", ".join(f"{name} {spent / count * 1e6:.1f}" for name, spent in self._spent.items())
        return f"by tasks, {count:,} chunks of one document, µs a chunk: {shown}"

    def _timed(self, name: str, work: Callable[[Any], Any], argument: object) -> Any:
        begun = self._clock()
        result = work(argument)
        self._spent[name] = self._spent.get(name, 0) + self._clock() - begun
        return result

    def _work(self, request: TaskRequest, done: Callable[[Task], TaskOutcome]) -> None:
        while held := self._timed(f"claim {request.lane}", self._catalog.claim, request):
            ended = [done(task) for task in held]
            self._timed(f"settle {request.lane}", self._catalog.settle, ended)

    def _read(self, task: Task) -> TaskOutcome:
        chunks = tuple(
            NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text))
            for text in self._content[task.page_number]
        )
        return publication.completed_page(task, NewPage(number=task.page_number, chunks=chunks))

    def _embedded(self, task: Task) -> TaskOutcome:
        return publication.completed_vector(task, VECTOR)


def tasks(below: Path, pages: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=below) as folder:
        catalog = SqliteCatalog(Path(folder, "tasks.db"))
        yield Tasks(catalog, pages).run()
        catalog.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--postgres", action="store_true", help="the catalog in PostgreSQL")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where files are made")
    options = parser.parse_args()
    scale, runs = (20, 1) if options.quick else (1, 3)
    if options.postgres:
        from bench import catalog_postgres as measured

        _show(
            measured.compare(options.dir, 1_500 // scale, 2, 64, runs),
            measured.compare(options.dir, 20 // scale, 500, 1, runs),
            measured.tasks(options.dir, 1_000 // scale),
        )
        return
    _show(
        compare(options.dir, 3_000 // scale, 2, 64, runs),
        compare(options.dir, 40 // scale, 500, 1, runs),
        tasks(options.dir, 1_000 // scale),
        tasks(options.dir, 8_000 // scale),
        change(options.dir, 10_000 // scale),
    )


def _show(*measurements: Iterator[str]) -> None:
    for lines in measurements:
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
