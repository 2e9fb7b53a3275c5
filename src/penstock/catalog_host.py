"""What workers on other hosts mean for this one."""

from __future__ import annotations

import socket
from datetime import timedelta

from penstock.catalog.rules.single_host import housed_elsewhere
from penstock.config import Settings
from penstock.errors import DocumentsElsewhere
from penstock.queue.protocol import Queue


def needs_one_host(settings: Settings) -> bool:
    """True where the catalog is a file, but many hosts reach the queue."""
    return settings.catalog_store.is_file and settings.store.many_hosts


def refuse_second_host(settings: Settings, queue: Queue) -> None:
    """With the catalog in a file and the queue on a server: not where a second index would begin."""
    if not needs_one_host(settings):
        return
    heard_since = queue.now() - timedelta(seconds=2 * settings.heartbeat_s)
    worker = housed_elsewhere(queue.workers(), socket.gethostname(), heard_since)
    if worker is not None:
        raise DocumentsElsewhere(
            f"the documents of {settings.store.masked} are in a file on {worker.host}, "
            f"where {worker.worker_id} works on them"
        )
