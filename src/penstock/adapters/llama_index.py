"""A retriever for LlamaIndex, and a last step of an ingestion pipeline that adds its nodes to an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

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

from penstock.adapters.pages import passage_of
from penstock.app import Penstock
from penstock.client.sync_client import Client
from penstock.service.hits import Hit
from penstock.service.options import SearchRequest, Where, refuse_unknown


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
