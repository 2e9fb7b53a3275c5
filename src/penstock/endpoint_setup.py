"""Endpoints as the settings say: OCR, embeddings, entities. Nothing is loaded for those not set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import Settings

if TYPE_CHECKING:
    from penstock.pipeline.embed.endpoint_embedder import EmbedEndpointOptions
    from penstock.pipeline.graph.llm import LlmExtractor
    from penstock.pipeline.ocr.pages import OcrSetup


def ocr_setup(settings: Settings) -> OcrSetup:
    """How pictures are read, and whether they are unless a request says otherwise."""
    from penstock.pipeline.endpoint import EndpointOptions
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
    endpoint = EndpointOptions(
        url=settings.ocr_endpoint_url,
        model=settings.ocr_endpoint_model,
        key=settings.ocr_endpoint_key or "",
        timeout_s=settings.ocr_endpoint_timeout_s,
    )
    return OcrSetup(options, endpoint, settings.ocr)


def embed_endpoint(settings: Settings) -> EmbedEndpointOptions | None:
    """The endpoint for embeddings; None without its URL."""
    if settings.embed_endpoint_url is None:
        return None
    from penstock.pipeline.call_limits import CallLimits
    from penstock.pipeline.embed.endpoint_embedder import SERVICE, EmbedEndpointOptions
    from penstock.pipeline.endpoint import EndpointOptions
    from penstock.worker.breaker import Breakers

    calls = settings.embed_endpoint_calls, settings.embed_endpoint_per_minute
    return EmbedEndpointOptions(
        address=EndpointOptions(
            url=settings.embed_endpoint_url,
            model=settings.embed_endpoint_model,
            key=settings.embed_endpoint_key or "",
            timeout_s=settings.embed_endpoint_timeout_s,
        ),
        dimension=settings.embed_endpoint_dimension,
        batch=settings.embed_endpoint_batch,
        limits=CallLimits(SERVICE, settings.state_dir / "calls" / "embed", *calls),
        guard=Breakers(),
        token_limit=settings.embed_endpoint_tokens,
    )


def graph_endpoint(settings: Settings) -> LlmExtractor | None:
    """The extractor of entities behind an endpoint; None without its URL."""
    if settings.graph_endpoint_url is None:
        return None
    from penstock.pipeline.call_limits import CallLimits
    from penstock.pipeline.endpoint import EndpointOptions
    from penstock.pipeline.graph.llm import SERVICE, LlmExtractor, LlmOptions
    from penstock.worker.breaker import Breakers

    calls = settings.graph_endpoint_calls, settings.graph_endpoint_per_minute
    return LlmExtractor(
        LlmOptions(
            address=EndpointOptions(
                url=settings.graph_endpoint_url,
                model=settings.graph_endpoint_model,
                key=settings.graph_endpoint_key or "",
                timeout_s=settings.graph_endpoint_timeout_s,
            ),
            calls=settings.graph_endpoint_calls,
            limits=CallLimits(SERVICE, settings.state_dir / "calls" / "graph", *calls),
            guard=Breakers(),
            token_limit=settings.graph_endpoint_tokens,
        )
    )
