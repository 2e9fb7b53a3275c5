"""Warnings of a document together with those of its pages, which tasks may have read later."""

from __future__ import annotations

import msgspec

from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.rules.properties import MAX_WARNINGS, shortened
from penstock.catalog.views import Source
from penstock.pipeline.extract import file_types


def with_page_warnings(snapshot: CatalogSnapshot, source: Source) -> Source:
    """The document in search, with the warnings of its pages among its own."""
    if source.published_id is None:
        return source
    pages = snapshot.page_warnings(source.published_id, limit=MAX_WARNINGS)
    if not pages:
        return source
    known = source.properties
    unit = file_types.stored_type(source.file_type, known.media_type).page_unit
    found = [
        f"{unit} {number}: {warning}" if source.page_count > 1 else warning
        for number, warnings in pages.items()
        for warning in warnings
    ]
    properties = msgspec.structs.replace(known, warnings=shortened((*known.warnings, *found)))
    return msgspec.structs.replace(source, properties=properties)
