"""A catalog in a file has one host: over a queue that many reach, a second file would split the index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.job import WorkerReport

HOUSED = "documents"
IN_A_FILE = "in a file"


def housed_elsewhere(
    workers: Iterable[WorkerReport], here: str, heard_since: datetime
) -> WorkerReport | None:
    """A worker on another host, heard of lately, that has documents in a file there."""
    for worker in workers:
        lives = worker.seen_at is not None and worker.seen_at > heard_since
        if lives and worker.host != here and worker.info.get(HOUSED) == IN_A_FILE:
            return worker
    return None
