"""Client of endpoints with the interface of OpenAI: one request, one answer, errors that say who must act.

Each use (OCR, embedding, graph) reads the answer itself; re-ranking, which has no other part, does so here.
Nothing is retried here: the job or task is.
"""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from penstock import clock
from penstock.errors import JobError, PermanentFailure, ServiceUnavailable
from penstock.pipeline.endpoint import (
    BadAnswer,
    EndpointOptions,
    EndpointSilent,
    EndpointUse,
    ServiceGuard,
    shown_url,
)

LONGEST_WAIT_S = 3600.0
"""Limit for the wait that an endpoint may ask for."""
_PIECE = 1 << 16
_IN_PATHS = "/%:@!$&'()*+,;=~?"
"""Characters of a URL that are sent as they are."""
_RERANKER = "re-ranking endpoint"
_MAX_CHARS = 8_000
"""Characters sent of each text: models read a few thousand at most."""
_MAX_RANKING_BYTES = 16 << 20


class _Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    retry_after: timedelta | None


class Endpoint:
    """An endpoint, called once for each request."""

    def __init__(self, options: EndpointOptions, use: EndpointUse) -> None:
        self._options = options
        self._use = use

    def post(self, body: bytes) -> bytes:
        """Send a JSON document and return the answer.

        Raises ServiceUnavailable if the endpoint is down or its settings are wrong, TransientFailure if
        another attempt may succeed, and the error of ``EndpointUse.refusal`` otherwise.
        """
        answer = self._exchange(body)
        if answer.status != http.HTTPStatus.OK:
            raise self._refusal(answer)
        return answer.body

    @property
    def shown(self) -> str:
        """URL without user, password and query, for messages."""
        return shown_url(self._options.url)

    def _exchange(self, body: bytes) -> _Answer:
        use, timeout_s = self._use, self._options.timeout_s
        parts, headers = self._url(), self._headers()
        deadline = clock.elapsed_s() + timeout_s
        connection = self._connect(parts)
        over = threading.Timer(timeout_s, _cut_off, [connection.sock])
        over.daemon = True
        over.start()
        try:
            path = parts.path.rstrip("/")
            path = path if path.endswith(use.path) else f"{path}{use.path}"
            query = f"?{parts.query}" if parts.query else ""
            connection.request("POST", f"{path}{query}", body, headers)
            return self._read(connection, deadline)
        except (OSError, http.client.HTTPException) as error:
            if not isinstance(error, TimeoutError) and clock.elapsed_s() < deadline:
                what = f"the {use.service} {self.shown} broke the connection: {_cause(error)}"
                raise BadAnswer(what) from None
            raise EndpointSilent(
                f"the {use.service} {self.shown} did not answer within {timeout_s:g} s",
                remedy=f"Check the endpoint, or raise {use.variable('timeout_s')}.",
            ) from None
        finally:
            over.cancel()
            connection.close()

    def _url(self) -> SplitResult:
        try:
            parts = urlsplit(self._options.url)
            host = (parts.hostname or "").encode("idna").decode()
            valid = parts.scheme in ("http", "https") and host.isprintable() and " " not in host
            if valid and host and (parts.port is None or parts.port):
                return parts._replace(
                    path=quote(parts.path, safe=_IN_PATHS), query=quote(parts.query, _IN_PATHS)
                )
        except ValueError:
            pass  # an invalid port or address, or a name too long
        raise ServiceUnavailable(
            self._use.service,
            f"the URL of the {self._use.service} is not an http or https URL",
            remedy=f"Set {self._use.variable('url')} to a URL such as http://127.0.0.1:8000/v1.",
        )

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = make(str(parts.hostname), parts.port, timeout=self._options.timeout_s)
        remedy = None
        try:
            connection.connect()
            return connection
        except ssl.SSLError as error:
            reason = (
                getattr(error, "verify_message", "") or str(error.reason or error).replace("_", " ").lower()
            )
            cause = f"TLS error: {reason}"
            remedy = "Check the certificate; an authority of your own is trusted by SSL_CERT_FILE."
            if not isinstance(error, ssl.SSLCertVerificationError):
                remedy = f"Check {self._use.variable('url')}: the other side may not speak https."
        except OSError as error:
            cause = _cause(error)
        connection.close()
        message = f"cannot connect to the {self._use.service} {self.shown}: {cause}"
        raise ServiceUnavailable(self._use.service, message, remedy=remedy) from None

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        key = self._options.key
        if key:
            if not (key.isascii() and key.isprintable()):
                raise ServiceUnavailable(
                    self._use.service,
                    f"the key of the {self._use.service} has characters that cannot be sent",
                    remedy=f"Correct {self._use.variable('key')}.",
                )
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _read(self, connection: http.client.HTTPConnection, deadline: float) -> _Answer:
        with connection.getresponse() as response:
            body = self._body(response, deadline)
            if response.length:
                raise http.client.IncompleteRead(body, response.length)
            return _Answer(response.status, body, wait_asked_for(response.getheader("Retry-After")))

    def _body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            size += len(piece)
            if size > self._use.max_answer_bytes:
                limit = f"{self._use.max_answer_bytes:,} bytes"
                raise self._use.refusal(f"the answer of the {self._use.service} has more than {limit}")
            if clock.elapsed_s() > deadline:
                raise TimeoutError
            pieces.append(piece)
        return b"".join(pieces)

    def _refusal(self, answer: _Answer) -> JobError:
        """Make the error for a status other than 200: who must act, and whether a retry may help."""
        status, wait = answer.status, answer.retry_after
        service, variable = self._use.service, self._use.variable
        reason = http.client.responses.get(status, "")
        message = f"the {service} {self.shown} answered {status} {reason}".rstrip()
        if status in (429, 502, 503, 504):
            return ServiceUnavailable(service, message, retry_after=wait)
        if status in (401, 403):
            return ServiceUnavailable(service, message, remedy=f"Correct {variable('key')}.")
        if status in (404, 405) or 300 <= status < 400:
            remedy = f"Correct {variable('url')} and {variable('model')}."
            return ServiceUnavailable(service, message, remedy=remedy)
        if status >= 500 or status == 408:
            return BadAnswer(message, retry_after=wait)
        return self._use.refusal(message)


