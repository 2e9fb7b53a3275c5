"""Catalogs in a file have one host: behind a queue for many hosts, two files would split the index."""

from __future__ import annotations

from penstock.config import Settings
from penstock.errors import DocumentsElsewhere
from penstock.queue.protocol import Queue


def needs_one_host(settings: Settings) -> bool:
    """True where the catalog is a file, but many hosts reach the queue."""
    return settings.catalog_store.is_file and settings.store.many_hosts


def refuse_second_host(settings: Settings, queue: Queue) -> None:
    """Raise ``DocumentsElsewhere`` where a live worker on another host has the documents in a file."""
    if not needs_one_host(settings):
        return
    import socket

    here, now = socket.gethostname(), queue.now()
    for worker in queue.workers():
        alive = worker.alive(now, settings.heartbeat_s)
        if alive and worker.host != here and worker.has_document_file:
            raise DocumentsElsewhere(
                f"the documents of {settings.store.masked} are in a file on {worker.host}, "
                f"where {worker.worker_id} works on them"
            )
