"""The composition of the pipeline, and of the endpoints for OCR, embedding, re-ranking and entities.

Nothing is imported before its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config import Settings
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


def make_pipeline(
    settings: Settings, memory: MemoryShare | None = None, *, isolated: bool = False
) -> Pipeline:
    """Make the pipeline from files to chunks. ``memory``: this process's share for parsing files."""
    from penstock.pipeline.pipeline import Pipeline

    return Pipeline(
        make_embedder(settings),
        limits=extract_limits(settings),
        memory=memory,
        isolated=isolated,
        ocr=ocr_setup(settings),
        graph=settings.graph,
        llm=graph_endpoint(settings),
        vectors_outside=settings.vector_store != "default",
    )


def make_embedder(settings: Settings) -> Embedder:
    """Open the embedder of the settings; refuse one that is not installed or not set up."""
    from penstock.pipeline.embed import open_embedder

    fastembed = fastembed_options(settings) if settings.embedder == "fastembed" else None
    return open_embedder(settings.embedder, embed_endpoint(settings), settings.models_dir, fastembed)


def fastembed_options(settings: Settings) -> FastembedOptions:
    """Model of the embedder fastembed."""
    from penstock.pipeline.embed.fastembed import FastembedOptions

    return FastembedOptions(settings.fastembed_model, settings.fastembed_pooling)


def refuse_unusable_embedder(settings: Settings) -> None:
    """Raise for an embedder that is not installed, not set up or damaged: one error here, with its remedy,
    instead of one in each process or for each chunk."""
    if settings.embedder in ("minilm", "endpoint", "fastembed"):
        embedder = make_embedder(settings)
        if settings.embedder == "fastembed":
            embedder.embed(["a"])  # a damaged model is found when it is loaded
    if settings.embedder == "minilm":
        from penstock.pipeline.embed.minilm import model_files

        model_files.read_graph(settings.models_dir)
        model_files.read_vocabulary(settings.models_dir)


def extract_limits(settings: Settings) -> ExtractLimits:
    """Limits on size, memory and time of a file."""
    from penstock.pipeline.extract.protocol import ExtractLimits

    return ExtractLimits.of(
        settings.max_file_mb, settings.text_limit_mb, settings.file_memory_mb, settings.file_time_s
    )


def ocr_setup(settings: Settings) -> OcrSetup:
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


def embed_endpoint(settings: Settings) -> EmbedEndpointOptions | None:
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


def reranker(settings: Settings) -> RerankEndpoint | None:
    """The re-ranker of searches; None if none is set."""
    if settings.rerank_endpoint_url is None:
        return None
    from penstock.pipeline.endpoint_client import RerankEndpoint
    from penstock.worker.executor import Breakers

    options = _address(settings, "rerank")
    return RerankEndpoint(options, Breakers())


def graph_endpoint(settings: Settings) -> LlmExtractor | None:
    """The extractor of entities behind an endpoint; None without its URL."""
    if settings.graph_endpoint_url is None:
        return None
    from penstock.pipeline.budget import CallLimits
    from penstock.pipeline.graph.llm import SERVICE, LlmExtractor, LlmOptions
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
