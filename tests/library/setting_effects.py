"""Effects of settings: what a program or a person sees of each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from penstock import config
from penstock.assembly import Assembly, make_pipeline
from penstock.catalog.values import NewPage
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.errors import PathOutside, PenstockError, QueueFull, UploadQuotaReached
from penstock.graph_stores.factory import open_graph_store
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.handlers.context import Context, Registry
from penstock.handlers.source_files import SourceFiles, fetched_files
from penstock.handlers.webhooks import webhook_options
from penstock.http.guard import GuardOptions
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.embed.endpoint import EndpointEmbedder
from penstock.pipeline.endpoint_client import RerankEndpoint
from penstock.process_start import log_formatter
from penstock.queue.job import ClaimRequest
from penstock.queue.postgres.queue import PostgresQueue
from penstock.service.access import PathPolicy
from penstock.service.keys import Keys

Effect: TypeAlias = Callable[[Settings, Path], object]

RAGS = "redis: {url: redis://broker:6379/3}\nsources: sources\nrags: {faq: {folders: [shared]}}\n"


def opened(settings: Settings) -> closing[Assembly]:
    return closing(Assembly(settings))


def job(settings: Settings, _: Path) -> object:
    with opened(settings) as assembly:
        receipt = assembly.jobs.submit(item_type="content", op="ingest", payload={"content": "mill"})
        found = assembly.jobs.job(receipt.job_id)
        return found.tenant_id, found.collection, found.max_retries, found.timeout_s


def accepted(item_type: str, op: str, payload: Callable[[int], dict[str, Any]]) -> Effect:
    def effect(settings: Settings, _: Path) -> object:
        with opened(settings) as assembly:
            count = 0
            for number in range(3):
                try:
                    assembly.jobs.submit(item_type=item_type, op=op, payload=payload(number))
                except QueueFull:
                    break
                count += 1
            return count

    return effect


def refusal_of_a_large_payload(settings: Settings, _: Path) -> object:
    with opened(settings) as assembly:
        try:
            assembly.jobs.submit(item_type="content", op="ingest", payload={"content": "x" * 2_000})
        except PenstockError as error:
            return type(error)
    return None


def engines(settings: Settings, _: Path) -> object:
    with opened(settings) as assembly:
        return type(assembly.queue).__name__, assembly.catalog.path  # type: ignore[attr-defined]


def files(settings: Settings, place: Path) -> object:
    with opened(settings) as assembly:
        assembly.jobs.stats()
    return sorted(str(path.relative_to(place)) for path in place.rglob("*.db"))


def option(name: str) -> Effect:
    """An option of the worker's supervisor."""

    def effect(settings: Settings, _: Path) -> object:
        worker = Assembly(settings).worker()
        return worker.processes, getattr(worker._options(), name)

    return effect


def ocr_workers(settings: Settings, _: Path) -> object:
    return Assembly(settings).worker(processes=3)._options().ocr_workers


def limits(settings: Settings, _: Path) -> object:
    pipeline = make_pipeline(settings)
    try:
        return pipeline.space, pipeline.limits
    finally:
        pipeline.close()


def wanted_phases(settings: Settings, _: Path) -> object:
    pipeline = make_pipeline(settings)
    try:
        return pipeline.fingerprints("a.md", ChunkSizes())
    finally:
        pipeline.close()


def recognition(settings: Settings, _: Path) -> object:
    """How pictures are read. The key of an endpoint is not shown in the text of its options."""
    setup = make_pipeline(settings)._ocr
    if setup is None or setup.endpoint is None:
        return setup
    return setup.options, msgspec.structs.asdict(setup.endpoint)


def embedding(settings: Settings, _: Path) -> object:
    """The embedding endpoint and its limits, as the embedder got them."""
    embedder = make_pipeline(settings).embedder
    assert isinstance(embedder, EndpointEmbedder)
    options = embedder._options
    return msgspec.structs.asdict(options.address), msgspec.structs.replace(options, guard=None)


def embedding_or_error(settings: Settings, place: Path) -> object:
    try:
        return embedding(settings, place)
    except PenstockError as error:
        return error.code


def asked_model(settings: Settings, _: Path) -> object:
    """The endpoint that extracts graphs and its limits, as the pipeline got them."""
    llm = make_pipeline(settings).llm
    if llm is None:
        return None
    address = msgspec.structs.asdict(llm._endpoint._options)
    return address, llm.fingerprint, llm.calls, llm._limits, llm.token_limit


def copied_graph(settings: Settings, _: Path) -> object:
    """The graph store outside the catalog, and how long it may take."""
    store = open_graph_store(settings)
    assert store is None or isinstance(store, Neo4jCopy)
    return store and (store.address, store._timeout_s)


def reranking(settings: Settings, _: Path) -> object:
    """The re-ranking endpoint, as the search got it."""
    with opened(settings) as assembly:
        reranker = assembly.search._reranker
        return isinstance(reranker, RerankEndpoint) and msgspec.structs.asdict(reranker._endpoint._options)


def written_pages(settings: Settings, place: Path) -> object:
    """Files written for a recognized page."""
    tools = Assembly(settings).open_document_tools(Registry())
    try:
        page = tools.phases.page_files.keep("a" * 32, "b" * 64, NewPage(number=1, text="mill", engine="e"))
        return page.file_path and str(Path(page.file_path).relative_to(place))
    finally:
        tools.close()


