"""Errors of clients of vector stores, as errors that say in one line what is wrong and who must act."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from penstock.errors import ServiceUnavailable
from penstock.vector_stores.address import SETTING, VectorStoreUrl
from penstock.vector_stores.protocol import SERVICE

MAX_CAUSE = 300
_TIMEOUTS = ("Timeout",)


def store_failure(
    url: VectorStoreUrl, error: BaseException, *, status: int | None = None
) -> ServiceUnavailable:
    """Translate an error of a client. ``status``: that of an HTTP response, if there was one."""
    if isinstance(error, ServiceUnavailable):
        return error
    shown, causes = url.masked, list(_causes(error))
    if status is None:
        answers = (getattr(getattr(cause, "response", None), "status_code", None) for cause in causes)
        status = next((code for code in answers if isinstance(code, int)), None)
    if status in (401, 403):
        return unavailable(
            f"the vector store {shown} refuses the key ({status})", f"Correct the key in {SETTING}."
        )
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls_failure(shown, tls)
    if any(word in type(cause).__name__ for cause in causes for word in _TIMEOUTS):
        return unavailable(f"the vector store {shown} did not answer in time")
    text = url.mask_in(" ".join(str(causes[-1]).split()))[:MAX_CAUSE] or type(error).__name__
    if status is not None:
        return unavailable(f"the vector store {shown} answered {status}: {text}")
    return unavailable(f"cannot use the vector store {shown}: {text}")


def other_dimension(url: VectorStoreUrl, collection: str, there: object, wanted: int) -> ServiceUnavailable:
    """Make the error for a collection that exists for vectors of another length."""
    return unavailable(
        f"the collection {collection} in {url.masked} holds vectors of {there} numbers, not {wanted}",
        f"Delete that collection, or set {SETTING} to another store.",
    )


def unavailable(message: str, remedy: str | None = None) -> ServiceUnavailable:
    """Make the error of a store that cannot be used now: its tasks wait and spend no retry."""
    return ServiceUnavailable(SERVICE, message, remedy=remedy)


def _tls_failure(shown: str, error: ssl.SSLError) -> ServiceUnavailable:
    reason = getattr(error, "verify_message", "") or str(error.reason or error).replace("_", " ").lower()
    remedy = "Check the certificate; an authority of your own is trusted by SSL_CERT_FILE."
    if not isinstance(error, ssl.SSLCertVerificationError):
        remedy = f"Check {SETTING}: the other side may not speak TLS."
    return unavailable(f"cannot connect to the vector store {shown}: TLS error: {reason}", remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it; clients keep the first one in several places."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        source = getattr(following, "source", None)
        following = (
            source if isinstance(source, BaseException) else following.__cause__ or following.__context__
        )
