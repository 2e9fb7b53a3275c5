"""``python -m bench.unchanged_floor FOLDER STORE HOW``: the least that finds out that nothing has changed.

The first time, the store is made: a table of paths, sizes and times. After that, every file below the folder
is looked at with ``os.lstat``, directory by directory, and compared with its row:

- ``plain``: one SELECT by path a file, as a loop that indexes would write it;
- ``tight``: the whole table read into a dict first.

No ignore files, no rules by name, nothing about how a file was read. Prints how many were unchanged.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

SCHEMA = "CREATE TABLE file (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER) WITHOUT ROWID"


def files(folder: str) -> Iterator[tuple[str, int, int]]:
    for directory, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name != ".git")
        for name in sorted(names):
            path = f"{directory}/{name}"
            found = os.lstat(path)
            yield path, found.st_size, found.st_mtime_ns


def unchanged(folder: str, connection: sqlite3.Connection, how: str) -> int:
    if how == "tight":
        rows = connection.execute("SELECT path, size, mtime_ns FROM file")
        known = {path: (size, mtime_ns) for path, size, mtime_ns in rows}
        return sum(known.get(path) == (size, mtime_ns) for path, size, mtime_ns in files(folder))
    same = 0
    for path, size, mtime_ns in files(folder):
        row = connection.execute("SELECT size, mtime_ns FROM file WHERE path = ?", (path,)).fetchone()
        same += row == (size, mtime_ns)
    return same


def main() -> None:
    folder, store, how = sys.argv[1:]
    new = not Path(store).exists()
    connection = sqlite3.connect(store)
    if new:
        with connection:
            connection.execute(SCHEMA)
            connection.executemany("INSERT INTO file VALUES (?, ?, ?)", files(folder))
    print(msgspec.json.encode({"unchanged": unchanged(folder, connection, how)}).decode())
    connection.close()


if __name__ == "__main__":
    main()
