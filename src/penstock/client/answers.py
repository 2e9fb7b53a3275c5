"""Answers of a server as values, or as the same errors as raised by the library. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock import clock, errors
from penstock.errors import InvalidAnswer, KeyRequired, NotAllowed, PenstockError, ServerUnreachable
from penstock.named_tuple import NamedTuple

if TYPE_CHECKING:
    from penstock.client.calls import ApiCall

T = TypeVar("T")

TOO_MANY, UNAVAILABLE = 429, 503
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 5.0
"""Waits before a retry where the server does not say how long."""
SHOWN = 80
"""Characters of a foreign answer that an error shows."""


class HttpAnswer(NamedTuple):
    """Status, headers (names in lower case) and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def retry_after_s(self) -> float | None:
        """Seconds to wait, as requested by the server; None without a request."""
        text = self.headers.get("retry-after", "").strip()
        if text.isdecimal():
            return float(text[:9])
        return _until(text) if text else None


def _until(text: str) -> float | None:
    """Seconds until a date of HTTP."""
    try:
        moment = datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return max((moment - clock.now()).total_seconds(), 0.0)


class _Problem(msgspec.Struct, frozen=True):
    """The members of a problem document that become an error."""

    code: str
    detail: str
    remedy: str = ""
    pending: int | None = None
    twin: str | None = None
    matched: int | None = None


def value_of(call: ApiCall[T], answer: HttpAnswer) -> T:
    """The value of a successful answer; otherwise the error is raised."""
    if not 200 <= answer.status < 300:
        raise error_of(answer)
    if call.kind is None:
        return call.pick(answer)
    if not answer.media_type.endswith("json"):
        raise _foreign(answer)
    try:
        return call.pick(msgspec.json.decode(answer.body, type=call.kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidAnswer(f"the answer has not the expected form: {error}") from None


def error_of(answer: HttpAnswer) -> PenstockError:
    """The error reported by a server, of the same class as in the library."""
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _foreign(answer)
    kind = _classes().get(problem.code, PenstockError)
    # Some classes make the message of their arguments: it is here already.
    error = kind.__new__(kind)
    PenstockError.__init__(error, problem.detail, remedy=problem.remedy or None)
    facts: dict[str, Any] = {name: getattr(problem, name) for name in ("pending", "twin", "matched")}
    if kind.code != problem.code:
        facts["code"] = problem.code
    if (wait := answer.retry_after_s) is not None:
        facts["retry_after"] = int(wait)
    error.__dict__.update({name: fact for name, fact in facts.items() if fact is not None})
    return error


def _classes() -> dict[str, type[PenstockError]]:
    found = (getattr(errors, name) for name in errors.__all__)
    return {kind.code: kind for kind in found}


def _foreign(answer: HttpAnswer) -> PenstockError:
    """The error for an answer from something other than Penstock, such as the page of a proxy."""
    status = answer.status
    named = f"status {status} and {answer.media_type[:SHOWN] or 'no type'}"
    if status == 401:
        return KeyRequired(f"a key is needed: the answer has {named}")
    if status == 403:
        return NotAllowed(f"not allowed: the answer has {named}")
    if status in (502, UNAVAILABLE, 504):
        return ServerUnreachable(f"the server behind the proxy cannot be reached: the answer has {named}")
    if 300 <= status < 400:
        # Not followed: the key must not go to another host.
        place = answer.headers.get("location", "")[:SHOWN]
        return InvalidAnswer(f"the URL leads to {place!r}", remedy="Use the URL of the server itself.")
    return InvalidAnswer(f"not the answer of a Penstock server: {named}")


def wait_before_retry(call: ApiCall[T], answer: HttpAnswer, attempt: int, left_s: float) -> float | None:
    """Seconds to wait before the call is sent again; None: the answer counts.

    Only after 429 and 503. A call that changes something is repeated only where the server says that it
    accepted nothing. ``left_s`` is the time left for all retries of the call.
    """
    if answer.status not in (TOO_MANY, UNAVAILABLE):
        return None
    asked = answer.retry_after_s
    refused = asked is not None or answer.media_type == "application/problem+json"
    if not call.repeatable and not refused:
        return None
    wait = asked or min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
    return wait if wait <= left_s else None
