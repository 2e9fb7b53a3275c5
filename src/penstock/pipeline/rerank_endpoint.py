"""A re-ranker behind an HTTP endpoint with the interface of Cohere's, which Jina, vLLM and others share.

A cross-encoder reads query and text together. It is better than comparing two vectors, and too slow for more
than the best hits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from penstock.errors import PermanentFailure, ServiceUnavailable
from penstock.pipeline.endpoint import BadAnswer, EndpointOptions, EndpointSilent, EndpointUse, ServiceGuard
from penstock.pipeline.endpoint_client import Endpoint

_SERVICE = "re-ranking endpoint"
_MAX_CHARS = 8_000
"""Characters sent of each text: models read a few thousand at most."""
MAX_ANSWER_BYTES = 16 << 20


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Answer(msgspec.Struct):
    results: list[_Result]


class RerankEndpoint:
    """Scores texts for a query, all in one call."""

    def __init__(self, options: EndpointOptions, guard: ServiceGuard) -> None:
        self._model = options.model
        self._guard = guard
        use = EndpointUse(_SERVICE, "rerank_endpoint", "/rerank", MAX_ANSWER_BYTES, _refusal)
        self._endpoint = Endpoint(options, use)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score each text for the query; higher is better.

        Raises a JobError if the endpoint is down, refuses, or its answer does not score each text once. After
        failures it is not called for a while.
        """
        documents = [text[:_MAX_CHARS] for text in texts]
        asked = {"model": self._model, "query": query[:_MAX_CHARS], "documents": documents}
        body = msgspec.json.encode(asked | {"top_n": len(documents), "return_documents": False})
        try:
            with self._guard.calling(_SERVICE):
                return self._read(self._post(body), len(documents))
        except ServiceUnavailable as error:
            self._guard.delay(error)
            raise

    def _post(self, body: bytes) -> bytes:
        try:
            return self._endpoint.post(body)
        except EndpointSilent as error:
            # As long as it is silent, each search would wait for it.
            raise ServiceUnavailable(_SERVICE, error.message, remedy=error.remedy) from None

    def _read(self, body: bytes, count: int) -> list[float]:
        try:
            results = msgspec.json.decode(body, type=_Answer).results
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(f"the answer of the {_SERVICE} is malformed: {error}") from None
        scores = {each.index: each.relevance_score for each in results}
        if sorted(scores) != list(range(count)) or not all(map(math.isfinite, scores.values())):
            raise BadAnswer(f"the answer of the {_SERVICE} does not score each of {count} texts")
        return [scores[at] for at in range(count)]


def _refusal(message: str) -> PermanentFailure:
    return PermanentFailure(message, code="ERR_REFUSED", remedy="See the log of the endpoint.")
