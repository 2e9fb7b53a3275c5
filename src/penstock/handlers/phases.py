"""What the task lanes do: pages become chunks, chunks become vectors. A bad task is nobody else's trouble."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock import retry
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import outcomes
from penstock.catalog.rules.publication import UNFINISHED
from penstock.catalog.values import NO_EXTRACTOR, Failure, NewPage, Phase, Task, TaskOutcome, TaskSource
from penstock.errors import PermanentFailure, TimeBudgetExceeded, UnsupportedType
from penstock.handlers.chunk_vectors import MOST_TEXTS, PageOwner, embed
from penstock.handlers.file_reader import FileContent, read_file
from penstock.pipeline.budget import MemoryInUse
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.fingerprints import sizes_of
from penstock.pipeline.pipeline import Pipeline

CHANGED = "the file changed while it was read"
OTHER_MODEL = "the model changed while it was embedded"
BEGIN_ANEW = frozenset({CHANGED, OTHER_MODEL, UNFINISHED})
"""Why generations were given up whose jobs begin anew."""

MOST_SLOW_PAGES = 3
"""Pages of a document that may exceed the time budget; then the rest of it is not tried."""
TOO_SLOW = Failure("ERR_FILE_TIME", f"{MOST_SLOW_PAGES} pages of this document exceeded their time budget")
WAIT_FOR_MEMORY_S = 0.2

FAILURE_CODES = {
    "ERR_CHANGED": "The file changed while it was read. Index it again.",
    "ERR_OTHER_MODEL": "The document is of another model than the index now. Run `penstock rebuild`.",
}


class _Open(NamedTuple):
    """A file that is the one its generation was begun for, and how it is cut."""

    source: TaskSource
    content: Content
    sizes: ChunkSizes


class Phases:
    """``run`` takes claimed tasks of one lane and answers how each ended."""

    def __init__(self, catalog: Catalog, recipe: Pipeline) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._content: _Open | None = None
        self._slow_pages = Counter[int]()
        """Pages of each document that exceeded the time budget."""
        self._doing: Mapping[Phase, Callable[[Sequence[Task]], list[TaskOutcome]]] = {
            Phase.OCR: self._read_pages,
            Phase.VECTOR: self._embed,
            Phase.GRAPHRAG: lambda tasks: [outcomes.skipped(task, NO_EXTRACTOR) for task in tasks],
        }

    def fingerprint(self, lane: Phase) -> str | None:
        return self._recipe.space if lane is Phase.VECTOR else None

    def run(self, lane: Phase, tasks: Sequence[Task], *, embedding: bool = False) -> list[TaskOutcome]:
        """``embedding``: pages may get their vectors at once, from whoever serves that lane as well."""
        ended = self._doing[lane](tasks)
        return self._with_vectors(tasks, ended) if embedding and lane is Phase.OCR else ended

    def close(self) -> None:
        """Ends the process that parsers run in."""
        self._recipe.close()

    # Pages.

    def _read_pages(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        ended: list[TaskOutcome] = []
        for group in _runs(tasks):
            try:
                file = self._read(group[0].source, group[0].file_path)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is these tasks' answer
                ended += [_failed(task, error) for task in group]
                continue
            # Dropped: the tasks are gone with it, and the job reads the file anew.
            ended += self._pages_of(file, group) if file is not None else []
        return ended

    def _read(self, source: TaskSource, file_path: str | None) -> _Open | None:
        """The file again; None when it is not the one the generation was begun for."""
        if self._content is not None and self._content.source == source:
            return self._content
        read = self._bytes(source.path, file_path)
        name = file_types.named_as(source.path, source.file_type) if source.file_type else source.path
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(source.document_id)
        sizes = sizes_of(document.fingerprints) if document is not None else None
        if read is None or document is None or sizes is None:
            self._give_up(source)
            return None
        same = hashlib.sha256(read.data).hexdigest() == source.content_hash
        if not same or self._recipe.fingerprints(name, sizes).ocr != document.fingerprints.ocr:
            self._give_up(source)
            return None
        self._content = _Open(source, Content(name, read.data), sizes)
        return self._content

    def _bytes(self, path: str, file_path: str | None) -> FileContent | None:
        """From where it was first read, or from where it is known when it has been moved there since."""
        for place in filter(None, (file_path, path)):
            with suppress(FileNotFoundError, NotADirectoryError, UnsupportedType):
                return read_file(place, self._recipe.limits.file_bytes, lambda _: False)
        return None

    def _give_up(self, source: TaskSource, why: str = CHANGED, code: str = "ERR_CHANGED") -> None:
        """What was begun cannot be finished. A generation that is published already keeps what it has."""
        if not self._catalog.drop(source.document_id, why):
            raise PermanentFailure(why, code=code)

    def _pages_of(self, file: _Open, tasks: list[Task]) -> list[TaskOutcome]:
        numbers = [task.page_number for task in tasks]
        if self._slow_pages[file.source.document_id] >= MOST_SLOW_PAGES:
            return [outcomes.failed(task, TOO_SLOW) for task in tasks]
        try:
            draft = self._recipe.draft(file.content, file.sizes, pages=range(min(numbers), max(numbers) + 1))
            pages = {page.number: page for page in draft.pages}
            # A batch ends after some seconds of work: what it did not come to is for the next.
            left = range(max(pages, default=draft.page_count) + 1, draft.page_count + 1)
            return [
                outcomes.released(task)
                if task.page_number in left
                else _page_ended(task, pages.get(task.page_number))
                for task in tasks
            ]
        except MemoryInUse:
            time.sleep(WAIT_FOR_MEMORY_S)
            return [outcomes.released(task) for task in tasks]
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, TimeBudgetExceeded) and len(tasks) == 1:
                self._slow_pages[file.source.document_id] += 1
            if len(tasks) == 1:
                return [_failed(tasks[0], error)]
        # One of them is at fault: alone, each shows whether it is.
        return [outcome for task in tasks for outcome in self._pages_of(file, [task])]

    # Vectors.

    def _with_vectors(self, tasks: Sequence[Task], ended: list[TaskOutcome]) -> list[TaskOutcome]:
        """What is embedded now needs no tasks of its own: a chunk is written once instead of three times.
        Not the page of a suspect: should one of its texts be what kills, its task is to find out which."""
        asked = {task.task_id: task for task in tasks}
        wanted: list[tuple[PageOwner, list[NewPage]]] = []
        chosen: set[int] = set()
        room = MOST_TEXTS
        for outcome in ended:
            source, texts = asked[outcome.task_id].source, len((outcome.page and outcome.page.chunks) or ())
            suspect = asked[outcome.task_id].suspect
            if outcome.page is None or source.space != self._recipe.space or suspect or texts > room:
                continue
            room -= texts
            wanted.append((PageOwner(source.place.tenant_id, source.source_id), [outcome.page]))
            chosen.add(outcome.task_id)
        vectors = embed(self._catalog, self._recipe, wanted)
        return [
            msgspec.structs.replace(outcome, page=vectors.given_to([outcome.page])[0])
            if outcome.page is not None and outcome.task_id in chosen
            else outcome
            for outcome in ended
        ]

    def _embed(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        ours = [task for task in tasks if task.source.space == self._recipe.space]
        ended = self._embed_ours(ours) if ours else []
        # Begun before the model was changed: a vector of ours would not belong beside the others.
        for task in tasks:
            if task.source.space != self._recipe.space:
                try:
                    self._give_up(task.source, OTHER_MODEL, "ERR_OTHER_MODEL")
                except PermanentFailure as error:
                    ended.append(_failed(task, error))
        return ended

    def _embed_ours(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        try:
            vectors = self._recipe.embed([task.text for task in tasks])
        except Exception as error:  # noqa: BLE001 - as above
            if len(tasks) == 1:
                return [_failed(tasks[0], error)]
            return [outcome for task in tasks for outcome in self._embed_ours([task])]
        return [outcomes.completed_vector(task, vector) for task, vector in zip(tasks, vectors, strict=True)]


def _runs(tasks: Sequence[Task]) -> list[list[Task]]:
    """Pages that follow each other in one document: they are read together, and none between them in vain."""
    runs: list[list[Task]] = []
    for task in sorted(tasks, key=lambda task: (task.source.document_id, task.page_number)):
        last = runs[-1][-1] if runs else None
        follows = last is not None and last.page_number + 1 == task.page_number
        if follows and last is not None and last.source.document_id == task.source.document_id:
            runs[-1].append(task)
        else:
            runs.append([task])
    return runs


def _page_ended(task: Task, page: NewPage | None) -> TaskOutcome:
    if page is None:
        return outcomes.failed(task, Failure("ERR_PARSE", f"there is no page {task.page_number}"))
    if page.failure is not None:
        return outcomes.failed(task, page.failure)
    return outcomes.completed_page(task, page)


def _failed(task: Task, error: Exception) -> TaskOutcome:
    message = f"{type(error).__name__}: {str(error)[:1000]}"[:1000]
    return outcomes.failed_attempt(task, retry.classify(error), message, jitter=random.uniform(-1, 1))
