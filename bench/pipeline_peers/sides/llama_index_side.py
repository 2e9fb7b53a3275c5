"""LlamaIndex: an ingestion pipeline with a document store, ``upserts_and_delete`` and Chroma.

The cache of transformations is off: its key covers the whole list of nodes of a run, so a change of one file
misses it, and it has to be written with all vectors.
"""

from __future__ import annotations

from pathlib import Path

import chromadb
from llama_index.core import SimpleDirectoryReader
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.vector_stores.chroma import ChromaVectorStore

from bench.pipeline_peers.embedding import CHUNK_TOKENS, embed


class StaticEmbedding(BaseEmbedding):
    """The embedding function of the benchmark as LlamaIndex takes one."""

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = embed(texts).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def index(folder: Path, state: Path) -> None:
    documents = SimpleDirectoryReader(str(folder), recursive=True, filename_as_id=True).load_data()
    docstore_file = state / "docstore.json"
    if docstore_file.exists():
        docstore = SimpleDocumentStore.from_persist_path(str(docstore_file))
    else:
        docstore = SimpleDocumentStore()
    pipeline = IngestionPipeline(
        transformations=[
            SentenceSplitter(chunk_size=CHUNK_TOKENS, chunk_overlap=0),
            StaticEmbedding(model_name="static", embed_batch_size=100),
        ],
        docstore=docstore,
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        vector_store=ChromaVectorStore(chroma_collection=_open(state)),
        disable_cache=True,
    )
    pipeline.run(documents=documents)
    docstore.persist(str(docstore_file))


def stored(folder: Path, state: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    rows = _open(state).get(include=["metadatas", "documents"])
    for about, text in zip(rows["metadatas"], rows["documents"], strict=True):
        found.setdefault(str(Path(about["file_path"]).relative_to(folder)), []).append(text)
    return found


def _open(state: Path) -> chromadb.Collection:
    client = chromadb.PersistentClient(path=str(state / "chroma"))
    return client.get_or_create_collection("documents", embedding_function=None)
