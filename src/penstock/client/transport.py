"""The calls of a client as steps over connections, and their answers as values or errors.

A step is a request to the client: connect, send, receive, sleep. Both clients carry out the same steps, each
with its own input and output.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import h11
import msgspec

from penstock import clock, errors
from penstock.client import calls
from penstock.client.calls import ApiCall, FileBody
from penstock.errors import (
    InvalidAnswer,
    InvalidSetting,
    KeyRequired,
    NotAllowed,
    PathOutside,
    PenstockError,
    RateLimited,
    RouteNotFound,
    ServerTimeout,
    ServerUnreachable,
    ServerUntrusted,
    StoreError,
    UnknownDocument,
)
from penstock.service.requests import PathPlace, refuse_unknown

if TYPE_CHECKING:
    import ssl

    from penstock.queue.job import Job
    from penstock.service.job_views import DocumentView
    from penstock.service.pages import ShownPage
    from penstock.service.requests import WhyOptions


T = TypeVar("T")

_TOO_MANY, _UNAVAILABLE = 429, 503
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0
"""Waits before a retry where the server does not say how long."""
_SHOWN = 80
"""Characters of a foreign answer that an error shows."""


class HttpAnswer(msgspec.Struct, frozen=True):
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


def _value_of(call: ApiCall[T], answer: HttpAnswer) -> T:
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
    named = f"status {status} and {answer.media_type[:_SHOWN] or 'no type'}"
    if status == 401:
        return KeyRequired(f"a key is needed: the answer has {named}")
    if status == 403:
        return NotAllowed(f"not allowed: the answer has {named}")
    if status in (502, _UNAVAILABLE, 504):
        return ServerUnreachable(f"the server behind the proxy cannot be reached: the answer has {named}")
    if 300 <= status < 400:
        # Not followed: the key must not go to another host.
        place = answer.headers.get("location", "")[:_SHOWN]
        return InvalidAnswer(f"the URL leads to {place!r}", remedy="Use the URL of the server itself.")
    return InvalidAnswer(f"not the answer of a Penstock server: {named}")


def wait_before_retry(call: ApiCall[T], answer: HttpAnswer, attempt: int, left_s: float) -> float | None:
    """Seconds to wait before the call is sent again; None: the answer counts.

    Only after 429 and 503. A call that changes something is repeated only where the server says that it
    accepted nothing. ``left_s`` is the time left for all retries of the call.
    """
    if answer.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    asked = answer.retry_after_s
    refused = asked is not None or answer.media_type == "application/problem+json"
    if not call.repeatable and not refused:
        return None
    wait = asked or min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S)
    return wait if wait <= left_s else None


_MOST_BYTES = 512 * 1024 * 1024
"""Largest answer that is read."""
_PIECE = 64 * 1024
IDLE_S = 20.0
"""Time after which an unused connection is not used again; a server closes it after 30 s."""


class Address(msgspec.Struct, frozen=True):
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


class Connect(msgspec.Struct, frozen=True):
    """Connect, or reuse an idle connection. ``fresh``: only a new one will do."""

    timeout_s: float
    fresh: bool = False


class Send(msgspec.Struct, frozen=True):
    """Send all of the data."""

    link: Link
    data: bytes
    timeout_s: float


class Receive(msgspec.Struct, frozen=True):
    """Wait for data, and return some; none at the end of the connection."""

    link: Link
    timeout_s: float


class Release(msgspec.Struct, frozen=True):
    """Keep the connection for another call."""

    link: Link


class Drop(msgspec.Struct, frozen=True):
    """Close the connection."""

    link: Link


class Sleep(msgspec.Struct, frozen=True):
    """Wait for some seconds."""

    seconds: float


Step: TypeAlias = Connect | Send | Receive | Release | Drop | Sleep
Steps: TypeAlias = Generator[Step, Any, T]


INDEX_S, QUERY_S = 120.0, 30.0
"""Seconds for an answer: to a submission, and to any other request."""
RETRY_FOR_S = 60.0


class Patience(msgspec.Struct, frozen=True):
    """Seconds for an answer to a submission, to another request, and for all retries of a request."""

    index_s: float = INDEX_S
    query_s: float = QUERY_S
    retry_for_s: float = RETRY_FOR_S


class _Deadline:
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
                return _value_of(call, answer)
            yield Sleep(wait)
            attempt += 1

    def _answered(self, call: ApiCall[T]) -> Steps[HttpAnswer]:
        slow = call.patience == "index"
        deadline = _Deadline(self._patience.index_s if slow else self._patience.query_s)
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

    def connected(self, deadline: _Deadline, *, fresh: bool = False) -> Steps[Link]:
        """Connect to the server."""
        try:
            link: Link = yield Connect(deadline.left_s, fresh)
        except OSError as error:
            raise self._translated(error, deadline, "connect") from None
        return link

    def _exchange(self, call: ApiCall[T], link: Link, deadline: _Deadline) -> Steps[HttpAnswer]:
        status, headers = yield from self.begun(call, link, deadline)
        parts: list[bytes] = []
        size = 0
        while (data := (yield from self.more(link, deadline))) is not None:
            parts.append(data)
            size += len(data)
            if size > _MOST_BYTES:
                raise InvalidAnswer(f"the answer has more than {_MOST_BYTES:,} bytes")
        if link.http.our_state is h11.DONE and link.http.their_state is h11.DONE:
            link.http.start_next_cycle()
            yield Release(link)
        return HttpAnswer(status, headers, b"".join(parts))

    def begun(self, call: ApiCall[T], link: Link, deadline: _Deadline) -> Steps[tuple[int, dict[str, str]]]:
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

    def more(self, link: Link, deadline: _Deadline) -> Steps[bytes | None]:
        """The next part of the body of an answer; None at its end."""
        event = yield from self._event(link, deadline)
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def _event(self, link: Link, deadline: _Deadline) -> Steps[h11.Event]:
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
            for piece in body.pieces(_PIECE):
                yield http.send(h11.Data(data=piece)) or b""
            yield http.send(h11.EndOfMessage()) or b""
        else:
            data = http.send(h11.Data(data=body)) if body else b""
            yield head + (data or b"") + (http.send(h11.EndOfMessage()) or b"")

    def _translated(
        self, error: OSError, deadline: _Deadline, doing: Literal["connect", "send", "receive"]
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


RECEIVED = 64 * 1024
"""Bytes received at once."""


class Connections:
    """Connections to one server, kept for the next call. All threads of a process may share them."""

    def __init__(self, address: Address, certificates: str | os.PathLike[str] | None) -> None:
        self._address = address
        self._tls = tls_context(address, certificates)
        self._lock = threading.Lock()
        self._idle: list[Link] = []
        self._process = os.getpid()

    def take(self, timeout_s: float, *, fresh: bool) -> Link:
        """An idle connection, or a new one."""
        while not fresh and (link := self._popped()) is not None:
            if clock.elapsed_s() - link.idle_since < IDLE_S and not _closed(link.transport):
                link.reused = True
                return link
            link.transport.close()
        return Link(self._connected(timeout_s))

    def _popped(self) -> Link | None:
        with self._lock:
            if self._process != os.getpid():
                # Forked: the parent uses the connections.
                self._idle, self._process = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _connected(self, timeout_s: float) -> socket.socket:
        made = socket.create_connection((self._address.host, self._address.port), timeout_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return self._tls.wrap_socket(made, server_hostname=self._address.host)
        except BaseException:
            made.close()
            raise
        return made

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next call."""
        link.idle_since = clock.elapsed_s()
        with self._lock:
            self._idle.append(link)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.transport.close()


