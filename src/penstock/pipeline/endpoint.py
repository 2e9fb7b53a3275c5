"""Endpoints with the interface of OpenAI: options, uses and errors.

Each use (OCR, embedding, graph) reads the answer itself. Nothing is retried here: the job or task is.
The client is in ``endpoint_client``: its modules of the standard library cost a tenth of a worker's start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from penstock.errors import JobError, ServiceUnavailable, TransientFailure


class EndpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address and model of an endpoint."""

    url: str
    """Base URL, such as ``http://127.0.0.1:8000/v1``, or the full URL of the resource."""
    model: str
    key: str = ""
    """Secret sent as bearer token; empty for none. Never shown or logged."""
    timeout_s: float = 120.0

    def __repr__(self) -> str:
        key = "***" if self.key else ""
        return f"EndpointOptions(url={shown_url(self.url)!r}, model={self.model!r}, key={key!r})"


class EndpointUse(msgspec.Struct, frozen=True):
    """Use of an endpoint: OCR, embedding or graph."""

    service: str
    """Name in messages, such as ``OCR endpoint``."""
    settings: str
    """Beginning of the names of its settings, such as ``ocr_endpoint``."""
    path: str
    """Path of the resource below the base URL."""
    max_answer_bytes: int
    refusal: Callable[[str], JobError]
    """Makes the error for a request that will never succeed, from its message."""

    def variable(self, name: str) -> str:
        """Variable of a setting of this use, such as ``url``."""
        return f"PENSTOCK_{self.settings}_{name}".upper()


class BadAnswer(TransientFailure):
    """A failed request. The same request may succeed later, and others meanwhile."""


class EndpointSilent(TransientFailure):
    """The endpoint took the request and did not answer in time."""


class ServiceGuard(Protocol):
    """Circuit breakers by service. Calls to a failing service are refused."""

    def calling(self, service: str) -> AbstractContextManager[None]:
        """Guard calls to a service; raises ServiceUnavailable while the breaker is open."""

    def delay(self, error: ServiceUnavailable) -> timedelta:
        """Count a failure; return the time until another call makes sense."""


class TokenMeter(Protocol):
    """A service billed by the token."""

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
        """Variable for the limit of tokens."""
        ...

    def take_tokens(self) -> int:
        """Tokens used since the last call of this method."""
        ...


def shown_url(url: str) -> str:
    """A URL without user, password and query. They may be secrets."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return "***"
