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

from penstock import config
from penstock.config import NO_STORE
from penstock.database import schema
from penstock.extensions import refuse_missing

if TYPE_CHECKING:
    from penstock.backup.backups import Backups
    from penstock.catalog.graph import GraphReader
    from penstock.catalog.protocol import Catalog
    from penstock.config import Settings
    from penstock.handlers.context import Registry
    from penstock.handlers.outside_stores import GraphCopies, OutsideVectors
    from penstock.handlers.removal import OpenQueue
    from penstock.http.server import HttpServer
    from penstock.legacy.importer import Imports
    from penstock.legacy.mappings import RagPlace
    from penstock.pipeline.budget import MemoryShare
    from penstock.pipeline.embed.endpoint import EmbedEndpointOptions
    from penstock.pipeline.embed.fastembed import FastembedOptions
    from penstock.pipeline.embed.protocol import Embedder
    from penstock.pipeline.endpoint import EndpointOptions
    from penstock.pipeline.endpoint_client import RerankEndpoint
    from penstock.pipeline.extract.protocol import ExtractLimits
    from penstock.pipeline.graph.llm import LlmExtractor
    from penstock.pipeline.ocr.pages import OcrSetup
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
    from penstock.service.pages import PageImages
    from penstock.service.passages import Similar
    from penstock.service.search import Search
    from penstock.service.upkeep import Models, Rebuilder, Verifier
    from penstock.service.uploads import LibraryUploads, UploadQuota, Uploads
    from penstock.vector_stores.protocol import VectorStore
    from penstock.watch import WatcherThread
    from penstock.worker.lanes import DocumentTools
    from penstock.worker.launch import Worker
    from penstock.worker.store_keeper import KeptStore, StoreKeeper

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
        """The assembly of a server whose requests may call functions of an application, ``MODULE:NAME``.

        The application's settings count; without one, these do.
        """
        if app is None:
            return cls(settings, door="http")
        from penstock.application import load_app
        from penstock.service.functions import FunctionJobs
        from penstock.worker.launch import common_settings

        loaded = load_app(app)
        own = common_settings(settings, loaded.settings)
        return cls(
            own,
            door="http",
            jobs=lambda queue: FunctionJobs(queue, own, door="http", functions=loaded.functions),
        )

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
        from penstock.database.factory import open_queue

        return open_queue(self.settings)

    def open_catalog(self) -> Catalog:
        """Open the catalog of the settings once more."""
        from penstock.database.factory import open_catalog

        return open_catalog(self.settings)

    @_MadeOnce
    def queue(self) -> Queue:
        """The queue."""
        return self.open_queue()

    @_MadeOnce
    def catalog(self) -> Catalog:
        """The catalog; a catalog in a file is refused on a second host."""
        from penstock.database.factory import refuse_second_host

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
        return _open_vector_store(self.settings)

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
        """The search in the vector store, or in the catalog's own vectors with their cache files."""
        from penstock.pipeline.vectors.cache import VectorCache

        own = VectorCache(self.vector_files)
        if self.vector_store is None:
            return own
        from penstock.service.search import StoreSearch
        from penstock.worker.executor import Breakers

        return StoreSearch(self.catalog, own, self.vector_store, Breakers())

    @_MadeOnce
    def search(self) -> Search:
        """Search over the catalog."""
        from penstock.pipeline.embed import open_space
        from penstock.service.search import Search

        open_here = partial(
            open_space,
            endpoint=_embed_endpoint(self.settings),
            models_dir=self.settings.models_dir,
            fastembed=_fastembed_options(self.settings),
        )
        return Search(self.catalog, self.settings, open_here, self._nearest_vectors, _reranker(self.settings))

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

        return Graph(self.catalog.graph, _open_graph_reader(self.settings, self.catalog), self.settings)

    @_MadeOnce
    def verifier(self) -> Verifier:
        """Comparison of the index with itself and with the disk."""
        from penstock.handlers.outside_stores import StoreComparison
        from penstock.service.upkeep import Verifier

        store = self.vector_store
        vectors = StoreComparison(self.catalog.outside, store) if store is not None else None
        graph = open_graph_copies(self.settings, self.catalog)
        limits = _extract_limits(self.settings)
        return Verifier(self.catalog, self.jobs, self.vector_files, limits, vectors, graph)

    @_MadeOnce
    def rebuilder(self) -> Rebuilder:
        """Re-indexing after a change of settings or model."""
        from penstock.service.upkeep import Rebuilder

        return Rebuilder(self.catalog, self.jobs, make_pipeline(self.settings))

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

        return Adopter(self.catalog, lambda: make_pipeline(self.settings))

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

        return diagnose(self, fix=fix)

    def wait(self, job_id: str, timeout: float | None = None) -> None:
        """Return once the job has ended, or after ``timeout`` seconds."""
        from penstock.queue.engine import wait_for

        wait_for(self.queue, lambda: self.jobs.job(job_id).ended, timeout)

    # Servers.

    def open_page_images(self) -> PageImages:
        """Open the pictures of pages. Nothing is started before the first one."""
        from penstock.handlers.source_files import IMAGES
        from penstock.service.pages import PageImages

        return PageImages(self.catalog, _extract_limits(self.settings), self.settings.state_dir / IMAGES)

    @_MadeOnce
    def _upload_quota(self) -> UploadQuota:
        """The quota of uploaded files, of all kinds together."""
        from penstock.service.uploads import UploadQuota

        quota = self.settings.upload_quota_mb
        return UploadQuota(None if quota is None else quota << 20)

    @_MadeOnce
    def uploads(self) -> Uploads:
        """Uploaded files of all tenants."""
        from penstock.handlers.source_files import uploads_directory
        from penstock.service.uploads import Uploads

        return Uploads(
            self.documents,
            self.jobs,
            uploads_directory(self.settings),
            owner=str(self.settings.state_dir),
            most_bytes=self.settings.max_file_mb << 20,
            quota=self._upload_quota,
        )

    @_MadeOnce
    def library_uploads(self) -> LibraryUploads:
        """Uploaded archives of libraries of all tenants."""
        from penstock.handlers.source_files import fetched_files
        from penstock.service.uploads import LibraryUploads

        return LibraryUploads(
            self.documents,
            self.jobs,
            fetched_files(self.settings),
            owner=str(self.settings.state_dir),
            most_bytes=self.settings.max_file_mb << 20,
            quota=self._upload_quota,
        )

    # Workers.

    def worker(self, **options: Any) -> Worker:
        """Make a worker with child processes, ready to run; see ``worker.launch.Worker``."""
        from penstock.worker.launch import Worker

        self.refuse_unusable_embedder()
        # Raises for a store that cannot be used as it is set, or whose client is not installed.
        _open_vector_store(self.settings)
        return Worker(self, **options)

    def refuse_unusable_embedder(self) -> None:
        """Raise for an embedder that is not installed, not set up or damaged: one error here, with its
        remedy, instead of one in each process or for each chunk."""
        settings = self.settings
        if settings.embedder in ("minilm", "endpoint", "fastembed"):
            embedder = _make_embedder(settings)
            if settings.embedder == "fastembed":
                embedder.embed(["a"])  # a damaged model is found when it is loaded
        if settings.embedder == "minilm":
            from penstock.pipeline.embed.minilm import model_files

            model_files.read_graph(settings.models_dir)
            model_files.read_vocabulary(settings.models_dir)

    def keep_stores(self, catalog: Catalog) -> list[StoreKeeper]:
        """Start the upkeep of the stores outside the catalog that the settings name; detach former ones.

        The records of removals from a former store would never be cleared.
        """
        from penstock.catalog.parts import OutsideStore

        keepers: list[StoreKeeper] = []
        opened: dict[OutsideStore, tuple[str, Callable[[Settings, Catalog], KeptStore | None]]] = {
            OutsideStore.VECTOR: (self.settings.vector_store, attach_vectors),
            OutsideStore.GRAPH: (self.settings.graph_store, open_graph_copies),
        }
        for kind, (url, open_store) in opened.items():
            if url != NO_STORE:
                from penstock.worker.store_keeper import StoreKeeper

                keepers.append(StoreKeeper(kind, self.open_catalog, partial(open_store, self.settings)))
            elif catalog.outside.attached(kind) is not None:
                catalog.outside.detach(kind)
        return keepers

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
        """Index paths and watch them; see ``watch.run_watcher``."""
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
        pipeline = make_pipeline(self.settings, memory)
        self._register_documents(registry, catalog, pipeline, open_queue)
        outside = attach_vectors(self.settings, catalog)
        copies = open_graph_copies(self.settings, catalog)
        phases = Phases(catalog, pipeline, PageFiles(self.settings.pages_dir), outside, copies)
        return DocumentTools(catalog, phases, SourceFiles.of(self.settings))

    def run_small_job(self, job_id: str) -> bool:
        """Run a note or a small file in this process. False: the job has not ended, and needs a worker."""
        from penstock.worker.in_process import run_small_job
        from penstock.worker.launch import small_job_options

        # Vectors of another store are written by tasks, which need a worker.
        options = small_job_options(self) if self.settings.vector_store == NO_STORE else None
        return options is not None and run_small_job(job_id, options)

    def has_later_tasks(self) -> bool:
        """Check whether published documents wait for a phase, such as the extraction of entities."""
        from penstock.catalog.rules.phases import LATER_PHASES

        with self.catalog.snapshot() as snapshot:
            return any(snapshot.open_tasks(lane) for lane in LATER_PHASES)

    def register_small_jobs(self, registry: Registry, memory: MemoryShare) -> Callable[[], None]:
        """Register the document handlers on the open stores; return the function that closes them."""
        pipeline = make_pipeline(self.settings, memory, isolated=True)
        attach_vectors(self.settings, self.catalog)
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
        parts = "graph verifier gateway producer vector_store queue catalog"
        for name in parts.split():
            if self.__dict__.get(name) is not None:
                self.__dict__[name].close()


