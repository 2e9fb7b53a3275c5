"""``python -m bench.search_latency``: a search next to a bare FTS5 query plus a product of vectors.

CPU time of one thread, warm, each side asked the same questions in turns. So a busy machine changes little,
and the ratio says what search adds: filters, merging, texts, snippets and the words of each hit. A filter
leaves one of ten collections, or the paths that begin with a digit 1. ``--filled DIR`` asks a store that an
earlier run filled below ``--dir`` with ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.stores import fresh_directory
from bench.vectors import ONE_THREAD, fill, found_share, keep, memory_mb, questions, settings_at
from penstock import Penstock
from penstock.catalog.sql.search import match_expression
from penstock.pipeline.embed import open_embedder

CANDIDATES = 100
FILE = "penstock.db"
WAYS = ("file", "usearch")
WARM = 5
"""Questions asked first: they load what a process needs."""
RANKED = (
    "SELECT rowid, rank FROM catalog_keyword WHERE catalog_keyword MATCH ? AND rank MATCH 'bm25(0.75)'"
    " ORDER BY rank LIMIT ?"
)


class Floor:
    """What a program does at least: words by FTS5, vectors by one product, the best hundred of both."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        rows = self._connection.execute("SELECT vector FROM catalog_vector")
        self._vectors = np.frombuffer(b"".join(row for (row,) in rows), "<f4").reshape(-1, 256)
        self._embedder = open_embedder("static")

    def search(self, query: str) -> None:
        self._connection.execute(RANKED, (match_expression(query), CANDIDATES)).fetchall()
        scores = self._vectors @ self._embedder.embed([query])[0]
        np.argpartition(scores, -CANDIDATES)[-CANDIDATES:]


def ask(place: Path, way: str, count: int) -> dict[str, Any]:
    """CPU milliseconds of each question for each side, memory before the floor is loaded, share found."""
    with Penstock(settings=settings_at(place, way)) as app:
        asked = questions(count + WARM)
        for question in asked[:WARM]:
            app.search(question)
        memory = [memory_mb("RssAnon"), memory_mb("RssFile")]
        found = found_share(app, asked[WARM:]) if way == "usearch" else 1.0
        sides: dict[str, Callable[[str], Any]] = {
            "floor": Floor(place / FILE).search,
            "hybrid": app.search,
            "keyword": partial(app.search, mode="keyword"),
            "vector": partial(app.search, mode="vector"),
            "collection": partial(app.search, collection="part3"),
            "path": partial(app.search, path="/1*"),
        }
        spent: dict[str, list[float]] = {side: [] for side in sides}
        for number, question in enumerate(asked):
            for side, find in sides.items():
                began = time.process_time()
                find(question)
                if number >= WARM:
                    spent[side].append((time.process_time() - began) * 1_000)
    return {"spent": spent, "memory": memory, "found": found}


def _line(chunks: int, way: str, seen: dict[str, Any], disk_mb: int) -> str:
    spent = seen["spent"]
    mean = {side: float(np.mean(times)) for side, times in spent.items()}
    times = " | ".join(
        ", ".join(f"{value:.0f}" for value in np.percentile(spent[side], (50, 99)))
        for side in ("floor", "hybrid", "keyword", "vector")
    )
    return (
        f"| {chunks:,} | {way} | {times} | {mean['hybrid'] / mean['floor']:.2f} |"
        f" {mean['collection'] / mean['hybrid']:.2f} | {mean['path'] / mean['hybrid']:.2f} |"
        f" {seen['found']:.3f} | {seen['memory'][0]} + {seen['memory'][1]} | {disk_mb:,} |"
    )


@contextmanager
def _filled(options: argparse.Namespace, chunks: int) -> Iterator[Path]:
    if options.filled:
        yield options.filled
        return
    with fresh_directory(options.dir) as place:
        fill(place, chunks)
        yield place
        if options.keep:
            shutil.copytree(place, options.dir / f"chunks-{chunks}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.search_latency", description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--filled", type=Path, help="a store with so many chunks, instead of a new one")
    parser.add_argument("--keep", action="store_true", help="keep each store as DIR/chunks-N")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        keep(options.place, options.way)
        print(json.dumps(ask(options.place, options.way, options.questions)))
        return
    print("| chunks | vectors | floor, ms: p50, p99 | hybrid | keyword | vector | hybrid / floor |", end="")
    print(" collection / all | path / all | found of ten | memory, own + shared MB | disk, MB |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for chunks in options.chunks:
        with _filled(options, chunks) as place:
            for way in options.ways:
                command = [sys.executable, "-m", "bench.search_latency", "--place", str(place), "--way", way]
                command += ["--questions", str(options.questions)]
                said = subprocess.check_output(command, env=os.environ | ONE_THREAD)
                disk = sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) >> 20
                print(_line(chunks, way, json.loads(said), disk), flush=True)


if __name__ == "__main__":
    main()
