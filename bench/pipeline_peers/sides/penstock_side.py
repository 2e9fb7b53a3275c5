"""Penstock: the command itself is measured; this reads the index to compare it with the folder."""

from __future__ import annotations

import sqlite3
from pathlib import Path

TEXTS = """
SELECT sources.path, content.text
FROM sources
JOIN task_queue_chunk AS chunk ON chunk.document_id = sources.published_id
JOIN catalog_content AS content ON content.id = chunk.content_id
WHERE chunk.vector_status = 'completed'
"""


def stored(folder: Path, state: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with sqlite3.connect(state / "penstock.db") as connection:
        for path, text in connection.execute(TEXTS):
            found.setdefault(str(Path(path).relative_to(folder)), []).append(text)
    return found