def tls_context(address: Address, certificates: str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    """The context for checking the server's certificate; None without TLS."""
    if not address.secure:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise InvalidSetting(f"the certificates {os.fspath(certificates or '')}: {error}") from None


def _closed(connection: socket.socket) -> bool:
    """Tell whether the server has closed an idle connection; it never speaks first."""
    poll = select.poll()  # not select.select: that refuses descriptors above 1,023
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


_QUIET_S = 45.0
"""Time without a byte after which a stream counts as broken; a server sends a comment every 15 s."""
_OPENED_WITHIN_S = 30.0
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 1.0
"""Pauses between two looks at a job without a stream."""
_LOOK_ANYWAY_S = 10.0
"""Time after which a job is looked at although its stream says nothing."""
_MOST_LINE = 16 * 1024 * 1024
_ENDED = frozenset(["done", "failed", "cancelled"])


class Event(NamedTuple):
    """An event of a server: its name, such as ``job`` or ``end``, its data, and its id."""

    name: str
    data: Any
    id: str | None


class EventParser:
    """Reads the lines of an event stream (``text/event-stream``), which may come in any pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self.last_id: str | None = None

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end in this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            raise InvalidAnswer(f"a line of the event stream has more than {_MOST_LINE:,} bytes")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> Event | None:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        if not text:
            return self._dispatched()
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatched(self) -> Event | None:
        name, data = self._name or "message", "\n".join(self._data)
        self._name, self._data = "", []
        if not data:
            return None
        try:
            return Event(name, msgspec.json.decode(data), self.last_id)
        except msgspec.DecodeError:
            raise InvalidAnswer(f"the data of the event {name[:80]!r} are not JSON") from None


class EventFeed:
    """The events of one job, or of all. After a break, the feed resumes after the last event."""

    def __init__(self, caller: Caller, job_id: str | None = None, last_id: str | None = None) -> None:
        self._caller = caller
        self._job_id = job_id
        self._last_id = last_id
        self._link: Link | None = None
        self._parser = EventParser()
        self._ready: deque[Event] = deque()
        self._ended = False

    def next(self) -> Steps[Event | None]:
        """The next event; None after the last one of a job. A break is mended for ``retry_for_s``."""
        return (yield from _patiently(self._caller, self._next))

    def _next(self) -> Steps[Event | None]:
        try:
            return (yield from self.step(_QUIET_S))
        except ServerTimeout:
            yield from self._drop()
            raise

    def step(self, timeout_s: float) -> Steps[Event | None]:
        """The next event, or None at the end. Raises ``ServerTimeout`` after ``timeout_s`` without one."""
        deadline = _Deadline(timeout_s)
        while not self._ready:
            if self._ended:
                return None
            if self._link is None:
                yield from self._open()
            assert self._link is not None
            try:
                piece = yield from self._caller.more(self._link, deadline)
            except ServerTimeout:
                raise
            except ServerUnreachable:
                yield from self._drop()
                raise
            if piece is None:
                yield from self._drop()
                raise ServerUnreachable(f"{self._caller.address.url} ended the event stream")
            self._ready.extend(self._parser.feed(piece))
        event = self._ready.popleft()
        self._last_id = event.id or self._last_id
        self._ended = event.name == "end"
        return event

    def _drop(self) -> Steps[None]:
        """Close the connection; the next step opens another one."""
        if self._link is not None:
            yield Drop(self._link)
        self._link = None

    def _open(self) -> Steps[None]:
        deadline = _Deadline(_OPENED_WITHIN_S)
        call = calls.events(self._job_id, self._last_id)
        link = yield from self._caller.connected(deadline, fresh=True)
        status, headers = yield from self._caller.begun(call, link, deadline)
        if status != 200:
            parts = []
            while (data := (yield from self._caller.more(link, deadline))) is not None:
                parts.append(data)
            raise error_of(HttpAnswer(status, headers, b"".join(parts)))
        if not headers.get("content-type", "").startswith(calls.EVENTS):
            raise InvalidAnswer("the answer is not a stream of events")
        self._link, self._parser = link, EventParser()


def _patiently(caller: Caller, steps: Callable[[], Steps[T]]) -> Steps[T]:
    """Carry out read-only steps, with retries for ``retry_for_s`` while the server is unreachable."""
    until, pause = None, _FIRST_LOOK_S
    while True:
        try:
            return (yield from steps())
        except (ServerUnreachable, StoreError, RateLimited) as error:
            # From the first failure on: a stream may have been quiet for a while before.
            until = until or clock.elapsed_s() + caller.retry_for_s
            if clock.elapsed_s() + pause > until or error.code == "ERR_SERVER_UNTRUSTED":
                raise
        yield Sleep(pause)
        pause = min(pause * 2, _LONGEST_LOOK_S)


def document(caller: Caller, path_or_id: str, where: PathPlace) -> Steps[DocumentView]:
    """Find a document by its id, or by its path in one collection."""
    return (yield from _found(caller, path_or_id, where, calls.document))


def page(caller: Caller, path_or_id: str, number: int, where: PathPlace) -> Steps[ShownPage]:
    """Read a page of a document given by its id, or by its path in one collection."""
    return (yield from _found(caller, path_or_id, where, lambda source_id: calls.page(source_id, number)))


def _found(
    caller: Caller, path_or_id: str, where: PathPlace, call: Callable[[str], calls.ApiCall[T]]
) -> Steps[T]:
    """Call with the id of a document. A path, which has a slash, is looked up first."""
    refuse_unknown("document", where, PathPlace)
    if "/" not in path_or_id:
        return (yield from caller.call(call(path_or_id)))
    try:
        reason = yield from caller.call(calls.why(path_or_id, cast("WhyOptions", where)))
    except PathOutside:
        reason = None
    if reason is None or reason.source is None:
        raise UnknownDocument(f"no document {path_or_id[:200]!r}")
    return (yield from caller.call(call(reason.source.source_id)))


def wait(caller: Caller, id_or_prefix: str, run: int | None, timeout: float | None) -> Steps[Job]:
    """Wait until the given run of a job has ended, or without ``run`` the whole job."""
    until = None if timeout is None else clock.elapsed_s() + timeout
    stream: EventFeed | None = None
    streaming, pause = True, _FIRST_LOOK_S
    while True:
        view = yield from _patiently(caller, lambda: caller.call(calls.job(id_or_prefix)))
        job = view.details.job
        if job.ended or (run is not None and job.run > run):
            return job
        left = _LOOK_ANYWAY_S if until is None else until - clock.elapsed_s()
        if left <= 0:
            raise TimeoutError(f"job {job.queue_id} was still {job.status} after {timeout:g} seconds")
        if streaming:
            stream = stream or EventFeed(caller, job.queue_id)
            streaming = yield from _changed(stream, min(left, _LOOK_ANYWAY_S), each=run is not None)
        else:
            yield Sleep(min(left, pause))
            pause = min(pause * 1.5, _LONGEST_LOOK_S)


def _changed(stream: EventFeed, timeout_s: float, *, each: bool) -> Steps[bool]:
    """Wait for an event after which a job has to be looked at; False: there is no such stream."""
    deadline = _Deadline(timeout_s)
    try:
        while True:
            event = yield from stream.step(deadline.left_s)
            if event is None or event.name in ("end", "reset"):
                return event is not None and event.name != "end"
            status = event.data.get("status") if isinstance(event.data, dict) else None
            if each or status in _ENDED:
                return True
    except (ServerTimeout, TimeoutError):
        return True
    except ServerUnreachable:
        # Looked at again, which waits for the server.
        return True
    except (RouteNotFound, PenstockError):
        # An older server, or a limit of streams: the job is looked at now and then.
        return False
