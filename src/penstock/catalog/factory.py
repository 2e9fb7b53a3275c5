"""Open the catalog behind a store URL. Each engine is imported only when needed."""

from __future__ import annotations

from penstock.catalog.protocol import Catalog
from penstock.config import Settings, masked_url
from penstock.errors import UnknownScheme
from penstock.queue.factory import postgres_driver, sqlite_file


def open_catalog(settings: Settings) -> Catalog:
    """Open the catalog behind ``settings.catalog_url`` and migrate the schema."""
    scheme, separator, rest = settings.catalog_url.partition("://")
    if separator and scheme == "sqlite":
        return _sqlite(rest, settings)
    if separator and scheme in ("postgresql", "postgres"):
        return _postgres(settings)
    raise UnknownScheme(
        f"no catalog for {masked_url(settings.catalog_url)[:200]!r}",
        remedy="Set PENSTOCK_CATALOG_URL to sqlite:///PATH or postgresql://….",
    )


def _sqlite(rest: str, settings: Settings) -> Catalog:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    return SqliteCatalog(
        sqlite_file(rest, settings),
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
