"""Open the catalog behind a store URL. Each engine is imported only when needed.

A catalog in a file has one host: behind a queue for many hosts, two files would split the index.
"""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import DocumentsElsewhere, UnknownScheme
from penstock.queue.factory import postgres_driver, sqlite_file
from penstock.queue.protocol import Queue


def open_catalog(settings: Settings, *, restoring: bool = False) -> Catalog:
    """Open the catalog behind ``settings.catalog_url`` and migrate the schema.

    ``restoring``: for a restore, which also opens a catalog whose restore was not finished.
    """
    url = settings.catalog_store
    if url.engine == "sqlite":
        return _sqlite(settings, restoring=restoring)
    if url.engine == "postgres":
        return _postgres(settings, restoring=restoring)
    raise UnknownScheme(
        f"no catalog for {url.masked[:200]!r}",
        remedy="Set PENSTOCK_CATALOG_URL to sqlite:///PATH or postgresql://….",
    )


def _sqlite(settings: Settings, *, restoring: bool) -> Catalog:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    return SqliteCatalog(
        sqlite_file(settings.catalog_store, settings),
        synchronous=settings.sqlite_synchronous,
        busy_timeout_s=settings.busy_timeout_s,
        restoring=restoring,
    )


def _postgres(settings: Settings, *, restoring: bool) -> Catalog:
    with postgres_driver():
        from penstock.catalog.sql.postgres import PostgresCatalog

    return PostgresCatalog(
        settings.catalog_url,
        pool_size=settings.postgres_pool_size,
        pooled=settings.postgres_pooler,
        timeout_s=settings.postgres_timeout_s,
        restoring=restoring,
    )


def needs_one_host(settings: Settings) -> bool:
    """True where the catalog is a file, but many hosts reach the queue, or may: in an extension's engine."""
    store = settings.store
    return settings.catalog_store.is_file and (store.many_hosts or store.engine is None)


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
