"""Steps of a call, without input or output: requests to send, received data, and retries.

A step is a request to the client: connect, send, receive, sleep. Both clients carry out the same steps.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import h11

from penstock import clock
from penstock.client.answers import HttpAnswer, value_of, wait_before_retry
from penstock.client.calls import ApiCall
from penstock.client.uploads import FileBody
from penstock.errors import (
    InvalidAnswer,
    InvalidSetting,
    ServerTimeout,
    ServerUnreachable,
    ServerUntrusted,
)
from penstock.named_tuple import NamedTuple

T = TypeVar("T")

MOST_BYTES = 512 * 1024 * 1024
"""Largest answer that is read."""
PIECE = 64 * 1024
IDLE_S = 20.0
"""Time after which an unused connection is not used again; a server closes it after 30 s."""


class Address(NamedTuple):
    """The address of a server. ``prefix``: the path of the server behind a proxy."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def of(cls, url: str) -> Address:
        """The address in a URL; a user or password in it is refused."""
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()
        except (ValueError, UnicodeError):
            host, port, parts = "", None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host.isprintable() or not host or " " in host:
            raise InvalidSetting(
                "the URL of the server is not one", remedy="Use a URL such as http://127.0.0.1:8765."
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise InvalidSetting(
                "the URL of the server has a user, a query or a fragment",
                remedy="Give the key by itself, as PENSTOCK_API_KEY or the argument key.",
            )
        secure = parts.scheme == "https"
        return cls(secure, host, port or (443 if secure else 80), parts.path.rstrip("/"))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        port = "" if self.port == usual else f":{self.port}"
        return f"{'https' if self.secure else 'http'}://{host}{port}{self.prefix}"


class Link:
    """A connection. The client keeps its socket in ``transport``."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.http = h11.Connection(h11.CLIENT)
        self.reused = False
        self.idle_since = 0.0


class Connect(NamedTuple):
    """Connect, or reuse an idle connection. ``fresh``: only a new one will do."""

    timeout_s: float
    fresh: bool = False


class Send(NamedTuple):
    """Send all of the data."""

    link: Link
    data: bytes
    timeout_s: float


class Receive(NamedTuple):
    """Wait for data, and return some; none at the end of the connection."""

    link: Link
    timeout_s: float


class Release(NamedTuple):
    """Keep the connection for another call."""

    link: Link


class Drop(NamedTuple):
    """Close the connection."""

    link: Link


class Sleep(NamedTuple):
    """Wait for some seconds."""

    seconds: float


Step: TypeAlias = Connect | Send | Receive | Release | Drop | Sleep
Steps: TypeAlias = Generator[Step, Any, T]


INDEX_S, QUERY_S = 120.0, 30.0
"""Seconds for an answer: to a submission, and to any other request."""
RETRY_FOR_S = 60.0


class Patience(NamedTuple):
    """Seconds for an answer to a submission, to another request, and for all retries of a request."""

    index_s: float = INDEX_S
    query_s: float = QUERY_S
    retry_for_s: float = RETRY_FOR_S


class Deadline:
    """The end of the time for one exchange."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = clock.elapsed_s() + seconds

    @property
    def left_s(self) -> float:
        left = self._end - clock.elapsed_s()
        if left <= 0:
            raise TimeoutError
        return left


class Caller:
    """The calls to one server, as steps. The key is sent in a header only, and to this server only."""

    def __init__(self, address: Address, key: str | None, patience: Patience) -> None:
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise InvalidSetting("the key has characters that cannot be sent", remedy="Copy the key again.")
        self.address = address
        self._key = key
        self._patience = patience
        self.retry_for_s = patience.retry_for_s

    def call(self, call: ApiCall[T]) -> Steps[T]:
        """Send a call until answered; refusals are retried for up to ``retry_for_s``."""
        until = clock.elapsed_s() + self.retry_for_s
        attempt = 0
        while True:
            answer = yield from self._answered(call)
            wait = wait_before_retry(call, answer, attempt, until - clock.elapsed_s())
            if wait is None:
                return value_of(call, answer)
            yield Sleep(wait)
            attempt += 1

    def _answered(self, call: ApiCall[T]) -> Steps[HttpAnswer]:
        slow = call.patience == "index"
        deadline = Deadline(self._patience.index_s if slow else self._patience.query_s)
        link: Link = yield from self.connected(deadline)
        try:
            return (yield from self._exchange(call, link, deadline))
        except ServerUnreachable:
            # A server closes idle connections, and the request may cross that on the way.
            if not link.reused or not call.repeatable:
                raise
        yield Drop(link)
        link = yield from self.connected(deadline, fresh=True)
        return (yield from self._exchange(call, link, deadline))

    def connected(self, deadline: Deadline, *, fresh: bool = False) -> Steps[Link]:
        """Connect to the server."""
        try:
            link: Link = yield Connect(deadline.left_s, fresh)
        except OSError as error:
            raise self._translated(error, deadline, "connect") from None
        return link

    def _exchange(self, call: ApiCall[T], link: Link, deadline: Deadline) -> Steps[HttpAnswer]:
        status, headers = yield from self.begun(call, link, deadline)
        parts: list[bytes] = []
        size = 0
        while (data := (yield from self.more(link, deadline))) is not None:
            parts.append(data)
            size += len(data)
            if size > MOST_BYTES:
                raise InvalidAnswer(f"the answer has more than {MOST_BYTES:,} bytes")
        if link.http.our_state is h11.DONE and link.http.their_state is h11.DONE:
            link.http.start_next_cycle()
            yield Release(link)
        return HttpAnswer(status, headers, b"".join(parts))

    def begun(self, call: ApiCall[T], link: Link, deadline: Deadline) -> Steps[tuple[int, dict[str, str]]]:
        """Send a request, and return status and headers of the answer."""
        try:
            for data in self._sent(call, link):
                yield Send(link, data, deadline.left_s)
        except TimeoutError as error:
            raise self._translated(error, deadline, "send") from None
        except OSError:
            # A server may refuse a long body before its end: its answer says why, if there is one.
            link.http.send_failed()
        while True:
            event = yield from self._event(link, deadline)
            if isinstance(event, h11.Response):
                return event.status_code, {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
                }
            if not isinstance(event, h11.InformationalResponse):
                raise ServerUnreachable(f"{self.address.url} broke the connection before its answer")

    def more(self, link: Link, deadline: Deadline) -> Steps[bytes | None]:
        """The next part of the body of an answer; None at its end."""
        event = yield from self._event(link, deadline)
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def _event(self, link: Link, deadline: Deadline) -> Steps[h11.Event]:
        """The next event of the answer."""
        ended = False
        try:
            while (event := link.http.next_event()) is h11.NEED_DATA:
                data: bytes = yield Receive(link, deadline.left_s)
                ended = not data
                link.http.receive_data(data)
        except OSError as error:
            raise self._translated(error, deadline, "receive") from None
        except h11.RemoteProtocolError as error:
            if ended:
                raise ServerUnreachable(f"{self.address.url} broke the connection in its answer") from None
            raise InvalidAnswer(f"{self.address.url} does not speak HTTP: {error}") from None
        if event is h11.PAUSED:
            raise InvalidAnswer(f"{self.address.url} changed the protocol")
        return event  # type: ignore[return-value]  # neither of the two signs is left

    def _sent(self, call: ApiCall[T], link: Link) -> Iterator[bytes]:
        """The bytes of a request."""
        body = call.body
        size = body.size if isinstance(body, FileBody) else len(body or b"")
        address, http = self.address, link.http
        host = address.url.partition("://")[2].removesuffix(address.prefix)
        headers = [("Host", host), ("Accept", call.accept), ("User-Agent", "penstock")]
        if self._key is not None:
            headers.append(("Authorization", f"Bearer {self._key}"))
        if body is not None:
            headers += [("Content-Type", call.content_type), ("Content-Length", str(size))]
        elif call.method != "GET":
            headers.append(("Content-Length", "0"))
        headers += call.headers
        target = f"{address.prefix}{call.target}"
        head = http.send(h11.Request(method=call.method, target=target, headers=headers)) or b""
        if isinstance(body, FileBody):
            yield head
            for piece in body.pieces(PIECE):
                yield http.send(h11.Data(data=piece)) or b""
            yield http.send(h11.EndOfMessage()) or b""
        else:
            data = http.send(h11.Data(data=body)) if body else b""
            yield head + (data or b"") + (http.send(h11.EndOfMessage()) or b"")

    def _translated(
        self, error: OSError, deadline: Deadline, doing: Literal["connect", "send", "receive"]
    ) -> ServerUnreachable:
        """The error of a socket as one of the library."""
        url = self.address.url
        if isinstance(error, TimeoutError):
            return ServerTimeout(f"{url} did not answer within {deadline.seconds:g} s")
        ssl = sys.modules.get("ssl")
        if ssl is not None and isinstance(error, ssl.SSLCertVerificationError):
            return ServerUntrusted(f"the certificate of {url} is refused: {error.verify_message}")
        if ssl is not None and isinstance(error, ssl.SSLError):
            reason = str(error.reason or error).replace("_", " ").lower()
            return ServerUnreachable(
                f"cannot connect to {url}: TLS error, {reason}",
                remedy="Check the URL: the other side may not speak https.",
            )
        cause = error.strerror or str(error) or type(error).__name__
        if doing == "connect":
            return ServerUnreachable(f"cannot connect to {url}: {cause}")
        return ServerUnreachable(f"{url} broke the connection: {cause}")
