"""What the task lanes do: pages become chunks, chunks become vectors. A bad task is nobody else's trouble."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock import retry
from penstock.catalog import outcomes
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import NO_EXTRACTOR, Failure, NewPage, Phase, Task, TaskOutcome, TaskSource
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.recipe import Recipe

CHANGED = "the file changed while it was read"


class Phases:
    """``run`` takes claimed tasks of one lane and answers how each ended."""

    def __init__(self, catalog: Catalog, recipe: Recipe) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._content: tuple[TaskSource, Content] | None = None
        self._doing: Mapping[Phase, Callable[[Sequence[Task]], list[TaskOutcome]]] = {
            Phase.OCR: self._read_pages,
            Phase.VECTOR: self._embed,
            Phase.GRAPHRAG: lambda tasks: [outcomes.skipped(task, NO_EXTRACTOR) for task in tasks],
        }

    def fingerprint(self, lane: Phase) -> str | None:
        return self._recipe.embedder.fingerprint if lane is Phase.VECTOR else None

    def run(self, lane: Phase, tasks: Sequence[Task]) -> list[TaskOutcome]:
        return self._doing[lane](tasks)

    # Pages.

    def _read_pages(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        by_document: defaultdict[int, list[Task]] = defaultdict(list)
        for task in tasks:
            by_document[task.source.document_id].append(task)
        ended: list[TaskOutcome] = []
        for group in by_document.values():
            try:
                content = self._read(group[0].source)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is these tasks' answer
                ended += [_failed(task, error) for task in group]
                continue
            # Dropped: the tasks are gone with it, and the job reads the file anew.
            ended += self._pages_of(content, group) if content is not None else []
        return ended

    def _read(self, source: TaskSource) -> Content | None:
        """The file again; None when it is not the one the generation was begun for."""
        if self._content is not None and self._content[0] == source:
            return self._content[1]
        data = Path(source.path).read_bytes()
        if hashlib.sha256(data).hexdigest() != source.content_hash:
            self._catalog.drop(source.document_id, CHANGED)
            return None
        content = Content(source.path, data)
        self._content = (source, content)
        return content

    def _pages_of(self, content: Content, tasks: list[Task]) -> list[TaskOutcome]:
        numbers = [task.page_number for task in tasks]
        try:
            draft = self._recipe.draft(content, ChunkSizes(), pages=range(min(numbers), max(numbers) + 1))
            pages = {page.number: page for page in draft.pages}
            return [_page_ended(task, pages.get(task.page_number)) for task in tasks]
        except Exception as error:  # noqa: BLE001 - as above
            if len(tasks) == 1:
                return [_failed(tasks[0], error)]
        # One of them is at fault: alone, each shows whether it is.
        return [outcome for task in tasks for outcome in self._pages_of(content, [task])]

    # Vectors.

    def _embed(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        try:
            vectors = self._recipe.embed([task.text for task in tasks])
        except Exception as error:  # noqa: BLE001 - as above
            if len(tasks) == 1:
                return [_failed(tasks[0], error)]
            return [outcome for task in tasks for outcome in self._embed([task])]
        return [outcomes.completed_vector(task, vector) for task, vector in zip(tasks, vectors, strict=True)]


def _page_ended(task: Task, page: NewPage | None) -> TaskOutcome:
    if page is None:
        return outcomes.failed(task, Failure("ERR_PARSE", f"there is no page {task.page_number}"))
    if page.failure is not None:
        return outcomes.failed(task, page.failure)
    return outcomes.completed_page(task, page)


def _failed(task: Task, error: Exception) -> TaskOutcome:
    message = f"{type(error).__name__}: {error}"[:1000]
    return outcomes.failed_attempt(task, retry.classify(error), message, jitter=random.uniform(-1, 1))