def _cut_off(connection: socket.socket) -> None:
    """End a connection at the deadline: a server sending a byte now and then never causes a timeout."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def wait_asked_for(retry_after: str | None) -> timedelta | None:
    """The wait of a Retry-After header, in seconds or until a date."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - clock.now().timestamp()
        except ValueError:
            return None
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_WAIT_S)) if seconds == seconds else None


def _cause(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended too early"
    if isinstance(error, (http.client.BadStatusLine, http.client.UnknownProtocol)):
        # Its text is what the other side sent. One of them is raised for a connection that was closed.
        closed = isinstance(error, ConnectionError)
        return "it was closed without an answer" if closed else "the answer is not HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Score(msgspec.Struct):
    index: int
    relevance_score: float


class _Ranking(msgspec.Struct):
    results: list[_Score]


class RerankEndpoint:
    """A re-ranker with the interface of Cohere's, which Jina, vLLM and others share: scores texts for a
    query.

    A cross-encoder reads query and text together. It is better than comparing two vectors, and too slow for
    more than the best hits.
    """

    def __init__(self, options: EndpointOptions, guard: ServiceGuard) -> None:
        self._model = options.model
        self._guard = guard
        use = EndpointUse(_RERANKER, "rerank_endpoint", "/rerank", _MAX_RANKING_BYTES, _refused)
        self._endpoint = Endpoint(options, use)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score each text for the query, all in one call; higher is better.

        Raises a JobError if the endpoint is down, refuses, or its answer does not score each text once. After
        failures it is not called for a while.
        """
        documents = [text[:_MAX_CHARS] for text in texts]
        asked = {"model": self._model, "query": query[:_MAX_CHARS], "documents": documents}
        body = msgspec.json.encode(asked | {"top_n": len(documents), "return_documents": False})
        try:
            with self._guard.calling(_RERANKER):
                return self._read(self._post(body), len(documents))
        except ServiceUnavailable as error:
            self._guard.delay(error)
            raise

    def _post(self, body: bytes) -> bytes:
        try:
            return self._endpoint.post(body)
        except EndpointSilent as error:
            # As long as it is silent, each search would wait for it.
            raise ServiceUnavailable(_RERANKER, error.message, remedy=error.remedy) from None

    def _read(self, body: bytes, count: int) -> list[float]:
        try:
            results = msgspec.json.decode(body, type=_Ranking).results
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(f"the answer of the {_RERANKER} is malformed: {error}") from None
        scores = {each.index: each.relevance_score for each in results}
        if sorted(scores) != list(range(count)) or not all(map(math.isfinite, scores.values())):
            raise BadAnswer(f"the answer of the {_RERANKER} does not score each of {count} texts")
        return [scores[at] for at in range(count)]


def _refused(message: str) -> PermanentFailure:
    return PermanentFailure(message, code="ERR_REFUSED", remedy="See the log of the endpoint.")
