"""A scripted server with the interfaces of an embedding and of a re-ranking endpoint."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager
from typing import Any

from tests.pipeline.scripted_endpoint import Answer, ScriptedEndpoint, serving

DIMENSION = 8
TOKENS_A_TEXT = 5


class EmbeddingServer(ScriptedEndpoint):
    """Answers with vectors, unless it has a script."""

    def __init__(self) -> None:
        super().__init__()
        self.refused_text = ""
        """A request with this text is answered with status 500."""

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["input"]]

    def usual(self, request: dict[str, Any]) -> Answer:
        texts = request["documents"] if "query" in request else request["input"]
        refused = bool(self.refused_text) and any(self.refused_text in text for text in texts)
        body = relevances(texts) if "query" in request else embeddings(texts)
        return Answer(500 if refused else 200, body)


def relevances(texts: list[str]) -> bytes:
    """Scores that prefer long texts, best first as such endpoints answer."""
    results = [{"index": place, "relevance_score": len(text) / 100} for place, text in enumerate(texts)]
    results.sort(key=lambda each: -each["relevance_score"])
    return json.dumps({"id": "1", "results": results}).encode()


def vector(text: str) -> list[float]:
    return [float(byte) for byte in hashlib.sha256(text.encode()).digest()[:DIMENSION]]


def embeddings(texts: list[str], *, dimension: int = DIMENSION) -> bytes:
    data = [{"index": place, "embedding": vector(text)[:dimension]} for place, text in enumerate(texts)]
    tokens = TOKENS_A_TEXT * len(texts)
    return json.dumps(
        {"data": data[::-1], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    ).encode()


def embedding_server() -> AbstractContextManager[EmbeddingServer]:
    return serving(EmbeddingServer())
