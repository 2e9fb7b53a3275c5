"""What workers on other hosts mean for this one."""

from __future__ import annotations

import socket
from datetime import timedelta

from penstock.catalog.rules.single_host import housed_elsewhere, needs_one_host
from penstock.config import Settings, masked_url
from penstock.errors import DocumentsElsewhere
from penstock.queue.protocol import Queue


def refuse_second_host(settings: Settings, queue: Queue) -> None:
    """With the catalog in a file and the queue on a server: not where a second index would begin."""
    if not needs_one_host(settings.url, settings.catalog_url):
        return
    heard_since = queue.now() - timedelta(seconds=2 * settings.heartbeat_s)
    worker = housed_elsewhere(queue.workers(), socket.gethostname(), heard_since)
    if worker is not None:
        raise DocumentsElsewhere(
            f"the documents of {masked_url(settings.url)} are in a file on {worker.host}, "
            f"where {worker.worker_id} works on them"
        )
