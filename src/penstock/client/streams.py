"""Event streams and waiting for a job, as steps of a client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from penstock import clock
from penstock.client import calls
from penstock.client.answers import HttpAnswer, error_of
from penstock.client.exchange import Caller, Deadline, Drop, Link, Sleep, Steps
from penstock.errors import (
    InvalidAnswer,
    PathOutside,
    PenstockError,
    RateLimited,
    RouteNotFound,
    ServerTimeout,
    ServerUnreachable,
    StoreError,
    UnknownDocument,
)
from penstock.named_tuple import NamedTuple
from penstock.service.options import PathPlace, refuse_unknown

if TYPE_CHECKING:
    from penstock.queue.job import Job
    from penstock.service.job_views import DocumentView
    from penstock.service.options import WhyOptions
    from penstock.service.pages import ShownPage

T = TypeVar("T")

QUIET_S = 45.0
"""Time without a byte after which a stream counts as broken; a server sends a comment every 15 s."""
OPENED_WITHIN_S = 30.0
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
"""Pauses between two looks at a job without a stream."""
LOOK_ANYWAY_S = 10.0
"""Time after which a job is looked at although its stream says nothing."""
MOST_LINE = 16 * 1024 * 1024
ENDED = frozenset(["done", "failed", "cancelled"])


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
        if len(self._rest) > MOST_LINE:
            raise InvalidAnswer(f"a line of the event stream has more than {MOST_LINE:,} bytes")
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
        return (yield from patiently(self._caller, self._next))

    def _next(self) -> Steps[Event | None]:
        try:
            return (yield from self.step(QUIET_S))
        except ServerTimeout:
            yield from self._drop()
            raise

    def step(self, timeout_s: float) -> Steps[Event | None]:
        """The next event, or None at the end. Raises ``ServerTimeout`` after ``timeout_s`` without one."""
        deadline = Deadline(timeout_s)
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
        deadline = Deadline(OPENED_WITHIN_S)
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


def patiently(caller: Caller, steps: Callable[[], Steps[T]]) -> Steps[T]:
    """Carry out read-only steps, with retries for ``retry_for_s`` while the server is unreachable."""
    until, pause = None, FIRST_LOOK_S
    while True:
        try:
            return (yield from steps())
        except (ServerUnreachable, StoreError, RateLimited) as error:
            # From the first failure on: a stream may have been quiet for a while before.
            until = until or clock.elapsed_s() + caller.retry_for_s
            if clock.elapsed_s() + pause > until or error.code == "ERR_SERVER_UNTRUSTED":
                raise
        yield Sleep(pause)
        pause = min(pause * 2, LONGEST_LOOK_S)


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
    streaming, pause = True, FIRST_LOOK_S
    while True:
        view = yield from patiently(caller, lambda: caller.call(calls.job(id_or_prefix)))
        job = view.details.job
        if job.ended or (run is not None and job.run > run):
            return job
        left = LOOK_ANYWAY_S if until is None else until - clock.elapsed_s()
        if left <= 0:
            raise TimeoutError(f"job {job.queue_id} was still {job.status} after {timeout:g} seconds")
        if streaming:
            stream = stream or EventFeed(caller, job.queue_id)
            streaming = yield from _changed(stream, min(left, LOOK_ANYWAY_S), each=run is not None)
        else:
            yield Sleep(min(left, pause))
            pause = min(pause * 1.5, LONGEST_LOOK_S)


def _changed(stream: EventFeed, timeout_s: float, *, each: bool) -> Steps[bool]:
    """Wait for an event after which a job has to be looked at; False: there is no such stream."""
    deadline = Deadline(timeout_s)
    try:
        while True:
            event = yield from stream.step(deadline.left_s)
            if event is None or event.name in ("end", "reset"):
                return event is not None and event.name != "end"
            status = event.data.get("status") if isinstance(event.data, dict) else None
            if each or status in ENDED:
                return True
    except (ServerTimeout, TimeoutError):
        return True
    except ServerUnreachable:
        # Looked at again, which waits for the server.
        return True
    except (RouteNotFound, PenstockError):
        # An older server, or a limit of streams: the job is looked at now and then.
        return False
