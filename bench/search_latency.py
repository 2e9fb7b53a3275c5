"""``python -m bench.search_latency``: a hybrid search next to a bare FTS5 query plus a product of vectors.

CPU time of one thread, warm, each side asked the same questions in turns. So a busy machine changes little,
and the ratio says what search adds: filters, merging, texts, snippets and the words of each hit. A narrowed
search is one in one of ten collections.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.stores import fresh_directory
from bench.vectors import ONE_THREAD, fill, keep, questions, settings_at
from penstock import Penstock
from penstock.catalog.sql.search import match_expression
from penstock.pipeline.embed import open_embedder

QUESTIONS = 200
CANDIDATES = 100
FILE = "penstock.db"
WAYS = ("file", "usearch")
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


def ask(place: Path, way: str) -> dict[str, list[float]]:
    """CPU time of each question, in milliseconds, for both sides."""
    floor = Floor(place / FILE)
    spent: dict[str, list[float]] = {"floor": [], "search": [], "narrowed": []}
    with Penstock(settings=settings_at(place, way)) as app:
        for number, question in enumerate(questions(QUESTIONS + 5)):
            sides: list[tuple[str, Callable[[str], Any]]] = [
                ("floor", floor.search),
                ("search", app.search),
                ("narrowed", partial(app.search, collection="part3")),
            ]
            for side, find in sides:
                began = time.process_time()
                find(question)
                if number >= 5:  # the first load what a process needs
                    spent[side].append((time.process_time() - began) * 1_000)
    return spent


def _line(chunks: int, way: str, spent: dict[str, list[float]]) -> str:
    mean = {side: float(np.mean(times)) for side, times in spent.items()}
    worst = {side: float(np.percentile(times, 99)) for side, times in spent.items()}
    return (
        f"| {chunks:,} | {way} | {mean['floor']:.1f}, {worst['floor']:.1f} |"
        f" {mean['search']:.1f}, {worst['search']:.1f} | {mean['search'] / mean['floor']:.2f} |"
        f" {mean['narrowed'] / mean['search']:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.search_latency", description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        keep(options.place, options.way)
        print(json.dumps(ask(options.place, options.way)))
        return
    print("| chunks | vectors | floor, ms: mean, p99 | search, ms | search / floor | narrowed / search |")
    print("|---|---|---:|---:|---:|---:|")
    for chunks in options.chunks:
        with fresh_directory(options.dir) as place:
            fill(place, chunks)
            for way in WAYS:
                command = [sys.executable, "-m", "bench.search_latency", "--place", str(place), "--way", way]
                said = subprocess.check_output(command, env=os.environ | ONE_THREAD)
                print(_line(chunks, way, json.loads(said)), flush=True)


if __name__ == "__main__":
    main()
