"""Hits and pages of an index as texts with metadata, the form in which RAG packages exchange them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack, cast

from penstock.app import Penstock
from penstock.catalog.values import Source
from penstock.client.sync_client import Client
from penstock.errors import InvalidRequest
from penstock.named_tuple import NamedTuple
from penstock.service.hits import Hit
from penstock.service.options import FilteredScope, ListFilters

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


def page_passages(index: Penstock | Client, **filters: Unpack[FilteredScope]) -> Iterator[TextPassage]:
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


def _documents(index: Penstock | Client, filters: FilteredScope) -> Iterator[Source]:
    """The documents in search of one tenant or project, or with ``all`` of one tenant after the other."""
    narrowed = cast("ListFilters", {name: value for name, value in filters.items() if name != "all"})
    if not filters.get("all"):
        yield from _listed(index, narrowed)
        return
    if narrowed.get("tenant_id") is not None or narrowed.get("project") is not None:
        raise InvalidRequest("tenant_id, project and all: give one of them")
    counts = index.overview() if isinstance(index, Client) else index.documents.overview()
    for tenant_id in dict.fromkeys(one.tenant_id for one in counts.tenants):
        yield from _listed(index, {**narrowed, "tenant_id": tenant_id})


def _listed(index: Penstock | Client, filters: ListFilters) -> Iterator[Source]:
    list_page = index.documents if isinstance(index, Client) else index.documents.sources
    after = ""
    while found := list_page(after=after, limit=BATCH, **filters):
        yield from (source for source in found if source.published_id is not None)
        after = found[-1].source_id
