"""Each setting changes behaviour, not only the result of the parser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from penstock import config
from penstock.assembly import Assembly
from penstock.catalog.values import NewPage
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.errors import PathOutside, PenstockError, QueueFull
from penstock.graph_stores.factory import open_graph_store
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.handlers.context import Context
from penstock.handlers.registry import Registry
from penstock.handlers.source_files import SourceFiles
from penstock.http.guard import GuardOptions
from penstock.job import ClaimRequest
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.endpoint_embedder import EndpointEmbedder
from penstock.pipeline.rerank_endpoint import RerankEndpoint
from penstock.pipeline_assembly import make_pipeline
from penstock.queue.postgres.queue import PostgresQueue
from penstock.service.keys import Keys
from penstock.service.path_policy import PathPolicy

Effect: TypeAlias = Callable[[Settings, Path], object]

RAGS = "redis: {url: redis://broker:6379/3}\nsources: sources\nrags: {faq: {folders: [shared]}}\n"


@contextmanager
def opened(settings: Settings) -> Iterator[Assembly]:
    assembly = Assembly(settings)
    try:
        yield assembly
    finally:
        assembly.close()


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
    return connections._size, connections.pooled, connections.timeout_s


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


def guarded(settings: Settings, place: Path) -> object:
    """Limits of a server."""
    options = GuardOptions.of(settings, Keys(place), "127.0.0.1", requires_keys=True)
    return options.hosts, options.body_limit, options.rate._per_minute, options.metrics_public


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


_SERVER = {"server": "http://127.0.0.1:9"}
_ENDPOINT = {"embedder": "endpoint", "embed_endpoint_url": "http://127.0.0.1:8/v1"}
_MODEL = {"graph_endpoint_url": "http://127.0.0.1:8/v1"}
# A value other than the default, the observed effect, and other settings needed for the observation.
EFFECTS: dict[str, tuple[Any, Effect, dict[str, Any]]] = {
    "url": ("jsonl://{place}/queue", engines, {"catalog_url": "sqlite:///{place}/catalog.db"}),
    "catalog_url": ("sqlite:///{place}/elsewhere.db", engines, {}),
    "state_dir": ("{place}/elsewhere", files, {}),
    "tenant_id": ("acme", job, {}),
    "collection": ("notes", job, {}),
    "max_queue": (2, accepted("content", "ingest", lambda n: {"content": f"text {n}"}), {}),
    "max_queue_per_tenant": (2, accepted("content", "ingest", lambda n: {"content": f"text {n}"}), {}),
    "max_function_queue": (2, accepted("function", "run", lambda n: {"function_name": f"f{n}"}), {}),
    "max_payload_bytes": (1_000, refusal_of_a_large_payload, {}),
    "max_retries": (0, job, {}),
    "job_timeout_s": (5, job, {}),
    "queue_enabled": (False, option("processes"), {}),
    "lease_s": (45.0, option("lease"), {}),
    "lease_by_type": ({"file": 600.0}, option("lease_by_type"), {}),
    "task_lease_s": (90.0, option("task_lease"), {}),
    "heartbeat_s": (10.0, option("heartbeat_s"), {}),
    "poll_s": (5.0, option("poll_s"), {}),
    "upkeep_s": (15.0, option("upkeep_s"), {}),
    "cancel_grace_s": (2.5, option("grace_s"), {}),
    "recycle_after_jobs": (1_000, option("recycle_after"), {}),
    "recycle_growth_mb": (0, option("recycle_growth_mb"), {}),
    "checkpoint_interval": (10, progress_reports, {}),
    "retention_days": (0, option("retention"), {}),
    "failed_retention_days": (7, option("retention"), {}),
    "embedder": ("static", limits, {}),
    "graph": (True, wanted_phases, {}),
    "vector_store": ("pgvector://127.0.0.1:1/db", vector_store, {}),
    "vector_store_timeout_s": (3.0, vector_store, {"vector_store": "pgvector://127.0.0.1:1/db"}),
    "usearch_from": (1_000, index_from, {}),
    "max_file_mb": (8, limits, {}),
    "text_limit_mb": (8, limits, {}),
    "archives": (True, requested, {}),
    "file_time_s": (2.5, limits, {}),
    "file_memory_mb": (100, limits, {}),
    "ocr": (False, recognition, {}),
    "ocr_workers": (2, ocr_workers, {}),
    "ocr_languages": ("deu+eng", recognition, {}),
    "ocr_tessdata_dir": ("{place}/tessdata", recognition, {}),
    "models_dir": ("{place}/models", lambda settings, _: Assembly(settings).models.directory, {}),
    "embed_endpoint_url": ("http://127.0.0.1:9/v1", embedding_or_error, {"embedder": "endpoint"}),
    "embed_endpoint_model": ("other", embedding, _ENDPOINT),
    "embed_endpoint_key": ("secret", embedding, _ENDPOINT),
    "embed_endpoint_dimension": (8, embedding, _ENDPOINT),
    "embed_endpoint_batch": (8, embedding, _ENDPOINT),
    "embed_endpoint_timeout_s": (5.0, embedding, _ENDPOINT),
    "embed_endpoint_calls": (1, embedding, _ENDPOINT),
    "embed_endpoint_per_minute": (60, embedding, _ENDPOINT),
    "embed_endpoint_tokens": (1000, embedding, _ENDPOINT),
    "graph_store": ("neo4j://127.0.0.1:9", copied_graph, {}),
    "graph_store_timeout_s": (5.0, copied_graph, {"graph_store": "neo4j://127.0.0.1:9"}),
    "graph_endpoint_url": ("http://127.0.0.1:9/v1", asked_model, {}),
    "graph_endpoint_model": ("other", asked_model, _MODEL),
    "graph_endpoint_key": ("secret", asked_model, _MODEL),
    "graph_endpoint_timeout_s": (5.0, asked_model, _MODEL),
    "graph_endpoint_calls": (1, asked_model, _MODEL),
    "graph_endpoint_per_minute": (60, asked_model, _MODEL),
    "graph_endpoint_tokens": (1000, asked_model, _MODEL),
    "rerank_endpoint_url": ("http://127.0.0.1:9/v1", reranking, {}),
    "rerank_endpoint_model": ("other", reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "rerank_endpoint_key": ("secret", reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "rerank_endpoint_timeout_s": (2.0, reranking, {"rerank_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_dpi": (200, recognition, {}),
    "ocr_min_confidence": (50.0, recognition, {}),
    "ocr_endpoint_url": ("http://127.0.0.1:9/v1", recognition, {}),
    "ocr_endpoint_model": ("other", recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_endpoint_key": ("secret", recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "ocr_endpoint_timeout_s": (5.0, recognition, {"ocr_endpoint_url": "http://127.0.0.1:9/v1"}),
    "pages_dir": ("{place}/pages", written_pages, {}),
    "sqlite_synchronous": ("NORMAL", pragma("synchronous"), {}),
    "busy_timeout_s": (1.0, pragma("busy_timeout", "read"), {}),
    "postgres_pool_size": (2, pool, {}),
    "postgres_pooler": (True, pool, {}),
    "postgres_timeout_s": (5.0, pool, {}),
    "contract_url": ("redis://other:6379/0", contract, {"rag_config": "{place}/rags.yaml"}),
    "rag_config": ("{place}/rags.yaml", contract, {"contract_url": "redis://other:6379/0"}),
    "rag_away_s": (60.0, contract, {"rag_config": "{place}/rags.yaml"}),
    "roots": ("/usr/bin:/usr/share", allowed_paths, {}),
    "allow_external": (True, allowed_paths, {}),
    "hosts": ("mill.example", guarded, {}),
    "rate_limit": (5, guarded, {}),
    "metrics_public": (True, guarded, {}),
    "serial": (True, lock_of_a_folder, {}),
    "body_limit_mb": (1, guarded, {}),
    "uploads_dir": ("{place}/received", uploaded, {}),
    "server": ("http://127.0.0.1:9", through_server, {}),
    "api_key": ("ps_miller", through_server, _SERVER),
    "api_key_file": ("{place}/key", through_server, _SERVER),
}


def test_every_setting_has_an_effect_here():
    assert [setting.name for setting in config.SETTINGS] == sorted(
        EFFECTS, key=[setting.name for setting in config.SETTINGS].index
    )


@pytest.mark.parametrize("name", EFFECTS)
def test_a_setting_changes_what_is_done(name: str, tmp_path: Path):
    value, effect, needed = EFFECTS[name]
    seen: list[str] = []
    for given in ({}, {name: value}):
        place = tmp_path / str(len(seen))
        place.mkdir()
        # The default embedder takes long to load.
        chosen = {"state_dir": "{place}/state", "embedder": "hashing"} | needed | given
        filled: dict[str, Any] = {
            key: text.replace("{place}", str(place)) if isinstance(text, str) else text
            for key, text in chosen.items()
        }
        answer = effect(config.load({}, **filled), place)
        seen.append(repr(answer).replace(str(place), "PLACE"))

    assert seen[0] != seen[1]
