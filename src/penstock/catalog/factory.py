"""Open the catalog behind a store URL. Each engine is imported only when needed."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import UnknownScheme
from penstock.queue.factory import postgres_driver, sqlite_file


def open_catalog(settings: Settings) -> Catalog:
    """Open the catalog behind ``settings.catalog_url`` and migrate the schema."""
    url = settings.catalog_store
    if url.engine == "sqlite":
        return _sqlite(settings)
    if url.engine == "postgres":
        return _postgres(settings)
    raise UnknownScheme(
        f"no catalog for {url.masked[:200]!r}",
        remedy="Set PENSTOCK_CATALOG_URL to sqlite:///PATH or postgresql://….",
    )


def _sqlite(settings: Settings) -> Catalog:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    return SqliteCatalog(
        sqlite_file(settings.catalog_store, settings),
        synchronous=settings.sqlite_synchronous,
        busy_timeout_s=settings.busy_timeout_s,
    )


def _postgres(settings: Settings) -> Catalog:
    with postgres_driver():
        from penstock.catalog.sql.postgres import PostgresCatalog

    return PostgresCatalog(
        settings.catalog_url,
        pool_size=settings.postgres_pool_size,
        pooled=settings.postgres_pooler,
        timeout_s=settings.postgres_timeout_s,
    )
