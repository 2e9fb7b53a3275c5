"""Entities and relations of claimed chunks: the tasks of a document are extracted together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.entities import Extraction
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import NewChunk, Task, TaskSource
from penstock.pipeline.extract import file_types
from penstock.pipeline.graph.code import module_name
from penstock.pipeline.graph.factory import extractor_for, language_of
from penstock.pipeline.graph.protocol import NOTHING, GraphChunk, GraphDocument, GraphExtractor

if TYPE_CHECKING:
    from penstock.pipeline.graph.llm import LlmExtractor


class ChunkGraphs:
    """Extracts graphs. Source code is read as a whole, once for tasks of a file that follow each other."""

    def __init__(self, catalog: Catalog, llm: LlmExtractor | None = None) -> None:
        self._catalog = catalog
        self._llm = llm
        self._last: tuple[int, list[Extraction], list[str]] | None = None
        """The last document read as a whole: extractions of its chunks, and the hashes of their texts."""

    def extract(self, tasks: Sequence[Task]) -> list[Extraction]:
        """The extractions of chunks of one document."""
        source = tasks[0].source
        name = _file_name(source)
        extractor = extractor_for(name, self._llm)
        if extractor is None:
            return [NOTHING for _ in tasks]
        language = language_of(name)
        if not language:
            chunks = [
                GraphChunk(task.text, task.page_number, heading_path=task.heading_path) for task in tasks
            ]
            return extractor.extract(GraphDocument(source.path, chunks), range(len(chunks)))
        if self._last is None or self._last[0] != source.document_id:
            self._last = (source.document_id, *self._whole(source, extractor, language))
        _, extractions, hashes = self._last
        return [extractions[at] for at in _positions(tasks, hashes)]

    def asks_service(self, task: Task) -> bool:
        """Tell whether the chunk is sent to a language model."""
        name = _file_name(task.source)
        return self._llm is not None and not language_of(name) and extractor_for(name) is not None

    def _whole(
        self, source: TaskSource, extractor: GraphExtractor, language: str
    ) -> tuple[list[Extraction], list[str]]:
        with self._catalog.snapshot() as snapshot:
            pages = snapshot.content(source.document_id)
        parts = [(page.number, chunk) for page in pages for chunk in page.chunks or ()]
        chunks = [_chunk(number, part) for number, part in parts]
        module = module_name(source.path, _is_package)
        document = GraphDocument(source.path, chunks, language, module)
        return extractor.extract(document, range(len(chunks))), [part.text_hash for _, part in parts]


def _file_name(source: TaskSource) -> str:
    return file_types.named_as(source.path, source.file_type) if source.file_type else source.path


def _is_package(folder: str) -> bool:
    return Path(folder, "__init__.py").exists()


def _chunk(page_number: int, chunk: NewChunk) -> GraphChunk:
    return GraphChunk(
        chunk.text, page_number, chunk.start, chunk.first_line, chunk.last_line, chunk.heading_path
    )


def _positions(tasks: Sequence[Task], hashes: Sequence[str]) -> list[int]:
    """The position of each task's chunk in the document; equal texts get different positions."""
    places: dict[str, list[int]] = {}
    for at, text_hash in enumerate(hashes):
        places.setdefault(text_hash, []).append(at)
    return [found.pop(0) if len(found := places[task.text_hash]) > 1 else found[0] for task in tasks]
