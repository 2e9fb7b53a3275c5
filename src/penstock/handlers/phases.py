"""Tasks of the lanes: pages become chunks, chunks become vectors and entities. A bad task fails alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.phases import EXTRACTING, PHASES
from penstock.catalog.values import Failure, Gate, NewPage, Phase, Task, TaskOutcome, TaskSource
from penstock.errors import (
    ComponentMissing,
    PermanentFailure,
    ServiceUnavailable,
    TransientFailure,
    UnsupportedType,
)
from penstock.handlers.context import failed, failed_at_service, postponed
from penstock.handlers.generations import (
    CHANGED,
    MAX_TEXTS,
    OTHER_MODEL,
    OwnedText,
    PageOwner,
    embed,
    embed_texts,
)
from penstock.handlers.graphs import ChunkGraphs, ServiceGraphs
from penstock.handlers.members import FileContent, MemberReader
from penstock.handlers.outside_stores import POINTS_A_CALL, GraphCopies, OutsideVectors
from penstock.handlers.source_files import PageFiles
from penstock.pipeline.budget import CallLimitReached, MemoryInUse
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import reader_in, sizes_of
from penstock.pipeline.embed.protocol import MeteredEmbedder
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.graph.factory import fingerprints_here
from penstock.pipeline.pipeline import Pipeline
from penstock.vocabulary import with_remedy

OTHER_EXTRACTOR = (
    "the document is to be extracted with other settings than those of this worker; run `penstock rebuild`"
)
_ASKED = 16
"""Tasks of a batch that a language model is asked for."""

_WAIT_FOR_MEMORY_S = 0.2
_KEEP_S = 0.1
"""Time between two looks at outside stores, in a worker without a thread for them."""

FAILURE_CODES = {
    "ERR_CHANGED": "The file changed while it was read. Index the file again.",
    "ERR_OTHER_MODEL": "The document was made with another model than the index. Run `penstock rebuild`.",
}


class _OpenFile(msgspec.Struct, frozen=True):
    """A file, verified to be the one of the generation, the chunk sizes, and whether pictures are read."""

    source: TaskSource
    content: Content
    sizes: ChunkSizes
    recognizes: bool


class Phases:
    """Runs claimed tasks of one lane and returns the outcome of each."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        page_files: PageFiles | None = None,
        outside: OutsideVectors | None = None,
        copies: GraphCopies | None = None,
    ) -> None:
        """``outside``: the vector store outside the catalog, if any. ``copies``: that of the graph."""
        self._catalog = catalog
        self._outside = outside
        self._copies = copies
        self.page_files = page_files or PageFiles(None)
        self._pipeline = pipeline
        self._reader = MemberReader(pipeline)
        self._open_file: _OpenFile | None = None
        self._keep_at = 0.0
        self._graphs = ChunkGraphs(catalog, pipeline.llm)
        llm = pipeline.llm
        self._asked = ServiceGraphs(catalog, llm, self._graphs) if llm is not None else None
        self._extractors = fingerprints_here(pipeline.llm)
        self._lanes: Mapping[Phase, Callable[[Sequence[Task]], list[TaskOutcome]]] = {
            Phase.OCR: self._read_pages,
            Phase.VECTOR: self._embed,
            EXTRACTING: self._extract,
        }

    def fingerprint(self, lane: Phase) -> str | None:
        return self._pipeline.space if lane is Phase.VECTOR else None

    def one_call(self, lane: Phase) -> int:
        """Number of tasks of a lane for one call to a service; 0 without a service."""
        embedder = self._pipeline.embedder
        if lane is not Phase.VECTOR:
            return 0
        points = POINTS_A_CALL if self._outside is not None else 0
        return max(points, embedder.batch if isinstance(embedder, MeteredEmbedder) else 0)

    def beside(self, lane: Phase) -> int:
        """Tasks of a lane to be run together beside the others, as they wait for a service; 0: none do."""
        if lane is not EXTRACTING:
            return 0
        # Kept small: after a crash, all tasks of the batch are sent, and paid for, again.
        return _ASKED if self._asked is not None else PHASES[lane].batch if self._copies is not None else 0

    def run(self, lane: Phase, tasks: Sequence[Task], *, embedding: bool = False) -> list[TaskOutcome]:
        """Run tasks. ``embedding``: embed pages at once, if this worker serves the vector lane as well."""
        if lane not in self._lanes:
            return [publication.skipped(task, PHASES[lane].unwanted) for task in tasks]
        ended = self._lanes[lane](tasks)
        return self._with_vectors(tasks, ended) if embedding and lane is Phase.OCR else ended

    def remove_late_files(self, source_ids: Collection[str]) -> None:
        """Remove page files written for generations that were dropped meanwhile."""
        if source_ids:
            with self._catalog.snapshot() as snapshot:
                self.page_files.remove_unused(snapshot, source_ids)

    def keep_stores(self) -> None:
        """Do a piece of the upkeep of outside stores; a store without an answer is skipped."""
        now, stores = clock.elapsed_s(), (self._outside, self._copies)
        for store in stores if now >= self._keep_at else ():
            self._keep_at = now + _KEEP_S
            if store is not None:
                with suppress(ServiceUnavailable):
                    store.keep()

    def pause(self) -> None:
        """Free the memory kept for further pages, if another process waits for some."""
        self._pipeline.pause()

    def settled(self, task_ids: Sequence[int], late: Collection[int]) -> None:
        """Record settled tasks. ``late``: tasks with a lost claim."""
        if self._outside is not None:
            self._outside.settled(task_ids, late)

    def clear_removals(self) -> bool:
        """Remove texts from outside stores; True when there may be more to remove."""
        return self._outside is not None and self._outside.clear_removals()

    def rest(self) -> None:
        """Free the memory kept for further pages: there are none for now."""
        self._pipeline.rest()

    def close(self) -> None:
        """End the sandbox process, and close the connections to outside stores."""
        self._pipeline.close()
        for store in (self._outside, self._copies):
            if store is not None:
                store.close()

    # Pages.

    def _read_pages(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        ended: list[TaskOutcome] = []
        for group in _page_runs(tasks):
            try:
                file = self._read(group[0].source, group[0].file_path)
            except Exception as error:  # noqa: BLE001 - any error is the outcome of these tasks
                ended += [failed(task, error) for task in group]
                continue
            # Dropped: the tasks are gone too, and the job reads the file again.
            ended += self._pages_of(file, group) if file is not None else []
        return ended

    def _read(self, source: TaskSource, file_path: str | None) -> _OpenFile | None:
        """Read the file again; None if the file is no longer the one of the generation."""
        if self._open_file is not None and self._open_file.source == source:
            return self._open_file
        read = self._bytes(source.path, file_path)
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(source.document_id)
        # A misnamed file keeps its name; its type comes from the content.
        misnamed = document is not None and reader_in(document.fingerprints.ocr) is not None
        named = not source.file_type or misnamed
        name = source.path if named else file_types.named_as(source.path, source.file_type)
        sizes = sizes_of(document.fingerprints) if document is not None else None
        if read is None or document is None or sizes is None:
            self._drop(source)
            return None
        same = hashlib.sha256(read.data).hexdigest() == source.content_hash
        recognizes = self._pipeline.recognizes(name, sizes, document.fingerprints)
        if not same or recognizes is None:
            self._drop(source)
            return None
        self._open_file = _OpenFile(source, Content(name, read.data), sizes, recognizes)
        return self._open_file

    def _bytes(self, path: str, file_path: str | None) -> FileContent | None:
        """Read from the path of the first reading, or from the source's path if the file was moved there."""
        for place in filter(None, (file_path, path)):
            with suppress(FileNotFoundError, NotADirectoryError, UnsupportedType):
                return self._reader.read(place, known_as=path)
        return None

    def _drop(self, source: TaskSource, why: str = CHANGED, code: str = "ERR_CHANGED") -> None:
        """Drop an unfinishable generation. A published one keeps all parts; then this raises."""
        if not self._catalog.drop(source.document_id, why):
            raise PermanentFailure(why, code=code)

    def _pages_of(self, file: _OpenFile, tasks: list[Task]) -> list[TaskOutcome]:
        """Read pages together. An unreadable page is a failure in the draft; see ``Sandbox``."""
        if tasks[0].needs_ocr:
            return [self._recognized(file, task) for task in tasks]
        numbers = [task.page_number for task in tasks]
        try:
            pages = range(min(numbers), max(numbers) + 1)
            draft = self._pipeline.draft(file.content, file.sizes, pages=pages, ocr=file.recognizes)
        except MemoryInUse:
            time.sleep(_WAIT_FOR_MEMORY_S)
            return [publication.released(task) for task in tasks]
        except Exception as error:  # noqa: BLE001 - as above
            return [failed(task, error) for task in tasks]
        found = {page.number: page for page in draft.pages}
        # A batch ends after some seconds of work; its remaining pages are released.
        unread = range(max(found, default=draft.page_count) + 1, draft.page_count + 1)
        return [
            publication.released(task)
            if task.page_number in unread
            else _page_ended(task, found.get(task.page_number))
            for task in tasks
        ]

    def _recognized(self, file: _OpenFile, task: Task) -> TaskOutcome:
        """Recognize the text of one page. Its text layer, if there is one, is read with it."""
        try:
            page = self._pipeline.recognize(file.content, file.sizes, task.page_number)
            if page is not None:
                page = self.page_files.keep(file.source.source_id, file.source.content_hash, page)
        except MemoryInUse:
            time.sleep(_WAIT_FOR_MEMORY_S)
            return publication.released(task)
        except ServiceUnavailable as down:
            return postponed(task, down)
        except ComponentMissing as missing:
            # Its remedy names the package.
            return publication.failed(
                task, Failure(missing.code, with_remedy(missing.message, missing.remedy))
            )
        except Exception as error:  # noqa: BLE001 - as above
            return failed(task, error)
        return _page_ended(task, page)

    # Vectors.

    def _with_vectors(self, tasks: Sequence[Task], ended: list[TaskOutcome]) -> list[TaskOutcome]:
        """Embed the chunks of pages now, without tasks: one write per chunk instead of three.

        Not for suspect pages: if one of their texts kills the process, separate tasks show which. Nor with
        the document gate, which holds vectors back until the last page is read.
        """
        by_id = {task.task_id: task for task in tasks}
        wanted: list[tuple[PageOwner, list[NewPage]]] = []
        chosen: set[int] = set()
        room = MAX_TEXTS
        for outcome in ended:
            task, texts = by_id[outcome.task_id], len((outcome.page and outcome.page.chunks) or ())
            source = task.source
            if outcome.page is None or source.space != self._pipeline.space or texts > room:
                continue
            if task.suspect or source.gate is Gate.DOCUMENT:
                continue
            room -= texts
            owner = PageOwner(source.place.tenant_id, source.source_id, source.job_id)
            wanted.append((owner, [outcome.page]))
            chosen.add(outcome.task_id)
        vectors = embed(self._catalog, self._pipeline, wanted)
        return [
            msgspec.structs.replace(outcome, page=vectors.add_to([outcome.page])[0])
            if outcome.page is not None and outcome.task_id in chosen
            else outcome
            for outcome in ended
        ]

    def _embed(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        matching = [task for task in tasks if task.source.space == self._pipeline.space]
        ended = self._embed_matching(matching) if matching else []
        # Begun before the model was changed: this model's vectors do not belong in that space.
        for task in tasks:
            if task.source.space != self._pipeline.space:
                try:
                    self._drop(task.source, OTHER_MODEL, "ERR_OTHER_MODEL")
                except PermanentFailure as error:
                    ended.append(failed(task, error))
        return ended

    def _embed_matching(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        try:
            vectors = self._vectors_of(tasks)
            if self._outside is not None:
                self._outside.write(tasks, vectors)
        except (ServiceUnavailable, CallLimitReached) as error:
            # Each text alone would meet the same.
            return [postponed(task, error) for task in tasks]
        except Exception as error:  # noqa: BLE001 - as above
            if len(tasks) == 1:
                return [failed_at_service(tasks[0], error)]
            return [outcome for task in tasks for outcome in self._embed_matching([task])]
        stored = self._outside.address if self._outside is not None else None
        ended = zip(tasks, vectors, strict=True)
        return [publication.completed_vector(task, vector, stored) for task, vector in ended]

    def _vectors_of(self, tasks: Sequence[Task]) -> list[bytes]:
        known = self._outside.known(tasks) if self._outside is not None else {}
        new = [task for task in tasks if task.text_hash not in known]
        texts = [OwnedText(task.source.place.tenant_id, task.source.job_id, task.text) for task in new]
        embedded = iter(embed_texts(self._catalog, self._pipeline, texts) if texts else ())
        return [known[task.text_hash] if task.text_hash in known else next(embedded) for task in tasks]

    # Entities and relations.

    def _extract(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        if self._copies is None:
            return self._extracted(tasks)
        try:
            self._copies.check()
        except ServiceUnavailable as down:
            # Nothing is extracted that could not be written: a model may charge for it.
            return [postponed(task, down) for task in tasks]
        return self._copies.written(tasks, self._extracted(tasks))

    def _extracted(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        by_document: dict[int, list[Task]] = {}
        for task in tasks:
            by_document.setdefault(task.source.document_id, []).append(task)
        ended: list[TaskOutcome] = []
        asked: list[Task] = []
        for document_id, some in by_document.items():
            if not self._made_here(document_id):
                ended += [failed(task, TransientFailure(OTHER_EXTRACTOR)) for task in some]
            elif self._asked is not None and self._graphs.asks_service(some[0]):
                asked += some
            else:
                ended += _extract_some(self._graphs, some)
        return ended + (self._asked.extract(asked) if self._asked is not None else [])

    def _made_here(self, document_id: int) -> bool:
        """Tell whether the generation's extractor is one of this process; settings may have changed."""
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
        return document is None or getattr(document.fingerprints, EXTRACTING) in self._extractors


def _extract_some(graphs: ChunkGraphs, tasks: Sequence[Task]) -> list[TaskOutcome]:
    try:
        found = graphs.extract(tasks)
    except Exception as error:  # noqa: BLE001 - as above
        if len(tasks) == 1:
            return [failed(tasks[0], error)]
        return [outcome for task in tasks for outcome in _extract_some(graphs, [task])]
    return [publication.completed_graph(task, graph) for task, graph in zip(tasks, found, strict=True)]


def _page_runs(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group consecutive pages of one document, which are read together."""
    runs: list[list[Task]] = []
    for task in sorted(tasks, key=lambda task: (task.source.document_id, task.page_number)):
        last = runs[-1][-1] if runs else None
        follows = last is not None and last.page_number + 1 == task.page_number
        follows = follows and last is not None and last.needs_ocr == task.needs_ocr
        if follows and last is not None and last.source.document_id == task.source.document_id:
            runs[-1].append(task)
        else:
            runs.append([task])
    return runs


def _page_ended(task: Task, page: NewPage | None) -> TaskOutcome:
    if page is None:
        return publication.failed(task, Failure("ERR_PARSE", f"the document has no page {task.page_number}"))
    if page.failure is not None:
        return publication.failed(task, page.failure)
    if page.unread:
        return publication.needs_ocr(task)
    return publication.completed_page(task, page)
