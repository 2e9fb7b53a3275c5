"""The one-host rule: with a shared queue, catalog files on two hosts would split the index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.job import WorkerReport

HOUSED = "documents"
IN_A_FILE = "in a file"


def needs_one_host(queue_url: str, catalog_url: str) -> bool:
    return catalog_url.startswith("sqlite:") and queue_url.startswith(("redis", "postgres"))


def housed_elsewhere(
    workers: Iterable[WorkerReport], here: str, heard_since: datetime
) -> WorkerReport | None:
    """A worker recently seen on another host with a catalog file of documents there."""
    for worker in workers:
        lives = worker.seen_at is not None and worker.seen_at > heard_since
        if lives and worker.host != here and worker.info.get(HOUSED) == IN_A_FILE:
            return worker
    return None
