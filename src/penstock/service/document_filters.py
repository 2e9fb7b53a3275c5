"""Filters that searches and lists of documents share."""

from __future__ import annotations

from typing import Unpack

from penstock.catalog.values import Filters, time_key
from penstock.errors import InvalidRequest
from penstock.items import validate_name
from penstock.payloads import LIBRARIES, library_path, parse_requirement
from penstock.service.options import DocumentFilters


def catalog_filters(default_tenant: str, **given: Unpack[DocumentFilters]) -> Filters:
    """Check filters and bring them into the form of the catalog."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{name}: expected a text, got {type(value).__name__}")
    file_type = given.get("file_type")
    return Filters(
        tenant_id=validate_name("tenant_id", given.get("tenant_id") or default_tenant),
        collection=given.get("collection"),
        branch=given.get("branch"),
        path=_path(given.get("path"), given.get("library")),
        file_type=file_type.removeprefix(".").lower() if file_type else None,
        tag=given.get("tag"),
        author=given.get("author"),
        title=given.get("title"),
        language=given.get("language"),
        created_from=_time("created_after", given.get("created_after")),
        created_before=_time("created_before", given.get("created_before")),
    )


def _path(path: str | None, library: str | None) -> str | None:
    if library is None:
        return path
    if path is not None:
        raise InvalidRequest("path and library: give one of them", remedy=f"Use the path {LIBRARIES}NAME/*.")
    name, version = parse_requirement(library)
    return f"{library_path(name, version or '')}/*"


def _time(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    found = time_key(text)
    if not found:
        raise InvalidRequest(
            f"{name}: {text[:40]!r} is not a date", remedy="Write a date like 2024-05-01, or a year."
        )
    return found
