"""Errors of the driver of a graph store, as errors that say in one line what is wrong and who must act."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from penstock.errors import ServiceUnavailable
from penstock.graph_stores.address import SETTING, GraphStoreUrl
from penstock.graph_stores.protocol import SERVICE

MAX_CAUSE = 300


def store_failure(url: GraphStoreUrl, error: BaseException) -> ServiceUnavailable:
    """Translate an error of the driver."""
    from neo4j import exceptions

    shown, causes = url.masked, list(_causes(error))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        reason = getattr(tls, "verify_message", "") or str(tls.reason or tls).replace("_", " ").lower()
        return _unavailable(
            f"cannot connect to the graph store {shown}: TLS error: {reason}",
            f"Check the certificate and {SETTING}: neo4j+ssc:// trusts any, neo4j:// is without TLS.",
        )
    if isinstance(error, exceptions.AuthError):
        return _unavailable(
            f"the graph store {shown} refuses user and password", f"Correct them in {SETTING}."
        )
    text = url.mask_in(" ".join(str(causes[-1]).split()))[:MAX_CAUSE] or type(error).__name__
    if isinstance(error, exceptions.Neo4jError):
        return _unavailable(f"the graph store {shown} refused: {text}", _remedy(error.code or ""))
    return _unavailable(f"cannot use the graph store {shown}: {text}")


def _remedy(code: str) -> str | None:
    if "DatabaseNotFound" in code:
        return f"Create the database, or name another one at the end of {SETTING}."
    return f"Give the user of {SETTING} the right to write." if "Security" in code else None


def _unavailable(message: str, remedy: str | None = None) -> ServiceUnavailable:
    return ServiceUnavailable(SERVICE, message, remedy=remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        inner = following.exceptions[0] if isinstance(following, BaseExceptionGroup) else None
        following = inner or following.__cause__ or following.__context__