def _assembly_from(values: Mapping[str, Any]) -> Assembly:
    return Assembly(config.load({}, **values))


def make_pipeline(
    settings: Settings, memory: MemoryShare | None = None, *, isolated: bool = False
) -> Pipeline:
    """Make the pipeline from files to chunks. ``memory``: this process's share for parsing files."""
    from penstock.pipeline.pipeline import Pipeline

    return Pipeline(
        _make_embedder(settings),
        limits=_extract_limits(settings),
        memory=memory,
        isolated=isolated,
        ocr=_ocr_setup(settings),
        graph=settings.graph,
        llm=_graph_endpoint(settings),
        vectors_outside=settings.vector_store != NO_STORE,
    )


def _make_embedder(settings: Settings) -> Embedder:
    """Open the embedder of the settings; refuse one that is not installed or not set up."""
    from penstock.pipeline.embed import open_embedder

    fastembed = _fastembed_options(settings) if settings.embedder == "fastembed" else None
    return open_embedder(settings.embedder, _embed_endpoint(settings), settings.models_dir, fastembed)


def _fastembed_options(settings: Settings) -> FastembedOptions:
    """Model of the embedder fastembed."""
    from penstock.pipeline.embed.fastembed import FastembedOptions

    return FastembedOptions(settings.fastembed_model, settings.fastembed_pooling)


