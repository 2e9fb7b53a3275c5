"""The composition root: one ``Settings`` becomes queue, catalog, services, worker and gateway.

``Penstock``, the command line and every other door use an ``Assembly``; none of them opens a store itself.
Nothing heavy is imported before a part is used, so that ``penstock --help`` stays quick.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock import config, graph_assembly, pipeline_assembly, server_assembly, vector_assembly
from penstock.database import schema
from penstock.extensions import refuse_missing

if TYPE_CHECKING:
    from penstock.backup.backups import Backups
    from penstock.catalog.protocol import Catalog
    from penstock.config import Settings
    from penstock.handlers.context import Registry
    from penstock.handlers.removal import OpenQueue
    from penstock.http.server import HttpServer
    from penstock.legacy.importer import Imports
    from penstock.legacy.mappings import RagPlace
    from penstock.pipeline.budget import MemoryShare
    from penstock.pipeline.pipeline import Pipeline
    from penstock.pipeline.vectors.directory import CacheDirectory
    from penstock.pipeline.vectors.protocol import NearestVectors
    from penstock.queue.payloads import Source
    from penstock.queue.protocol import Queue
    from penstock.redis_contract.contract import Contract
    from penstock.redis_contract.gateway import Gateway
    from penstock.service.adoption import Adopter
    from penstock.service.doctor import Diagnosis
    from penstock.service.documents import Documents
    from penstock.service.graph import Graph
    from penstock.service.jobs import Jobs
    from penstock.service.passages import Similar
    from penstock.service.search import Search
    from penstock.service.upkeep import Models, Rebuilder, Verifier
    from penstock.vector_stores.protocol import VectorStore
    from penstock.watch import WatcherThread
    from penstock.worker.lanes import DocumentTools
    from penstock.worker.launch import Worker

T = TypeVar("T")


class _MadeOnce(Generic[T]):
    """A property computed at the first access, and only once when several threads read the property."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, assembly: Any, owner: type | None = None) -> T:
        if assembly is None:
            return self  # type: ignore[return-value]
        with assembly._making:
            if self._name not in assembly.__dict__:
                # Found in the instance from now on, without a call of this method.
                assembly.__dict__[self._name] = self._make(assembly)
            value: T = assembly.__dict__[self._name]
            return value


