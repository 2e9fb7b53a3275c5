"""CocoIndex: its text embedding example, with its SQLite connector as the target.

Files and embeddings are memoized, and concurrent embeddings are batched, as in CocoIndex's own embedder.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import cocoindex as coco
import numpy as np
from cocoindex.connectors import localfs, sqlite
from cocoindex.ops.text import RecursiveSplitter
from cocoindex.resources.chunk import Chunk
from cocoindex.resources.file import FileLike, PatternFilePathMatcher
from cocoindex.resources.id import IdGenerator
from numpy.typing import NDArray

from bench.pipeline_peers import embedding

DB = coco.ContextKey[sqlite.ManagedConnection]("documents_db")

_splitter = RecursiveSplitter()
_state: list[pathlib.Path] = []


@coco.lifespan
def lifespan(builder: coco.EnvironmentBuilder) -> Iterator[None]:
    builder.settings.db_path = _state[0] / "cocoindex.db"
    with sqlite.managed_connection(_state[0] / "documents.db", load_vec=False) as connection:
        builder.provide(DB, connection)
        yield


@dataclass
class DocumentChunk:
    id: int
    filename: str
    text: str
    embedding: bytes
    """Not the column type of sqlite-vec, which needs a Python whose SQLite loads extensions."""


@coco.fn.as_async(batching=True, max_batch_size=64)
def embed_texts(texts: list[str]) -> list[NDArray[np.float32]]:
    return list(embedding.embed(texts))


@coco.fn(memo=True, version=1, logic_tracking="self")
async def embed_text(text: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = await embed_texts(text)
    return vector


@coco.fn
async def process_chunk(
    chunk: Chunk,
    filename: pathlib.PurePath,
    numbers: IdGenerator,
    table: sqlite.TableTarget[DocumentChunk],
) -> None:
    table.declare_row(
        row=DocumentChunk(
            id=await numbers.next_id(chunk.text),
            filename=str(filename),
            text=chunk.text,
            embedding=(await embed_text(chunk.text)).tobytes(),
        )
    )


@coco.fn(memo=True)
async def process_file(file: FileLike, table: sqlite.TableTarget[DocumentChunk]) -> None:
    text = await file.read_text()
    chunks = _splitter.split(text, chunk_size=embedding.CHUNK_CHARACTERS, chunk_overlap=0)
    await coco.map(process_chunk, chunks, file.file_path.path, IdGenerator(), table)


@coco.fn
async def app_main(folder: pathlib.Path) -> None:
    table = await sqlite.mount_table_target(
        DB, "documents", await sqlite.TableSchema.from_class(DocumentChunk, primary_key=["id"])
    )
    files = localfs.walk_dir(
        folder, recursive=True, path_matcher=PatternFilePathMatcher(included_patterns=["**/*.txt"])
    )
    await coco.mount_each(process_file, files.items(), table)


def index(folder: pathlib.Path, state: pathlib.Path) -> None:
    _state[:] = [state]
    app = coco.App(coco.AppConfig(name="Documents"), app_main, folder=folder)
    app.update_blocking()


def stored(folder: pathlib.Path, state: pathlib.Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with sqlite3.connect(state / "documents.db") as connection:
        for name, text in connection.execute("SELECT filename, text FROM documents"):
            path = pathlib.Path(name)
            found.setdefault(str(path.relative_to(folder) if path.is_absolute() else path), []).append(text)
    return found
