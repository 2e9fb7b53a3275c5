"""Client of endpoints with the interface of OpenAI: one request, one answer, errors that say who must act.

Each use (OCR, embedding, graph) reads the answer itself. Nothing is retried here: the job or task is.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from penstock import clock
from penstock.errors import JobError, ServiceUnavailable, TransientFailure

LONGEST_WAIT_S = 3600.0
"""Limit for the wait that an endpoint may ask for."""
_PIECE = 1 << 16


class EndpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address of an endpoint, and its model."""

    url: str
    """Base URL, such as ``http://127.0.0.1:8000/v1``, or the full URL of the resource."""
    model: str
    key: str = ""
    """Secret sent as bearer token; empty for none. Never shown or logged."""
    timeout_s: float = 120.0

    def __repr__(self) -> str:
        return f"EndpointOptions(url={self.url!r}, model={self.model!r}, key={'***' if self.key else ''!r})"


class EndpointUse(NamedTuple):
    """What an endpoint is used for."""

    service: str
    """Its name in messages, such as ``OCR endpoint``."""
    settings: str
    """Beginning of the names of its settings, such as ``ocr_endpoint``."""
    path: str
    """Path of the resource below the base URL."""
    max_answer_bytes: int
    refusal: Callable[[str], JobError]
    """Makes the error for a request that will never succeed, from its message."""

    def variable(self, name: str) -> str:
        """Variable of one of its settings, such as ``url``."""
        return f"PENSTOCK_{self.settings}_{name}".upper()


class BadAnswer(TransientFailure):
    """The endpoint failed at this request. It may take it the next time, and others meanwhile."""


class EndpointSilent(TransientFailure):
    """The endpoint took the request and did not answer in time."""


class ServiceGuard(Protocol):
    """Circuit breakers by service. They refuse calls to a service that is down."""

    def calling(self, service: str) -> AbstractContextManager[None]:
        """Guard calls to a service; raises ServiceUnavailable while it is known to be down."""

    def delay(self, error: ServiceUnavailable) -> timedelta:
        """Count a failure; return the time until another call makes sense."""


class TokenMeter(Protocol):
    """A service whose texts are paid for by the token."""

    @property
    def service(self) -> str:
        """Name of the service in messages and counts."""
        ...

    @property
    def token_limit(self) -> int | None:
        """Tokens of a tenant in a calendar month; None: no limit."""
        ...

    @property
    def token_variable(self) -> str:
        """Variable that sets the limit."""
        ...

    def take_tokens(self) -> int:
        """Tokens used since the last call of this method."""
        ...


class _Answer(NamedTuple):
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
        parts = urlsplit(self._options.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

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
        parts = urlsplit(self._options.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceUnavailable(
                self._use.service,
                f"the URL of the {self._use.service} is not an http or https URL",
                remedy=f"Set {self._use.variable('url')} to a URL such as http://127.0.0.1:8000/v1.",
            )
        return parts

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
        """Make the error for an answer that is not 200: who must act, and whether a retry may help."""
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
    """End a connection at the deadline: one that sends a byte now and then never times out."""
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
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
