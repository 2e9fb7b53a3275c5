"""A retriever and a document loader for LangChain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, field_validator

from penstock.adapters.llama_index import TextPassage, page_passages, passage_of
from penstock.app import Penstock
from penstock.client.sync_client import Client
from penstock.service.requests import FilteredScope, SearchRequest, refuse_unknown


class PenstockRetriever(BaseRetriever):
    """Search an index.

        retriever = PenstockRetriever(index=app, options={"limit": 5, "collection": "handbook"})
        for document in retriever.invoke("how does the mill take in water"):
            print(document.metadata["source"], document.page_content)

    ``options`` are those of ``Penstock.search``, such as ``project`` or ``all``. Hits that are weak are left
    out unless ``weak`` is true.
    """

    index: Penstock | Client
    options: dict[str, Any] = Field(default_factory=dict)
    weak: bool = False

    @field_validator("options", mode="before")
    @classmethod
    def _known_options(cls, given: Any) -> Any:
        # Not the type SearchRequest: pydantic takes no TypedDict of Python 3.11.
        if isinstance(given, Mapping):
            refuse_unknown("PenstockRetriever", given, SearchRequest)
        return given

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the caller names it
    ) -> list[Document]:
        hits = self.index.search(query, **self.options)
        return [_document(passage_of(hit)) for hit in hits if self.weak or not hit.weak]


class PenstockLoader(BaseLoader):
    """Load the text of indexed documents, a page at a time.

        for document in PenstockLoader(app, collection="handbook").lazy_load():
            print(document.metadata["source"], document.metadata["page"])

    The filters are those of ``Documents.sources``; with ``all`` the documents of every tenant are loaded.
    """

    def __init__(self, index: Penstock | Client, **filters: Unpack[FilteredScope]) -> None:
        refuse_unknown("PenstockLoader", filters, FilteredScope)
        self._index = index
        self._filters = filters

    def lazy_load(self) -> Iterator[Document]:
        """Yield a document for each page."""
        return map(_document, page_passages(self._index, **self._filters))


def _document(passage: TextPassage) -> Document:
    return Document(page_content=passage.text, id=passage.passage_id, metadata=passage.metadata)
