"""``python -m bench.pipeline_floor FOLDER STORE``: a bare loop that extracts, cuts, embeds and stores.

The same calls in the same batches as Penstock's, without a queue, tasks, or anything a crash would need.
Prints how many chunks it made, and the seconds of CPU each part took.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bench.catalog import BARE, PRAGMAS
from penstock.handlers.files import PAGES_PER_CALL
from penstock.handlers.generations import MAX_DOCUMENTS, MAX_TEXTS
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.embed import open_embedder
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline

T = TypeVar("T")


class Loop:
    def __init__(self, store: Path) -> None:
        self.spent: dict[str, float] = {}
        self.chunks = 0
        self._pipeline = Pipeline(open_embedder("static"))
        self._connection = sqlite3.connect(store, isolation_level=None)
        for pragma in PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(BARE)
        self._files = 0

    def run(self, folder: Path) -> None:
        waiting: list[tuple[str, str, os.stat_result, list[str]]] = []
        for path in self._files_of(folder):
            data, about = self._timed("read", partial(_read, path))
            known = self._timed("hash", partial(_hashed, data))
            for texts in self._texts(str(path), data):
                waiting.append((str(path), known, about, texts))
                if sum(len(one[3]) for one in waiting) >= MAX_TEXTS or len(waiting) >= MAX_DOCUMENTS:
                    self._write(waiting)
                    waiting = []
        self._write(waiting)
        self._connection.close()
        self._pipeline.close()

    def _files_of(self, folder: Path) -> Iterator[Path]:
        yield from sorted(folder.iterdir())

    def _texts(self, path: str, data: bytes) -> Iterator[list[str]]:
        """Long documents a piece at a time, as their tasks do it."""
        content, paged = Content(path, data), file_types.by_name(path) == file_types.PDF
        first, count = 1, 1
        while first <= count:
            pages = range(first, first + PAGES_PER_CALL) if paged else None
            work = partial(self._pipeline.draft, content, ChunkSizes(), pages=pages)
            draft = self._timed("extract and cut", work)
            yield [chunk.text for chunk in draft.chunks]
            count = draft.page_count if paged else 1
            first += PAGES_PER_CALL

    def _write(self, some: list[tuple[str, str, os.stat_result, list[str]]]) -> None:
        texts = [text for one in some for text in one[3]]
        vectors: list[bytes] = []
        for start in range(0, len(texts), MAX_TEXTS):
            some_texts = texts[start : start + MAX_TEXTS]
            vectors += self._timed("embed", partial(self._pipeline.embed, some_texts))
        self._timed("store", partial(self._store, some, texts, vectors))

    def _store(self, some: list[Any], texts: list[str], vectors: list[bytes]) -> None:
        execute, many = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        numbers = range(self.chunks, self.chunks + len(texts))
        owners = [self._files + at for at, one in enumerate(some) for _ in one[3]]
        many(
            "INSERT OR IGNORE INTO file VALUES (?, ?, ?, ?, ?)",
            [
                (self._files + at, path, known, about.st_mtime_ns, about.st_size)
                for at, (path, known, about, _) in enumerate(some)
            ],
        )
        many("INSERT INTO chunk VALUES (?, ?, ?)", zip(numbers, owners, texts, strict=True))
        many("INSERT INTO words (rowid, text) VALUES (?, ?)", zip(numbers, texts, strict=True))
        many("INSERT INTO vector VALUES (?, ?)", zip(numbers, vectors, strict=True))
        self._store_more(some)
        execute("COMMIT")
        self._files += len(some)
        self.chunks += len(texts)

    def _store_more(self, some: list[Any]) -> None:
        """Write further rows in the same transaction: none here."""

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        answer = work()
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - began
        return answer


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    return path.read_bytes(), path.stat()


def _hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    folder, store = map(Path, sys.argv[1:])
    loop = Loop(store)
    loop.run(folder)
    print(msgspec.json.encode({"chunks": loop.chunks, "spent": loop.spent}).decode())


if __name__ == "__main__":
    main()