def _extract_limits(settings: Settings) -> ExtractLimits:
    """Limits on size, memory and time of a file."""
    from penstock.pipeline.extract.protocol import ExtractLimits

    return ExtractLimits.of(
        settings.max_file_mb, settings.text_limit_mb, settings.file_memory_mb, settings.file_time_s
    )


def _ocr_setup(settings: Settings) -> OcrSetup:
    """Options of OCR, with the address of its endpoint if one is set."""
    from penstock.pipeline.ocr.pages import OcrSetup
    from penstock.pipeline.ocr.protocol import OcrOptions

    options = OcrOptions(
        languages=settings.ocr_languages,
        tessdata_dir=settings.ocr_tessdata_dir or "",
        dpi=settings.ocr_dpi,
        min_confidence=settings.ocr_min_confidence,
    )
    if settings.ocr_endpoint_url is None:
        return OcrSetup(options, enabled=settings.ocr)
    endpoint = _address(settings, "ocr")
    return OcrSetup(options, endpoint, settings.ocr)


def _address(settings: Settings, use: str) -> EndpointOptions:
    """Address and model of the endpoint for a use, which begins the names of its settings."""
    from penstock.pipeline.endpoint import EndpointOptions

    def given(name: str) -> Any:
        return getattr(settings, f"{use}_endpoint_{name}")

    return EndpointOptions(
        url=given("url"), model=given("model"), key=given("key") or "", timeout_s=given("timeout_s")
    )


