"""The embedder behind an HTTP endpoint compatible with OpenAI's embeddings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import PermanentFailure, ServiceUnavailable
from penstock.pipeline.budget import CallLimits
from penstock.pipeline.endpoint import (
    BadAnswer,
    EndpointOptions,
    EndpointSilent,
    EndpointUse,
    ServiceGuard,
)
from penstock.pipeline.endpoint_client import Endpoint
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_NAME = "endpoint"
SERVICE = "embedding endpoint"
_CHARS_PER_TOKEN = 4
"""Estimate for endpoints that do not count."""
SIGNS_A_TEXT = 16
"""Tokens that a model may add to a text. A text has at most one for each byte; higher claims are capped."""
MAX_NUMBER_BYTES = 32
"""Longest number of an answer; sets the largest answer that is read."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class EmbedEndpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An embedding endpoint with limits on batches, calls and tokens."""

    address: EndpointOptions
    dimension: int
    batch: int = 64
    """Texts of one call."""
    limits: CallLimits | None = None
    guard: ServiceGuard | None = None
    token_limit: int | None = None
    """Tokens of a tenant in a calendar month."""


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Embedding]
    usage: _Usage | None = None


class EndpointEmbedder:
    """Embedder that sends texts in batches. Vectors are normalized to length 1."""

    name = _NAME
    token_variable = "PENSTOCK_EMBED_ENDPOINT_TOKENS"

    def __init__(self, options: EmbedEndpointOptions) -> None:
        self._options = options
        self.dimension = options.dimension
        self.token_limit = options.token_limit
        self.batch = options.batch
        largest = options.batch * options.dimension * MAX_NUMBER_BYTES + (1 << 20)
        use = EndpointUse(SERVICE, "embed_endpoint", "/embeddings", largest, _refusal)
        self._endpoint = Endpoint(options.address, use)
        self._tokens = 0

    @property
    def service(self) -> str:
        return SERVICE

    @property
    def fingerprint(self) -> str:
        """Fingerprint of model and dimension: the same model may have another address."""
        return fingerprint({"model": self._options.address.model, "dimension": self.dimension})

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts. Raises ServiceUnavailable while the endpoint is down or refuses the settings,
        TransientFailure if another attempt may succeed, PermanentFailure for texts it does not take."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        worded = [place for place, text in enumerate(texts) if text.strip()]
        for start in range(0, len(worded), self.batch):
            places = worded[start : start + self.batch]
            vectors[places] = self._call([_SURROGATE.sub("\ufffd", texts[place]) for place in places])
        return vectors

    def take_tokens(self) -> int:
        """Tokens used since the last call of this method."""
        tokens, self._tokens = self._tokens, 0
        return tokens

    def _call(self, texts: list[str]) -> npt.NDArray[np.float32]:
        guard, limits = self._options.guard, self._options.limits
        try:
            with (
                guard.calling(SERVICE) if guard is not None else nullcontext(),
                limits.call() if limits is not None else nullcontext(),
            ):
                return self._embedded(texts)
        except ServiceUnavailable as error:
            wait = guard.delay(error) if guard is not None else error.retry_after
            raise ServiceUnavailable(SERVICE, error.message, retry_after=wait, remedy=error.remedy) from None

    def _embedded(self, texts: list[str]) -> npt.NDArray[np.float32]:
        request = {"model": self._options.address.model, "input": texts, "encoding_format": "float"}
        try:
            answer = _decoded(self._endpoint.post(msgspec.json.encode(request)))
        except EndpointSilent as error:
            # As long as it is silent, each call would hold up the other work of this process.
            raise ServiceUnavailable(SERVICE, error.message, remedy=error.remedy) from None
        self._tokens += _tokens(answer.usage, texts)
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: _Answer, wanted: int) -> npt.NDArray[np.float32]:
        import numpy as np

        entries = answer.data
        if all(entry.index is not None for entry in entries):
            entries = sorted(entries, key=lambda entry: entry.index or 0)
            if [entry.index for entry in entries] != list(range(wanted)):
                raise _malformed(f"the numbers of its vectors are not 0 to {wanted - 1}")
        elif len(entries) != wanted:
            raise _malformed(f"it has {len(entries)} vectors for {wanted} texts")
        for entry in entries:
            numbers = len(entry.embedding)
            if numbers != self.dimension:
                raise ServiceUnavailable(
                    SERVICE,
                    f"the {SERVICE} {self._endpoint.shown} gives vectors of {numbers} numbers, "
                    f"expected {self.dimension}",
                    remedy="Correct PENSTOCK_EMBED_ENDPOINT_MODEL, or set "
                    f"PENSTOCK_EMBED_ENDPOINT_DIMENSION to {numbers}.",
                )
        # In 64 bits: the length of a vector of very small or large numbers underflows or overflows in 32.
        vectors = np.array([entry.embedding for entry in entries], dtype=np.float64)
        with np.errstate(over="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
        if not np.isfinite(lengths).all():
            raise _malformed("it has numbers that are too large")
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors.astype(np.float32)


def _decoded(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(str(error)) from None


def _tokens(usage: _Usage | None, texts: list[str]) -> int:
    counted = (usage.total_tokens or usage.prompt_tokens) if usage is not None else None
    if counted is None or counted < 0:
        return sum(len(text) for text in texts) // _CHARS_PER_TOKEN
    return min(counted, sum(len(text.encode()) + SIGNS_A_TEXT for text in texts))


def _malformed(why: str) -> BadAnswer:
    return BadAnswer(
        f"the answer of the {SERVICE} is malformed: {why}",
        remedy="The chunk is tried again; see the log of the endpoint if this goes on.",
    )


def _refusal(message: str) -> PermanentFailure:
    return PermanentFailure(
        message,
        code="ERR_REFUSED",
        remedy="The text may be too long for the model: use smaller chunks, or see the log of the endpoint.",
    )
