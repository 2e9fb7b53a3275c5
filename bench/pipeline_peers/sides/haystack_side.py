"""Haystack: converter, splitter, embedder and writer, behind a cache checker by the path of the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from haystack import Document, Pipeline, component
from haystack.components.caching import CacheChecker
from haystack.components.converters import TextFileToDocument
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.writers import DocumentWriter
from haystack.document_stores.types import DuplicatePolicy
from haystack_integrations.document_stores.chroma import ChromaDocumentStore

from bench.pipeline_peers.embedding import CHUNK_WORDS, embed

BATCH = 32
"""Texts a call, as Haystack's own embedders do it."""


@component
class StaticEmbedder:
    """The embedding function of the benchmark as a component."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        embedded = []
        for at in range(0, len(documents), BATCH):
            some = documents[at : at + BATCH]
            vectors = embed([each.content or "" for each in some]).tolist()
            embedded += [
                dataclasses.replace(each, embedding=vector)
                for each, vector in zip(some, vectors, strict=True)
            ]
        return {"documents": embedded}


def index(folder: Path, state: Path) -> None:
    store = _open(state)
    # The checker answers with an untyped list.
    pipeline = Pipeline(connection_type_validation=False)
    pipeline.add_component("cache", CacheChecker(store, cache_field="meta.file_path"))
    pipeline.add_component("converter", TextFileToDocument(store_full_path=True))
    pipeline.add_component("splitter", DocumentSplitter(split_by="word", split_length=CHUNK_WORDS))
    pipeline.add_component("embedder", StaticEmbedder())
    pipeline.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    pipeline.connect("cache.misses", "converter.sources")
    pipeline.connect("converter", "splitter")
    pipeline.connect("splitter", "embedder")
    pipeline.connect("embedder", "writer")
    pipeline.run({"cache": {"items": [str(path) for path in sorted(folder.rglob("*.txt"))]}})


def stored(folder: Path, state: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in _open(state).filter_documents():
        found.setdefault(str(Path(each.meta["file_path"]).relative_to(folder)), []).append(each.content or "")
    return found


def _open(state: Path) -> ChromaDocumentStore:
    return ChromaDocumentStore(persist_path=str(state / "chroma"))
