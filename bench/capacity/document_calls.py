"""Calls of a filled catalog, each repeated and measured by CPU time, of the server too, and by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from bench.capacity.call_cost import Cost, cost_of
from bench.capacity.document_texts import TENANT, DocumentTexts
from bench.capacity.kept_store import KeptStore
from bench.vectors import ONE_THREAD, memory_mb, questions
from penstock import Penstock
from penstock.catalog.rules import publication
from penstock.catalog.values import Phase, Place, Task, TaskOutcome, TaskRequest
from penstock.pipeline.vectors.directory import open_cache_directory
from penstock.worker.vector_upkeep import keep_all

REPEATED = 20
QUESTIONS = 15
TASKS = 256
WORKER = "capacity"
EXTRA = 10_000_000
"""Numbers of the documents that are added only to be measured."""


class Measured(msgspec.Struct, kw_only=True):
    """A catalog of one size."""

    engine: str
    chunks: int
    documents: int
    waiting: int
    """Tasks that wait while tasks are claimed."""
    calls: dict[str, Cost] = {}
    own_mb: int = 0
    shared_mb: int = 0
    """Memory of a process that has searched."""
    server_mb: float = 0.0
    disk_mb: float = 0.0
    cache_mb: float = 0.0
    """Files with copies of vectors, in the state directory."""
    problems: int = 0
    """Findings of the audit."""


class DocumentCalls:
    def __init__(self, store: KeptStore, app: Penstock, texts: DocumentTexts, documents: int) -> None:
        self._store = store
        self._app = app
        self._catalog = app.documents.catalog
        self._texts = texts
        self._documents = documents

    def measure(self, into: Measured) -> None:
        """Tasks first: settled tasks belong to the size that is measured."""
        into.calls |= dict(self._tasks())
        into.calls["upkeep"] = self.cost([self._keep])
        into.calls |= dict(self._searches())
        into.own_mb, into.shared_mb = memory_mb("RssAnon"), memory_mb("RssFile")
        into.calls |= dict(self._reads())
        into.calls |= dict(self._writes())
        into.calls |= dict(self._commands())
        found: list[str] = []
        into.calls["audit"] = self.cost([lambda: found.extend(self._catalog.audit())])
        into.problems = len(found)

    def cost(self, calls: Sequence[Callable[[], object]]) -> Cost:
        print(f"{len(calls)} calls …", file=sys.stderr, flush=True)
        return cost_of(self._store, calls)

    def _tasks(self) -> Iterator[tuple[str, Cost]]:
        """Claim and settle all that waits; the first batches are measured with all others behind them."""
        left = self._catalog.held(WORKER)
        self._catalog.settle([publication.released(each) for each in left])
        held: list[list[Task]] = []
        request = TaskRequest(Phase.VECTOR, WORKER, TASKS)
        batches = min(REPEATED, self._waiting() // TASKS)
        if batches:
            yield (
                f"claim {TASKS} tasks",
                self.cost([lambda: held.append(self._catalog.claim(request))] * batches),
            )
            ended = [[self._embedded(task) for task in tasks] for tasks in held]
            yield (
                f"settle {TASKS} tasks",
                self.cost([partial(self._catalog.settle, each) for each in ended]),
            )
        while tasks := self._catalog.claim(request):
            self._catalog.settle([self._embedded(task) for task in tasks])

    def _waiting(self) -> int:
        return self._app.documents.task_counts().get("vector_chunks", {}).get("pending", 0)

    def _embedded(self, task: Task) -> TaskOutcome:
        (vector,) = self._texts.vectors(task.task_id, 1)
        return publication.completed_vector(task, vector)

    def _keep(self) -> None:
        """Maintenance of a worker: the keyword index is merged, and the file with vectors written."""
        self._catalog.merge_words()
        keep_all(self._catalog, open_cache_directory(self._app.settings))

    def _searches(self) -> Iterator[tuple[str, Cost]]:
        asked = questions(QUESTIONS + 3)
        for question in asked[:3]:
            self._app.search(question)
        for mode in ("hybrid", "keyword", "vector"):
            finds = [partial(self._app.search, question, mode=mode) for question in asked[3:]]
            yield f"search, {mode}", self.cost(finds)

    def _reads(self) -> Iterator[tuple[str, Cost]]:
        documents = self._app.documents
        first = documents.sources(limit=1_000)
        middle = first[-1].source_id
        yield "status", self.cost([self._status] * 5)
        yield "list of 50 documents", self.cost([documents.sources] * REPEATED)
        yield "list of 50, further on", self.cost([partial(documents.sources, after=middle)] * REPEATED)
        paths = [(each.place, each.path) for each in first[:REPEATED]]
        yield "document by path", self.cost([partial(self._find, *each) for each in paths])
        yield "1,000 known paths", self.cost([self._known] * 5)

    def _status(self) -> None:
        self._app.stats()
        self._app.documents.overview()

    def _find(self, place: Place, path: str) -> None:
        with self._catalog.snapshot() as snapshot:
            assert snapshot.find(place, path) is not None

    def _known(self) -> None:
        path = f"/corpus/{self._documents // 2_000:03}"
        with self._catalog.snapshot() as snapshot:
            snapshot.known(Place(TENANT, "part3"), after=path, limit=1_000)

    def _writes(self) -> Iterator[tuple[str, Cost]]:
        """Documents that end as search shows them, and are removed by their later versions only."""
        new = self._texts.documents(EXTRA + self._documents, REPEATED)
        yield "publish a document", self.cost([partial(self._catalog.store, [each]) for each in new])
        edited = [self._texts.edited(each) for each in new]
        yield "publish an edit", self.cost([partial(self._catalog.store, [each]) for each in edited])
        more = self._texts.documents(EXTRA * 2 + self._documents, REPEATED)
        yield f"publish {REPEATED} documents", self.cost([partial(self._catalog.store, more)])

    def _commands(self) -> Iterator[tuple[str, Cost]]:
        environment = os.environ | ONE_THREAD | self._store.environment
        for words in (("status",), ("search", "numpy array shape"), ("documents",)):
            command = [sys.executable, "-m", "penstock", "--quiet", *words]
            run = partial(subprocess.run, command, env=environment, check=True, stdout=subprocess.DEVNULL)
            yield f"penstock {words[0]}", self.cost([run] * 3)
