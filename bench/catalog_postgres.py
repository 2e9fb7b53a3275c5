"""The catalog in PostgreSQL next to a bare loop: COPY of texts, their words with a GIN index, and vectors.

CPU time of this process and of the server's sessions together, the smaller of some runs in turns; so a busy
machine changes little. The server is as durable as in earnest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from bench.catalog import VECTOR, Tasks, generation, texts
from bench.postgres_server import store, work
from bench.stores import fresh_directory
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.sql.postgres import PostgresCatalog

BARE = b"""
CREATE TABLE file (id bigint PRIMARY KEY, path text UNIQUE, hash text, mtime bigint, size bigint);
CREATE TABLE chunk (id bigint PRIMARY KEY, file bigint, text text);
CREATE TABLE words (id bigint PRIMARY KEY, words tsvector) WITH (toast_tuple_target = 8160);
CREATE INDEX ON words USING gin (words);
CREATE TABLE vector (id bigint PRIMARY KEY, vector bytea) WITH (toast_tuple_target = 8160);
"""
WORDS = b"INSERT INTO words SELECT id, to_tsvector('english', text) FROM chunk WHERE id >= %s"


def bare(url: str, content: list[list[str]], batch: int) -> None:
    number = 0
    with psycopg.connect(url) as connection:
        connection.execute(BARE)
        connection.commit()
        for start in range(0, len(content), batch):
            some = list(enumerate(content[start : start + batch], start + 1))
            first = number
            with connection.cursor() as cursor:
                with cursor.copy("COPY file FROM STDIN") as copy:
                    for n, _ in some:
                        copy.write_row((n, f"/{n}.md", f"{n:064d}", n, 1))
                with cursor.copy("COPY chunk FROM STDIN") as copy:
                    for document, chunks in some:
                        for text in chunks:
                            copy.write_row((number, document, text))
                            number += 1
                cursor.execute(WORDS, (first,))
                with cursor.copy("COPY vector FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types(["int8", "bytea"])
                    for n in range(first, number):
                        copy.write_row((n, VECTOR))
            connection.commit()


def ours(url: str, content: list[list[str]], hashes: list[list[str]], batch: int) -> None:
    catalog = PostgresCatalog(url)
    for start in range(0, len(content), batch):
        some = range(start, min(len(content), start + batch))
        catalog.store([generation(f"/{n}.md", content[n], hashes[n]) for n in some])
    catalog.close()


def spent(below: Path, run: Callable[[str], object]) -> tuple[float, float]:
    """CPU and wall seconds, in a new store."""
    with fresh_directory(below) as directory:
        place = directory / "store"
        place.mkdir()
        url = store(place)
        with psycopg.connect(url, autocommit=True) as watch:
            before, begun, client = work(watch), time.perf_counter(), time.process_time()
            run(url)
            wall, client = time.perf_counter() - begun, time.process_time() - client
            time.sleep(0.2)  # a session that ended is counted once its parent has noticed
            return client + work(watch).since(before).cpu_s, wall


def compare(below: Path, documents: int, chunks: int, batch: int, runs: int) -> Iterator[str]:
    content = texts(documents, chunks)
    hashes = [[text_hash(text) for text in some] for some in content]
    floor, full = [], []
    for _ in range(runs):
        floor.append(spent(below, lambda url: bare(url, content, batch)))
        full.append(spent(below, lambda url: ours(url, content, hashes, batch)))
    count = documents * chunks
    cpu, wall = ([min(run[at] for run in side) / count * 1e6 for side in (floor, full)] for at in (0, 1))
    what = f"store {documents:,} documents of {chunks}, {batch} a call"
    yield f"{what}: {cpu[1]:.0f} µs a chunk, bare {cpu[0]:.0f}"
    yield f"    {cpu[1] / cpu[0]:.2f} times the bare loop's CPU, {wall[1] / wall[0]:.2f} times its time"


def tasks(below: Path, pages: int) -> Iterator[str]:
    def run(url: str) -> None:
        catalog = PostgresCatalog(url)
        shown.append(Tasks(catalog, pages, time.perf_counter).run())
        catalog.close()

    shown: list[str] = []
    spent(below, run)
    yield f"{shown[0]} (time, not CPU)"
