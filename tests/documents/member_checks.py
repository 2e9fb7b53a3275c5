"""Checks of documents inside documents."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.documents.conftest import IndexedFolder

FLOUR, BREAD, WHEEL = b"# Flour\n\nIt is white.", b"Bread rises slowly.", b"Water drives the wheel."


def ids(docs: IndexedFolder) -> dict[str, str]:
    """Ids of the documents that search finds, by path."""
    found = docs.app.documents.sources(limit=1000)
    return {
        source.path.removeprefix(f"{docs.folder}/"): source.source_id
        for source in found
        if source.published_id is not None
    }


def paths(docs: IndexedFolder) -> list[str]:
    return sorted(ids(docs))


def read_by(docs: IndexedFolder, action: Callable[[], Any]) -> list[str]:
    """Paths of the file jobs that an action adds."""
    before = {one.queue_id for one in docs.app.jobs(item_type="file", limit=1000)}
    action()
    return sorted(
        one.payload["file_path"].removeprefix(f"{docs.folder}/")
        for one in docs.app.jobs(item_type="file", limit=1000)
        if one.queue_id not in before
    )


def later(path: Path) -> None:
    """Give a file another time, as a change on another day would."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))


def clean(docs: IndexedFolder) -> bool:
    return [] == list(docs.app.verifier.differences())