def _embed_endpoint(settings: Settings) -> EmbedEndpointOptions | None:
    """Address and limits of the embedding endpoint; None if none is set."""
    if settings.embed_endpoint_url is None:
        return None
    from penstock.pipeline.budget import CallLimits
    from penstock.pipeline.embed.endpoint import SERVICE, EmbedEndpointOptions
    from penstock.worker.executor import Breakers

    calls = settings.embed_endpoint_calls, settings.embed_endpoint_per_minute
    return EmbedEndpointOptions(
        address=_address(settings, "embed"),
        dimension=settings.embed_endpoint_dimension,
        batch=settings.embed_endpoint_batch,
        limits=CallLimits(SERVICE, settings.state_dir / "calls" / "embed", *calls),
        guard=Breakers(),
        token_limit=settings.embed_endpoint_tokens,
    )


def _reranker(settings: Settings) -> RerankEndpoint | None:
    """The re-ranker of searches; None if none is set."""
    if settings.rerank_endpoint_url is None:
        return None
    from penstock.pipeline.endpoint_client import RerankEndpoint
    from penstock.worker.executor import Breakers

    options = _address(settings, "rerank")
    return RerankEndpoint(options, Breakers())


def _graph_endpoint(settings: Settings) -> LlmExtractor | None:
    """The extractor of entities behind an endpoint; None without its URL."""
    if settings.graph_endpoint_url is None:
        return None
    from penstock.pipeline.budget import CallLimits
    from penstock.pipeline.graph.llm import LlmExtractor, LlmOptions
    from penstock.pipeline.graph.protocol import SERVICE
    from penstock.worker.executor import Breakers

    calls = settings.graph_endpoint_calls, settings.graph_endpoint_per_minute
    return LlmExtractor(
        LlmOptions(
            address=_address(settings, "graph"),
            calls=settings.graph_endpoint_calls,
            limits=CallLimits(SERVICE, settings.state_dir / "calls" / "graph", *calls),
            guard=Breakers(),
            token_limit=settings.graph_endpoint_tokens,
        )
    )


def _open_vector_store(settings: Settings) -> VectorStore | None:
    if settings.vector_store == NO_STORE:
        return None
    from penstock.vector_stores.factory import open_vector_store

    return open_vector_store(settings)


def attach_vectors(settings: Settings, catalog: Catalog) -> OutsideVectors | None:
    """Make the catalog use the vector store of the settings, or none but itself.

    A process of tasks has a store of its own: a store is not for several threads.
    """
    from penstock.catalog.parts import OutsideStore

    store = _open_vector_store(settings)
    if store is None:
        if catalog.outside.attached(OutsideStore.VECTOR) is not None:
            catalog.outside.detach(OutsideStore.VECTOR)
        return None
    from penstock.handlers.outside_stores import OutsideVectors
    from penstock.worker.executor import Breakers

    return OutsideVectors(catalog, store, Breakers())


def open_graph_copies(settings: Settings, catalog: Catalog) -> GraphCopies | None:
    """The copy of a catalog's graph in an outside store; None without one in the settings."""
    from penstock.graph_stores.factory import open_graph_store
    from penstock.handlers.outside_stores import GraphCopies
    from penstock.worker.executor import Breakers

    store = open_graph_store(settings)
    return GraphCopies(catalog, store, Breakers()) if store is not None else None


def _open_graph_reader(settings: Settings, catalog: Catalog) -> GraphReader:
    """A reader of the graph: on the store of the settings once completely filled, else on the catalog."""
    from penstock.catalog.parts import OutsideStore
    from penstock.graph_stores.factory import open_graph_store

    store = open_graph_store(settings)
    if store is None:
        return catalog.graph
    attached = catalog.outside.attached(OutsideStore.GRAPH)
    if attached is None or not attached.filled or attached.address != store.address:
        return catalog.graph
    from penstock.graph_stores.reader import CopyReader

    return CopyReader(store, attached.catalog_id, catalog.graph_texts, catalog.graph)