def uploaded(settings: Settings, _: Path) -> object:
    return SourceFiles.of(settings).uploads


def refusal_of_an_upload(settings: Settings, _: Path) -> object:
    """What becomes of an uploaded file of 2 MB."""
    with opened(settings) as assembly:
        upload = assembly.uploads.begin("mill.md", None)
        upload.write(b"m" * (2 << 20))
        try:
            return upload.finish().size
        except UploadQuotaReached as refusal:
            return refusal.code
        finally:
            upload.discard()


def requested(settings: Settings, place: Path) -> object:
    """Payload of a request for a folder."""
    with opened(settings) as assembly:
        return assembly.documents.submission(place)["payload"]


def vector_store(settings: Settings, _: Path) -> Any:
    """The vector store that is searched, and how long it is waited for."""
    from penstock.vector_stores.factory import open_vector_store

    store = open_vector_store(settings)
    return None if store is None else (store.address, vars(store)["_timeout_s"])


def index_from(settings: Settings, _: Path) -> object:
    return Assembly(settings).vector_files.sizes.index_from


def progress_reports(settings: Settings, place: Path) -> object:
    """Number of progress reports of a walk over 30 files."""
    folder = place / "files"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.md").write_text(f"Text {number}.")
    with opened(settings) as assembly:
        registry = Registry()
        tools = assembly.open_document_tools(registry)
        assembly.jobs.submit(item_type="folder", op="ingest", payload={"folder_path": str(folder)})
        (claim,) = assembly.queue.claim(ClaimRequest("w", 1, timedelta(seconds=60)))
        reports: list[str] = []
        context = Context(
            claim,
            report=reports.append,
            stop_requested=lambda: False,
            settle=lambda settlement: assembly.queue.settle([settlement])[0],
        )
        handler = registry.find("folder", "ingest")
        assert handler is not None
        handler.call(context)
        tools.close()
        return len(reports)


def pragma(name: str, role: str = "write") -> Effect:
    def effect(settings: Settings, _: Path) -> object:
        with opened(settings) as assembly:
            return assembly.queue._connections.get(role).execute(f"PRAGMA {name}").fetchone()  # type: ignore[attr-defined]

    return effect


def pool(settings: Settings, _: Path) -> object:
    """Options of the connections of an unconnected queue."""
    settings = config.load({}, **config.portable_values(settings) | {"url": "postgresql://nowhere/db"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresQueue, "migrate", lambda _: None)
        connections: Any = Assembly(settings).open_queue()._connections  # type: ignore[attr-defined]
    return connections.size, connections.pooled, connections.timeout_s


def contract(settings: Settings, place: Path) -> object:
    (place / "shared").mkdir()
    (place / "rags.yaml").write_text(RAGS)
    try:
        with opened(settings) as assembly:
            gateway = assembly.gateway
            return gateway.where, gateway.serves, gateway._intake._away_s
    except PenstockError as error:
        return error.code


def allowed_paths(settings: Settings, _: Path) -> object:
    """Paths that a request with ``allow_external`` may name."""
    policy = PathPolicy.of(settings)
    found = []
    for path in ("/usr/bin", "/usr/lib"):
        with suppress(PathOutside):
            found.append(policy.allowed(path, allow_external=path.endswith("lib")))
    return found


def allowed_pages(settings: Settings, _: Path) -> object:
    """Whether a request may name a web page."""
    try:
        return PathPolicy.of(settings).allowed("https://mill.example/", allow_external=False)
    except PenstockError as error:
        return error.code


def fetched(settings: Settings, _: Path) -> object:
    """Limits of the fetcher of web pages."""
    files = fetched_files(settings)
    return {name: value for name, value in vars(files).items() if "dir" not in name}


def sent_webhook(settings: Settings, place: Path) -> object:
    """The key of signatures, and what becomes of a webhook to an address of this machine."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "webhook").write_text("a secret of the mill")
    options = webhook_options(settings)
    try:
        return options.key(), options.private
    except PenstockError as error:
        return error.code


def logged(settings: Settings, _: Path) -> object:
    """How a worker process writes its log."""
    return type(log_formatter(settings.log_format))


def fastembed_options(settings: Settings, _: Path) -> object:
    """The model of the embedder fastembed."""
    return Assembly(settings).models._fastembed()


def guarded(settings: Settings, place: Path) -> object:
    """Limits of a server."""
    options = GuardOptions.of(settings, Keys(place), "127.0.0.1", requires_keys=True)
    return options.hosts, options.body_limit, options.rate._per_minute, options.metrics_public


def sender(settings: Settings, place: Path) -> object:
    """The machine of a request that came through another one."""
    options = GuardOptions.of(settings, Keys(place), "127.0.0.1", requires_keys=True)
    return options.peers.of_request(("10.0.0.7", 4_000), [(b"x-forwarded-for", b"203.0.113.9")])


def lock_of_a_folder(settings: Settings, _place: Path) -> object:
    with opened(settings) as assembly:
        asked = assembly.jobs.submit(item_type="folder", op="scan", payload={"folder_path": "/srv"})
        return assembly.jobs.job(asked.job_id).lock_key


def through_server(settings: Settings, place: Path) -> object:
    """Client of a command, with its key."""
    (place / "key").write_text("ps_of_a_file")
    (place / "key").chmod(0o600)
    session = Session()
    session.settings = settings
    return session.client and (session.client, session.client._caller._key)