class Assembly:
    """All parts of Penstock for one ``Settings``. All threads of a process may share one.

    Properties are opened at their first use and closed by ``close``. Methods named ``open_…`` open another
    one at each call, which the caller closes. Pickled for a child process, an assembly is its settings.
    """

    def __init__(
        self, settings: Settings, *, door: Source = "library", jobs: Callable[[Queue], Jobs] | None = None
    ) -> None:
        """``door`` decides default priorities and status words. ``jobs`` replaces the plain ``Jobs``."""
        self.settings = settings
        self._door: Source = door
        self._make_jobs = jobs
        self._making = threading.RLock()
        self._further_queues: list[Queue] = []
        schema.register(self)

    @classmethod
    def of_app(cls, settings: Settings, app: str | None) -> Assembly:
        """The assembly of a server with the functions of an application; see ``server_assembly.app_jobs``."""
        own, jobs = server_assembly.app_jobs(settings, app)
        return cls(own, door="http", jobs=jobs)

    def __reduce__(self) -> tuple[Callable[..., Assembly], tuple[object, ...]]:
        return _assembly_from, (config.portable_values(self.settings),)

    def after_fork(self) -> None:
        """Replace the lock, and drop the vector cache and connections: threads of the parent may use them."""
        self._making = threading.RLock()
        for name in ("search", "verifier", "vector_store"):
            self.__dict__.pop(name, None)

    # Stores.

    def open_queue(self) -> Queue:
        """Open the queue of the settings once more."""
        from penstock.queue.factory import open_queue

        return open_queue(self.settings)

    def open_catalog(self) -> Catalog:
        """Open the catalog of the settings once more."""
        from penstock.catalog.factory import open_catalog

        return open_catalog(self.settings)

    @_MadeOnce
    def queue(self) -> Queue:
        """The queue."""
        return self.open_queue()

    @_MadeOnce
    def catalog(self) -> Catalog:
        """The catalog; a catalog in a file is refused on a second host."""
        from penstock.catalog.factory import refuse_second_host

        refuse_second_host(self.settings, self.queue)
        return self.open_catalog()

    @_MadeOnce
    def vector_files(self) -> CacheDirectory:
        """The directory with copies of the catalog's vectors."""
        from penstock.pipeline.vectors.directory import open_cache_directory

        return open_cache_directory(self.settings)

    @_MadeOnce
    def vector_store(self) -> VectorStore | None:
        """The vector store outside the catalog; None: the catalog itself is searched."""
        from penstock.vector_stores.factory import open_vector_store

        return open_vector_store(self.settings)

    # Services.

    @_MadeOnce
    def jobs(self) -> Jobs:
        """Use cases about jobs."""
        from penstock.service.jobs import Jobs

        if self._make_jobs is not None:
            return self._make_jobs(self.queue)
        return Jobs(self.queue, self.settings, door=self._door)

    def further_jobs(self) -> Jobs:
        """Open a second ``Jobs`` with a separate connection, for another thread; closed by ``close``."""
        from penstock.service.jobs import Jobs

        queue = self.open_queue()
        self._further_queues.append(queue)
        return Jobs(queue, self.settings, door=self._door)

    @_MadeOnce
    def documents(self) -> Documents:
        """Use cases about documents."""
        from penstock.service.documents import Documents

        return Documents(self.catalog, self.jobs, self.settings)

    @_MadeOnce
    def _nearest_vectors(self) -> NearestVectors:
        return vector_assembly.open_vector_search(self.vector_store, self.catalog, self.vector_files)

    @_MadeOnce
    def search(self) -> Search:
        """Search over the catalog."""
        from penstock.pipeline.embed import open_space
        from penstock.service.search import Search

        open_here = partial(
            open_space,
            endpoint=pipeline_assembly.embed_endpoint(self.settings),
            models_dir=self.settings.models_dir,
            fastembed=pipeline_assembly.fastembed_options(self.settings),
        )
        reranker = pipeline_assembly.reranker(self.settings)
        return Search(self.catalog, self.settings, open_here, self._nearest_vectors, reranker)

    @_MadeOnce
    def similar(self) -> Similar:
        """Chunks of other documents like a given one."""
        from penstock.service.passages import Similar

        return Similar(self.catalog, self.documents, self._nearest_vectors)

    @_MadeOnce
    def models(self) -> Models:
        """Embedding models: which there are, their installation, and tokens used."""
        from penstock.service.upkeep import Models

        return Models(self.settings, lambda: self.catalog)

    @_MadeOnce
    def graph(self) -> Graph:
        """Entities and relations of the documents."""
        from penstock.service.graph import Graph

        reader = graph_assembly.open_graph_reader(self.settings, self.catalog)
        return Graph(self.catalog.graph, reader, self.settings)

    @_MadeOnce
    def verifier(self) -> Verifier:
        """Comparison of the index with itself and with the disk."""
        from penstock.service.upkeep import Verifier

        vectors = vector_assembly.open_comparison(self.vector_store, self.catalog)
        graph = graph_assembly.open_graph_copies(self.settings, self.catalog)
        limits = pipeline_assembly.extract_limits(self.settings)
        return Verifier(self.catalog, self.jobs, self.vector_files, limits, vectors, graph)

    @_MadeOnce
    def rebuilder(self) -> Rebuilder:
        """Re-indexing after a change of settings or model."""
        from penstock.service.upkeep import Rebuilder

        return Rebuilder(self.catalog, self.jobs, pipeline_assembly.make_pipeline(self.settings))

    @_MadeOnce
    def imports(self) -> Imports:
        """Imports of other queues into this one."""
        from penstock.legacy.importer import Imports

        return Imports(
            lambda: self.queue,
            lambda: self.catalog.imports,
            self.settings,
            adopter=self._adopter,
            rags=self._rag_places,
        )

    def _adopter(self) -> Adopter:
        from penstock.service.adoption import Adopter

        return Adopter(self.catalog, lambda: pipeline_assembly.make_pipeline(self.settings))

    def _rag_places(self) -> Mapping[str, RagPlace] | None:
        """Collections and tenants of the configured RAGs; None without a configuration."""
        if self.settings.rag_config is None:
            return None
        from penstock.legacy.mappings import RagPlace
        from penstock.redis_contract import rags

        found = rags.load(Path(self.settings.rag_config)).by_id.values()
        return {rag.rag_id: RagPlace(rag.collection, rag.tenant_id) for rag in found}

    @_MadeOnce
    def backups(self) -> Backups:
        """Backups of the stores, and restores into them."""
        from penstock.backup.backups import Backups

        return Backups(self.settings)

    def diagnosis(self, *, fix: bool = False) -> Diagnosis:
        """Check the installation, and repair what is safe with ``fix``; see ``penstock doctor``."""
        from penstock.worker.launch import diagnose

        return diagnose(self, lambda: graph_assembly.open_store(self.settings), fix=fix)

    def wait(self, job_id: str, timeout: float | None = None) -> None:
        """Return once the job has ended, or after ``timeout`` seconds."""
        from penstock.queue.engine import wait_for

        wait_for(self.queue, lambda: self.jobs.job(job_id).ended, timeout)

    # Workers.

    def worker(self, **options: Any) -> Worker:
        """Make a worker with child processes, ready to run; see ``worker.launch.Worker``."""
        from penstock.worker.launch import Worker

        pipeline_assembly.refuse_unusable_embedder(self.settings)
        vector_assembly.refuse_unusable(self.settings)
        return Worker(self, **options)

    def server(self, **options: Any) -> HttpServer:
        """Make an HTTP server, ready to run; see ``http.server.ServerOptions``."""
        from penstock.http.server import make_server
        from penstock.mcp.server import mcp_endpoint

        return make_server(self, mcp_endpoint, **options)

    def serve_mcp(self, *, with_worker: bool) -> None:
        """Serve one MCP client on standard input and output, until it closes them.

        ``with_worker``: jobs run in a worker of this process where no other serves the queue.
        """
        refuse_missing("mcp", "the MCP server")
        from penstock.interpreter import WithoutCollections

        with WithoutCollections():
            from penstock.mcp.server import run_stdio
        from penstock.worker.launch import on_demand_worker

        with closing(on_demand_worker(self, enabled=with_worker)) as worker:
            run_stdio(self, worker.ensure)

    def watch(self, paths: Sequence[str], *, with_worker: bool, **options: Any) -> None:
        """Index paths and watch them; see ``watch.watcher.run_watcher``."""
        refuse_missing("watch", "the watcher")
        from penstock.watch import run_watcher
        from penstock.worker.launch import on_demand_worker

        with closing(on_demand_worker(self, enabled=with_worker)) as worker:
            run_watcher(self, paths, submitted=worker.ensure, **options)

    def watcher_thread(self, paths: Sequence[str]) -> WatcherThread:
        """Make a watcher for a server, ready to start."""
        refuse_missing("watch", "the watcher")
        from penstock.watch import WatcherThread

        return WatcherThread(lambda: Assembly(self.settings, door="watcher"), self.settings, paths)

    def worker_alive(self) -> bool:
        """Tell whether a worker serves the queue now, on this host or another."""
        from penstock.worker.launch import worker_alive

        return worker_alive(self.settings, self.queue)

    def open_document_tools(
        self, registry: Registry, open_queue: OpenQueue | None = None, *, memory: MemoryShare | None = None
    ) -> DocumentTools:
        """Open a catalog for one worker process and register the document handlers.

        ``open_queue`` gives handlers the queue; by default they open another one. ``memory`` is this
        process's share of the memory for parsing files.
        """
        from penstock.handlers.phases import Phases
        from penstock.handlers.source_files import PageFiles, SourceFiles
        from penstock.worker.lanes import DocumentTools

        catalog = self.open_catalog()
        pipeline = pipeline_assembly.make_pipeline(self.settings, memory)
        self._register_documents(registry, catalog, pipeline, open_queue)
        outside = vector_assembly.attach_vectors(self.settings, catalog)
        copies = graph_assembly.open_graph_copies(self.settings, catalog)
        phases = Phases(catalog, pipeline, PageFiles(self.settings.pages_dir), outside, copies)
        return DocumentTools(catalog, phases, SourceFiles.of(self.settings))

    def run_small_job(self, job_id: str) -> bool:
        """Run a note or a small file in this process. False: the job has not ended, and needs a worker."""
        from penstock.worker.in_process import run_small_job
        from penstock.worker.launch import small_job_options

        # Vectors of another store are written by tasks, which need a worker.
        options = small_job_options(self) if self.settings.vector_store == "default" else None
        return options is not None and run_small_job(job_id, options)

    def has_later_tasks(self) -> bool:
        """Check whether published documents wait for a phase, such as the extraction of entities."""
        from penstock.catalog.rules.phases import LATER_PHASES

        with self.catalog.snapshot() as snapshot:
            return any(snapshot.open_tasks(lane) for lane in LATER_PHASES)

    def register_small_jobs(self, registry: Registry, memory: MemoryShare) -> Callable[[], None]:
        """Register the document handlers on the open stores; return the function that closes them."""
        pipeline = pipeline_assembly.make_pipeline(self.settings, memory, isolated=True)
        vector_assembly.attach_vectors(self.settings, self.catalog)
        self._register_documents(registry, self.catalog, pipeline, None)
        return pipeline.close

    def _register_documents(
        self, registry: Registry, catalog: Catalog, pipeline: Pipeline, open_queue: OpenQueue | None
    ) -> None:
        from penstock.handlers import documents, removal
        from penstock.handlers.source_files import SourceFiles

        own_queue = open_queue or (lambda: closing(self.open_queue()))
        documents.register(
            registry,
            catalog,
            pipeline,
            (str(self.settings.state_dir),),
            lambda: self.vector_files,
            own_queue,
            checkpoint_interval=self.settings.checkpoint_interval,
            kept_files=SourceFiles.of(self.settings),
        )
        if self.settings.serial:
            removal.give_turns(registry, own_queue)

    # The Redis contract.

    @_MadeOnce
    def producer(self) -> Contract:
        """The producers' side of the Redis contract."""
        from penstock.redis_contract.contract import open_contract

        return open_contract(self.settings)

    @_MadeOnce
    def gateway(self) -> Gateway:
        """The gateway from the Redis contract into the queue."""
        from penstock.redis_contract.contract import make_gateway

        return make_gateway(self.settings, self.jobs, self.documents)

    def close(self) -> None:
        """Close all opened stores."""
        for queue in self._further_queues:
            queue.close()
        parts = "page_images graph verifier gateway producer vector_store queue catalog"
        for name in parts.split():
            if self.__dict__.get(name) is not None:
                self.__dict__[name].close()


def _assembly_from(values: Mapping[str, Any]) -> Assembly:
    return Assembly(config.load({}, **values))
