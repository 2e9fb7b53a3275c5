"""Hits and pages of an index as texts with metadata, the form in which RAG packages exchange them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from penstock.app import Penstock
from penstock.catalog.views import Source
from penstock.client.sync_client import Client
from penstock.named_tuple import NamedTuple
from penstock.service.document_filters import DocumentFilters
from penstock.service.hits import Hit

BATCH = 200
"""Documents listed at a time."""


class TextPassage(NamedTuple):
    """A text with an id and metadata as JSON values."""

    text: str
    passage_id: str
    metadata: dict[str, Any]


def passage_of(hit: Hit) -> TextPassage:
    """Return the matching chunk and the place of the match."""
    metadata = {
        "source": hit.path,
        "title": hit.title,
        "page": hit.page,
        "first_line": hit.first_line,
        "last_line": hit.last_line,
        "heading": hit.heading,
        "tags": list(hit.tags),
        "tenant_id": hit.tenant_id,
        "collection": hit.collection,
        "branch": hit.branch,
        "source_id": hit.source_id,
        "score": hit.score,
        "weak": hit.weak,
    }
    return TextPassage(hit.text, hit.chunk_id, metadata)


def page_passages(index: Penstock | Client, **filters: Unpack[DocumentFilters]) -> Iterator[TextPassage]:
    """List the pages of the documents in search, one document after the other, ordered by document id."""
    for source in _documents(index, filters):
        for number in range(1, source.page_count + 1):
            reader = index if isinstance(index, Client) else index.documents
            page = reader.page(source.source_id, number, tenant_id=source.place.tenant_id)
            metadata = {
                "source": source.path,
                "title": source.title,
                "page": number,
                "page_count": source.page_count,
                "tags": list(source.tags),
                "tenant_id": source.place.tenant_id,
                "collection": source.place.collection,
                "branch": source.place.branch,
                "source_id": source.source_id,
            }
            yield TextPassage(page.text, f"{source.source_id}:{number}", metadata)


def _documents(index: Penstock | Client, filters: DocumentFilters) -> Iterator[Source]:
    list_page = index.documents if isinstance(index, Client) else index.documents.sources
    after = ""
    while found := list_page(after=after, limit=BATCH, **filters):
        yield from (source for source in found if source.published_id is not None)
        after = found[-1].source_id
