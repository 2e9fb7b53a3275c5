"""``python -m bench.vectors``: finding the nearest vectors in memory, by the shared file, and by usearch.

Vectors are those of real text, the sources of this Python and of what is installed, and questions are words
in a row from the documentation: with vectors of chance, or asked for by themselves, an approximate index
looks worse, or better, than it is. Every figure is of a process of its own, and CPU time of one thread: so a
busy machine changes little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from penstock import Penstock, config
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import Filters, NewChunk, NewGeneration, NewPage, Place
from penstock.pipeline.embed import open_embedder, open_space, space_of
from penstock.pipeline.vectors.cache import VectorCache
from penstock.pipeline.vectors.directory import open_cache_directory
from penstock.service.search import Search

WAYS = ("memory", "file", "usearch")
CHUNKS_EACH = 20
NEVER = 1_000_000_000
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
DOCS = Path(__file__).resolve().parent.parent / "docs"


def windows() -> Iterator[str]:
    """Pieces of text as long as chunks are; from the start again, a little further on, after the last."""
    folders = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    while True:
        for shift in range(0, 500, 50):
            for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
                text = path.read_text(encoding="utf-8", errors="ignore")[:400_000]
                yield from (text[at : at + 700] for at in range(shift, len(text) - 200, 500))


def questions(count: int) -> list[str]:
    chance = random.Random(1)
    text = " ".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md")))
    words = re.findall(r"[A-Za-z]{3,}", text)
    starts = (chance.randrange(len(words) - 8) for _ in range(count))
    return [" ".join(words[start : start + chance.randint(1, 6)]) for start in starts]


def settings_at(place: Path, way: str) -> config.Settings:
    return config.load({}, state_dir=place, usearch_from=1 if way == "usearch" else NEVER)


def fill(place: Path, chunks: int) -> None:
    model, now = open_embedder("static"), datetime.now(UTC)
    texts = windows()
    with Penstock(state_dir=place) as app:
        for start in range(0, chunks, 1_000):
            some = [f"{text} {start + at}" for at, text in enumerate(islice(texts, 1_000))]
            made = [
                NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text), vector=row.tobytes())
                for text, row in zip(some, model.embed(some), strict=True)
            ]
            app.documents.catalog.store(
                [
                    NewGeneration(
                        place=Place("default", f"part{(start + at) // CHUNKS_EACH % 10}"),
                        path=f"/{start + at}.py",
                        content_hash=str(start + at),
                        asked_at=now,
                        read_at=now,
                        pages=(NewPage(number=1, chunks=tuple(made[at : at + CHUNKS_EACH])),),
                        space=space_of(model),
                    )
                    for at in range(0, len(made), CHUNKS_EACH)
                ]
            )


def keep(place: Path, way: str) -> dict[str, Any]:
    """What a worker does for it, and what that costs."""
    from penstock.worker.vector_upkeep import keep_all

    with Penstock(settings=settings_at(place, way)) as app:
        began = time.process_time()
        app.documents.catalog.merge_words()
        keep_all(app.documents.catalog, open_cache_directory(app.settings))
        return {"make_cpu_s": time.process_time() - began}


def ask(place: Path, way: str) -> dict[str, Any]:
    with Penstock(settings=settings_at(place, way)) as app:
        catalog, shelf = app.documents.catalog, open_cache_directory(app.settings)
        search = Search(catalog, app.settings, open_space, VectorCache(shelf if way != "memory" else None))
        first, *others = questions(41)
        took = [_timed(lambda each=each: search.search(each, mode="vector")) for each in (first, *others)]
        parts = [
            _timed(lambda each=each: search.search(each, mode="vector", collection="part3"))
            for each in others
        ]
        return {
            "first_ms": took[0],
            "warm_ms": _middle(took[1:]),
            "part_ms": _middle(parts),
            "own_mb": memory_mb("RssAnon"),
            "shared_mb": memory_mb("RssFile"),
            "found": found_share(app, others) if way == "usearch" else 1.0,
        }


def _timed(do: Any) -> float:
    began = time.process_time()
    do()
    return (time.process_time() - began) * 1_000


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def memory_mb(name: str) -> int:
    """Memory of this process: ``RssAnon`` is its own, ``RssFile`` is shared through files."""
    said = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(said[1]) // 1024 if said else 0


def found_share(app: Penstock, asked: list[str]) -> float:
    """How many of the ten nearest are found, of a hundred asked for, as a search does."""
    exact, near, shares = VectorCache(), VectorCache(open_cache_directory(app.settings)), []
    with app.documents.catalog.snapshot() as snapshot:
        (space,) = snapshot.spaces("default")
        assert snapshot.matching(Filters(tenant_id="default")) is None
        for vector in open_embedder("static").embed(asked):
            wanted, found = (
                [hit.content_id for hit in each.nearest(snapshot, "default", space.name, vector, limit=100)]
                for each in (exact, near)
            )
            shares.append(len({*wanted[:10]} & {*found[:10]}) / max(len(wanted[:10]), 1))
    return sum(shares) / len(shares)


def _alone(what: str, place: Path, way: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.vectors", "--do", what, "--place", str(place), "--way", way]
    environment = os.environ | ONE_THREAD
    answer: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=DOCS.parent, env=environment))
    return answer


def _command_s(place: Path) -> float:
    """The whole command: the quickest of three."""
    command = [sys.executable, "-m", "penstock", "search", "numpy array shape"]
    environment = os.environ | ONE_THREAD | {"PENSTOCK_STATE": str(place)}
    runs = []
    for _ in range(3):
        before = _children_s()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        runs.append(_children_s() - before)
    return min(runs)


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def measure(below: Path, chunks: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=below) as folder:
        place = Path(folder)
        fill(place, chunks)
        for way in WAYS:
            made = _alone("keep", place, way) if way != "memory" else {"make_cpu_s": 0.0}
            seen = made | _alone("ask", place, way)
            whole = f"{_command_s(place):.2f}" if way != "memory" else ""
            yield (
                f"| {chunks:,} | {way} | {seen['make_cpu_s']:.1f} | {seen['first_ms']:.0f} | {whole} |"
                f" {seen['warm_ms']:.1f} | {seen['part_ms']:.1f} | {seen['own_mb']} + {seen['shared_mb']} |"
                f" {seen['found']:.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.vectors")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 60_000, 200_000])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--do", choices=("keep", "ask"), help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:
        print(json.dumps((keep if options.do == "keep" else ask)(options.place, options.way)))
        return
    print(
        "| chunks | way | made, s | first search, ms | command, s | next, ms | a tenth, ms"
        " | memory, own + shared MB | found of ten |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for chunks in options.chunks:
        for line in measure(options.dir, chunks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
