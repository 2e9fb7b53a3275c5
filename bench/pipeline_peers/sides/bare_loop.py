"""A bare loop: Penstock's own reader, splitter and model, one SQLite file, nothing that a crash would need.

Size and time of each file say what has changed; a file is written with its chunks in one transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from bench.pipeline_peers.embedding import embed

PRAGMAS = ("journal_mode = WAL", "synchronous = FULL")
SCHEMA = """
CREATE TABLE IF NOT EXISTS file (id INTEGER PRIMARY KEY, path TEXT UNIQUE, mtime INTEGER, size INTEGER);
CREATE TABLE IF NOT EXISTS chunk (id INTEGER PRIMARY KEY, file INTEGER, text TEXT, vector BLOB);
CREATE INDEX IF NOT EXISTS chunk_file ON chunk (file);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5
    (text, content='chunk', content_rowid='id', tokenize='porter unicode61');
CREATE TRIGGER IF NOT EXISTS chunk_removed AFTER DELETE ON chunk BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
END;
"""
TEXTS = "SELECT path, text FROM file JOIN chunk ON chunk.file = file.id"
FILES_A_COMMIT = 64


def index(folder: Path, state: Path) -> None:
    connection = sqlite3.connect(state / "bare.db", isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(SCHEMA)
    rows = connection.execute("SELECT path, id, mtime, size FROM file")
    known = {path: (number, mtime, size) for path, number, mtime, size in rows}
    changed, gone = [], []
    for path, about in _files(folder):
        row = known.pop(path, None)
        if row is None or row[1:] != (about.st_mtime_ns, about.st_size):
            changed.append((path, about))
            gone += [row[0]] if row else []
    gone += [row[0] for row in known.values()]
    if gone:
        _remove(connection, gone)
    for at in range(0, len(changed), FILES_A_COMMIT):
        _add(connection, changed[at : at + FILES_A_COMMIT])
    connection.close()


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for directory, _, names in os.walk(folder):
        for name in names:
            path = f"{directory}/{name}"
            yield path, os.lstat(path)


def _remove(connection: sqlite3.Connection, numbers: list[int]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("DELETE FROM chunk WHERE file = ?", [(number,) for number in numbers])
    connection.executemany("DELETE FROM file WHERE id = ?", [(number,) for number in numbers])
    connection.execute("COMMIT")


def _add(connection: sqlite3.Connection, files: list[tuple[str, os.stat_result]]) -> None:
    # Imported when there is something to do, as a loop that runs often would do it.
    from penstock.pipeline.chunk.text import ChunkSizes
    from penstock.pipeline.embed import open_embedder
    from penstock.pipeline.extract.protocol import Content
    from penstock.pipeline.pipeline import Pipeline

    pipeline = Pipeline(open_embedder("static"))
    drafts = [pipeline.draft(Content(path, Path(path).read_bytes()), ChunkSizes()) for path, _ in files]
    vectors = iter(embed([chunk.text for draft in drafts for chunk in draft.chunks]))
    connection.execute("BEGIN IMMEDIATE")
    for (path, about), draft in zip(files, drafts, strict=True):
        row = (path, about.st_mtime_ns, about.st_size)
        number = connection.execute("INSERT INTO file (path, mtime, size) VALUES (?, ?, ?)", row).lastrowid
        for chunk in draft.chunks:
            values = (number, chunk.text, next(vectors).tobytes())
            added = connection.execute("INSERT INTO chunk (file, text, vector) VALUES (?, ?, ?)", values)
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, chunk.text))
    connection.execute("COMMIT")
    pipeline.close()


def stored(folder: Path, state: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with sqlite3.connect(state / "bare.db") as connection:
        for path, text in connection.execute(TEXTS):
            found.setdefault(str(Path(path).relative_to(folder)), []).append(text)
    return found
