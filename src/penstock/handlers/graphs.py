"""Entities and relations of claimed chunks: the tasks of a document are extracted together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.catalog.graph import Extraction
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import NewChunk, Task, TaskOutcome, TaskSource
from penstock.errors import PenstockError, ServiceUnavailable, TokenLimitReached
from penstock.handlers.context import failed_at_service
from penstock.handlers.generations import OwnedText, check_limit, count_tokens
from penstock.pipeline.budget import CallLimitReached
from penstock.pipeline.endpoint import EndpointSilent
from penstock.pipeline.extract import file_types
from penstock.pipeline.graph.code import module_name
from penstock.pipeline.graph.factory import extractor_for, language_of
from penstock.pipeline.graph.protocol import NOTHING, SERVICE, GraphChunk, GraphDocument, GraphExtractor

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

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


# Entities and relations from a language model: several chunks at a time, each with its own outcome.


Result: TypeAlias = Extraction | Exception
UNANSWERED = (ServiceUnavailable, CallLimitReached, TokenLimitReached, EndpointSilent)
"""Errors of a call that the service did not answer, or that was not made."""


class ServiceGraphs:
    """Asks a model about chunks. While the service is down, one call detects the outage for all of them."""

    def __init__(self, catalog: Catalog, llm: LlmExtractor, graphs: ChunkGraphs) -> None:
        self._catalog = catalog
        self._llm = llm
        self._graphs = graphs
        self._answered = False
        """The last calls were answered, so that the next ones are made together."""

    def extract(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """The outcomes of chunks of any documents."""
        from concurrent.futures import ThreadPoolExecutor

        ended: list[TaskOutcome] = []
        left = list(tasks)
        with ThreadPoolExecutor(self._llm.calls) as threads:
            while left:
                size = self._llm.calls if self._answered else 1
                some, left = left[:size], left[size:]
                results = self._ask(some, threads)
                ended += map(_outcome, some, results)
                down = next((one for one in results if isinstance(one, ServiceUnavailable)), None)
                if down is not None:
                    # The other chunks would meet the same.
                    return ended + [failed_at_service(task, down) for task in left]
        return ended

    def _ask(self, tasks: Sequence[Task], threads: ThreadPoolExecutor) -> list[Result]:
        """Ask about chunks at the same time, unless the breaker of the service is open."""
        results: list[Result] = []
        try:
            with self._guarded():
                results = self._with_probe(self._called(tasks, threads), tasks[0])
                down = [one for one in results if isinstance(one, ServiceUnavailable)]
                if down:
                    raise down[0]
                self._answered = any(not isinstance(one, UNANSWERED) for one in results)
                if not self._answered and isinstance(results[0], Exception):
                    # No call was made, or none answered: the breaker stays as it is.
                    raise results[0]
        except ServiceUnavailable as error:
            self._answered = False
            known = self._down(error)
            return [known if isinstance(one, ServiceUnavailable) else one for one in results] or [
                known for _ in tasks
            ]
        except UNANSWERED:
            pass
        return results

    def _guarded(self) -> AbstractContextManager[None]:
        return self._llm.guard.calling(SERVICE) if self._llm.guard is not None else nullcontext()

    def _down(self, error: ServiceUnavailable) -> ServiceUnavailable:
        """The error with the wait that the breaker asks for."""
        wait = self._llm.guard.delay(error) if self._llm.guard is not None else error.retry_after
        return ServiceUnavailable(SERVICE, error.message, retry_after=wait, remedy=error.remedy)

    def _called(self, tasks: Sequence[Task], threads: ThreadPoolExecutor) -> list[Result]:
        refused: dict[str, Exception] = {}
        for tenant_id in sorted({task.source.place.tenant_id for task in tasks}):
            try:
                check_limit(self._catalog, self._llm, {tenant_id})
            except TokenLimitReached as error:
                refused[tenant_id] = error
        asked = [task for task in tasks if task.source.place.tenant_id not in refused]
        answers = dict(zip([task.task_id for task in asked], threads.map(self._call, asked), strict=True))
        count_tokens(self._catalog, self._llm, [(_owned(task), answers[task.task_id][1]) for task in asked])
        return [
            answers[task.task_id][0] if task.task_id in answers else refused[task.source.place.tenant_id]
            for task in tasks
        ]

    def _call(self, task: Task) -> tuple[Result, int]:
        """Ask about one chunk, in a thread of the pool; return the used tokens as well."""
        result: Result
        try:
            (result,) = self._graphs.extract([task])
        except Exception as error:  # noqa: BLE001 - any error is the outcome of this task
            result = error
        return result, self._llm.take_tokens()

    def _with_probe(self, results: list[Result], task: Task) -> list[Result]:
        """Decide who is at fault if no call was answered in time: the service, or these texts.

        A text that a model cannot cope with would otherwise be sent for ever.
        """
        silent = [one for one in results if isinstance(one, EndpointSilent)]
        if not silent or any(not isinstance(one, UNANSWERED) for one in results):
            return results
        answers = False
        with suppress(PenstockError):
            check_limit(self._catalog, self._llm, {task.source.place.tenant_id})
            answers = self._llm.answers()
        count_tokens(self._catalog, self._llm, [(_owned(task), self._llm.take_tokens())])
        if answers:
            self._answered = False
            return results
        down = ServiceUnavailable(SERVICE, silent[0].message, remedy=silent[0].remedy)
        return [down if isinstance(one, EndpointSilent) else one for one in results]


def _owned(task: Task) -> OwnedText:
    return OwnedText(task.source.place.tenant_id, task.source.job_id, task.text)


def _outcome(task: Task, result: Result) -> TaskOutcome:
    if isinstance(result, Exception):
        return failed_at_service(task, result)
    return publication.completed_graph(task, result)
