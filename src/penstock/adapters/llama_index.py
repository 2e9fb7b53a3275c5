"""A retriever for LlamaIndex, and a last step of an ingestion pipeline that adds its nodes to an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack, cast

import msgspec
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
    TextNode,
    TransformComponent,
)
from pydantic import ConfigDict, Field, field_validator

from penstock.app import Penstock
from penstock.catalog.values import Source
from penstock.client.sync_client import Client
from penstock.errors import InvalidRequest
from penstock.service.hits import Hit
from penstock.service.requests import (
    FilteredScope,
    ListFilters,
    SearchRequest,
    Where,
    refuse_unknown,
)

_BATCH = 200
"""Documents listed at a time."""


class TextPassage(msgspec.Struct, frozen=True):
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
    while found := list_page(after=after, limit=_BATCH, **filters):
        yield from (source for source in found if source.published_id is not None)
        after = found[-1].source_id


class PenstockNodeRetriever(BaseRetriever):
    """Search an index.

        retriever = PenstockNodeRetriever(app, limit=5, collection="handbook")
        for found in retriever.retrieve("how does the mill take in water"):
            print(found.score, found.node.metadata["source"])

    ``options`` are those of ``Penstock.search``, such as ``project`` or ``all``. Hits that are weak are left
    out unless ``weak`` is true.
    """

    def __init__(
        self, index: Penstock | Client, *, weak: bool = False, **options: Unpack[SearchRequest]
    ) -> None:
        refuse_unknown("PenstockNodeRetriever", options, SearchRequest)
        super().__init__()
        self._index = index
        self._weak = weak
        self._options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, **self._options)
        return [_node(hit) for hit in hits if self._weak or not hit.weak]


class PenstockIngestion(TransformComponent):
    """Add the texts of nodes to an index as notes, and pass the nodes on.

        pipeline = IngestionPipeline(transformations=[SentenceSplitter(), PenstockIngestion(index=app)])
        pipeline.run(documents=documents)

    Penstock embeds the texts by itself, in a worker; equal texts are one note. ``where`` names tenant,
    collection and branch, ``tag`` is given to each note. ``wait_s``: how long to wait for the notes to be
    searchable; 0 returns once they are queued.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Penstock | Client
    tag: str | None = None
    where: dict[str, Any] = Field(default_factory=dict)
    wait_s: float = 0

    @field_validator("where", mode="before")
    @classmethod
    def _known_place(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            refuse_unknown("PenstockIngestion", given, Where)
        return given

    def __call__(
        self,
        nodes: Sequence[BaseNode],
        **kwargs: Any,  # noqa: ARG002 - options of a pipeline's run
    ) -> Sequence[BaseNode]:
        """Add the nodes in their order."""
        notes = self.index if isinstance(self.index, Client) else self.index.documents
        texts = (node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes)
        receipts = [notes.note(text, tag=self.tag, **self.where) for text in texts if text.strip()]
        if self.wait_s:
            for receipt in receipts:
                self.index.wait(receipt.job_id, run=receipt.run, timeout=self.wait_s)
        return nodes


def _node(hit: Hit) -> NodeWithScore:
    passage = passage_of(hit)
    node = TextNode(text=passage.text, id_=passage.passage_id, metadata=passage.metadata)
    return NodeWithScore(node=node, score=hit.score)
