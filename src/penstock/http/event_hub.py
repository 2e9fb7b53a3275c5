"""Streams of events: one thread looks for changes and feeds all listeners of the server.

The event loop owns listeners and ids; the thread only reads the stores. Each look is encoded once for all
listeners that may see the same tenants, so that a thousand listeners cost a thousand writes and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from penstock import clock
from penstock.errors import PenstockError, ServerStopping, TooManyListeners
from penstock.service.job_views import JobRecord
from penstock.service.live_changes import Change, Changes, LiveChanges
from penstock.service.server import StatusReader
from penstock.service.shares import NOBODY, Shares, Taker

_View: TypeAlias = tuple[str | None, ...]
"""Tenants whose events a listener sees; (None,) is all."""
_LOOK_EVERY_S, _LONGEST_PERIOD_S, _SOONEST_S = 0.5, 5.0, 0.1
"""Time between two looks; the last one for new listeners, of which many may come at the same time."""
_SHARE, _WRITE_S = 25, 40e-6
"""A look and its writes, of about 40 microseconds each, use at most a 25th of the time."""
_KEEP_ALIVE_S = 15.0
_KEEP_ALIVE = b": keep-alive\n\n"
_CHECK_KEYS_S = 5.0
_LINGER_S = 30.0
"""Time without listeners after which the thread stops to look: a page that reloads continues."""
_RESET_EVERY_S = 5.0
_KEPT_EVENTS = 2_000
BUFFER_LIMIT = 256 * 1024
"""Bytes that a listener may leave unread; then it is dropped."""
_MOST_LISTENERS = 1_500
LISTENERS_PER_KEY = 300
"""A fifth: a team that shares one key has a stream for each open page, and its programs one for each wait."""
_LISTENERS_PER_PEER = 750
"""Half, for people who share one address and are not behind a known proxy."""

log = logging.getLogger("penstock.http")
_encoder = msgspec.json.Encoder()


class Failures(msgspec.Struct, frozen=True):
    """The number of failed jobs."""

    total: int


class Listener:
    """One open stream. ``valid`` tells whether the key is still valid, ``taker`` whom it is counted for."""

    def __init__(
        self,
        view: _View,
        valid: Callable[[], bool],
        *,
        last_id: int | None = None,
        job_id: str | None = None,
        taker: Taker = NOBODY,
    ) -> None:
        self.taker = taker
        self.view = view
        self.valid = valid
        self.last_id = last_id
        self.job_id = job_id
        self.fresh = True
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._ended = False

    def push(self, part: bytes) -> None:
        """Add to the output of the stream; a listener that stops reading is dropped."""
        if self._size + len(part) > BUFFER_LIMIT:
            self._parts.clear()
            self.end()
            return
        self._parts.append(part)
        self._size += len(part)
        self._filled.set()

    def end(self) -> None:
        """End the stream after the pending output."""
        self._ended = True
        self._filled.set()

    async def next(self) -> bytes | None:
        """Everything to be sent now; None at the end."""
        if not self._parts and not self._ended:
            self._filled.clear()
            await self._filled.wait()
        if not self._parts:
            return None
        parts = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return parts


class _Look(msgspec.Struct, frozen=True):
    """One read for the event loop: encoded events, and the figures of each view."""

    events: list[tuple[str, str, bytes]]
    """Kind, tenant and data."""
    running: list[tuple[str, str, bytes]]
    figures: dict[_View, dict[str, tuple[str, bytes]]]
    """By view and key: kind and data of lanes and failures."""
    watched: dict[str, JobRecord | None]
    complete: bool


class EventHub:
    """The listeners of one server, and the thread that feeds them."""

    def __init__(self, changes: LiveChanges, status: StatusReader, wait: Callable[[float], object]) -> None:
        self._changes = changes
        self._status = status
        self._wait_for_jobs = wait
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[Listener] = set()
        self._shares = Shares(
            TooManyListeners,
            total=_MOST_LISTENERS,
            per_key=LISTENERS_PER_KEY,
            per_peer=_LISTENERS_PER_PEER,
        )
        self._kept: deque[tuple[int, str, bytes]] = deque(maxlen=_KEPT_EVENTS)
        """Number, tenant and text of the last events of jobs and documents."""
        self._number = self._floor = _new_number(0)
        """The number of the last event, and the one before the oldest kept event."""
        self._figures: dict[_View, dict[str, tuple[str, bytes]]] = {}
        self._quiet_since: dict[_View | str, float] = {}
        self._reset_at = 0.0
        self._failed = False

    # In the event loop.

    def open(self, listener: Listener) -> None:
        """Add a listener; an immediate read sends the current state."""
        if self._stopped:
            raise ServerStopping("the server is stopping")
        self._shares.take(listener.taker)
        self._loop = asyncio.get_running_loop()
        with self._lock:
            self._listeners.add(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self, listener: Listener) -> None:
        with self._lock:
            known = listener in self._listeners
            self._listeners.discard(listener)
        if known:
            self._shares.give_back(listener.taker)

    def stop(self) -> None:
        """End all streams, from any thread: open ones would keep the server from stopping."""
        self._stopped = True
        self._wake.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_all)
        if self._thread is not None:
            self._thread.join(_LONGEST_PERIOD_S)

    def _end_all(self) -> None:
        for listener in tuple(self._listeners):
            listener.end()

    def _deliver(self, look: _Look) -> None:
        now = clock.elapsed_s()
        numbered = [self._keep(*event) for event in look.events]
        reset = b""
        if not look.complete and now >= self._reset_at:
            self._reset_at = now + _RESET_EVERY_S
            reset = self._text("reset", b"{}")
        parts: dict[_View, bytes] = {}
        for view, figures in look.figures.items():
            known = self._figures.get(view, {})
            changed = [self._text(*figure) for key, figure in figures.items() if known.get(key) != figure]
            parts[view] = b"".join([*_seen_by(view, numbered), *changed, reset])
        self._figures = look.figures
        states: dict[_View, bytes] = {}
        for listener in tuple(self._listeners):
            if listener.job_id is not None:
                self._push_job(listener, look.watched, now)
            elif listener.fresh:
                self._push_state(listener, look, states)
            elif listener.view in parts:
                self._push(listener, parts[listener.view], now)
        live: set[_View | str] = {one.job_id or one.view for one in self._listeners}
        self._quiet_since = {key: at for key, at in self._quiet_since.items() if key in live}

    def _push(self, listener: Listener, part: bytes, now: float) -> None:
        """Send a part, or a comment after a while without any."""
        key: _View | str = listener.job_id or listener.view
        if part:
            self._quiet_since[key] = now
            listener.push(part)
        elif now - self._quiet_since.setdefault(key, now) >= _KEEP_ALIVE_S:
            # Written to all listeners of the view in this look; the next look starts to count again.
            assert self._loop is not None
            self._loop.call_soon(self._quiet_since.__setitem__, key, now)
            listener.push(_KEEP_ALIVE)

    def _push_state(self, listener: Listener, look: _Look, states: dict[_View, bytes]) -> None:
        """Begin a stream: events after the listener's last one, or a reset; then the current state."""
        view = listener.view
        if view not in look.figures:
            return
        listener.fresh = False
        if view not in states:
            shown = [event for event in look.running if None in view or event[1] in view]
            running = [self._text(kind, data) for kind, _, data in shown]
            figures = [self._text(*figure) for figure in look.figures[view].values()]
            states[view] = b"".join([*running, *figures])
        last = listener.last_id
        if last is not None and self._floor <= last <= self._number:
            missed = [event for event in self._kept if event[0] > last]
            figures = [self._text(*figure) for figure in look.figures[view].values()]
            listener.push(b"".join([*_seen_by(view, missed), *figures]))
            return
        reset = self._text("reset", b"{}") if last is not None else b""
        listener.push(reset + states[view])

    def _push_job(self, listener: Listener, watched: dict[str, JobRecord | None], now: float) -> None:
        job_id = listener.job_id
        assert job_id is not None
        if job_id not in watched:
            self._push(listener, b"", now)
            return
        job = watched[job_id]
        ended = job is None or job.status in ("done", "failed", "cancelled")
        if job is not None and not (ended and listener.fresh):
            self._push(listener, self._text("job", _encoder.encode(job)), now)
        listener.fresh = False
        if ended:
            listener.push(self._text("end", b"{}" if job is None else _encoder.encode(job)))
            listener.end()

    def _keep(self, kind: str, tenant_id: str, data: bytes) -> tuple[int, str, bytes]:
        if len(self._kept) == _KEPT_EVENTS:
            self._floor = self._kept[0][0]
        text = self._text(kind, data)
        event = (self._number, tenant_id, text)
        self._kept.append(event)
        return event

    def _text(self, kind: str, data: bytes) -> bytes:
        self._number = _new_number(self._number)
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, kind.encode(), data)

    # In the thread.

    def _run(self) -> None:
        looked_at, used_at, checked_at = 0.0, clock.elapsed_s(), clock.elapsed_s()
        period = _LOOK_EVERY_S
        while not self._stopped:
            now = clock.elapsed_s()
            with self._lock:
                listeners = tuple(self._listeners)
                if listeners:
                    used_at = now
                elif now - used_at > _LINGER_S:
                    # No listeners: events from now on are not kept.
                    self._thread = None
                    self._kept.clear()
                    self._floor = self._number
                    return
            if now - checked_at > _CHECK_KEYS_S:
                checked_at = now
                self._end_invalid(listeners)
            fresh = any(one.fresh for one in listeners)
            if now - looked_at >= (_SOONEST_S if fresh else period):
                self._look(listeners)
                looked_at = clock.elapsed_s()
                cost = looked_at - now + _WRITE_S * len(listeners)
                period = min(max(_LOOK_EVERY_S, _SHARE * cost), _LONGEST_PERIOD_S)
            try:
                self._pause(period)
            except PenstockError as error:
                # Without the store no hint of a job comes; the thread looks at its usual times.
                self._report(error)
                self._wake.wait(period)
                self._wake.clear()

    def _pause(self, period: float) -> None:
        """Wait for the next look: for a new job while nothing runs, else for the period."""
        if any(one.fresh for one in tuple(self._listeners)):
            threading.Event().wait(_SOONEST_S)
        elif self._changes.idle and not self._stopped:
            self._wait_for_jobs(_LOOK_EVERY_S / 2)
        else:
            self._wake.wait(period)
            self._wake.clear()

    def _look(self, listeners: tuple[Listener, ...]) -> None:
        try:
            watched = {one.job_id for one in listeners if one.job_id is not None}
            found = self._changes.read(watched)
            figures = {one.view: self._read_figures(one.view) for one in listeners if one.job_id is None}
            look = _Look(
                _encoded(found.changes),
                _encoded(self._changes.running()) if any(one.fresh for one in listeners) else [],
                figures,
                self._with_fresh(found, listeners),
                found.complete,
            )
            self._failed = False
        except PenstockError as error:
            self._report(error)
            return
        assert self._loop is not None
        if not self._stopped:
            self._loop.call_soon_threadsafe(self._deliver, look)

    def _report(self, error: PenstockError) -> None:
        """Log an outage once, until a look succeeds."""
        if not self._failed:
            log.warning("streams of events wait for the store: %s. %s", error, error.remedy)
        self._failed = True

    def _with_fresh(self, found: Changes, listeners: tuple[Listener, ...]) -> dict[str, JobRecord | None]:
        """The changed watched jobs, and the jobs of new listeners."""
        fresh = {one.job_id for one in listeners if one.fresh and one.job_id is not None}
        unread = fresh - found.watched.keys()
        return found.watched | {job_id: self._changes.job(job_id) for job_id in unread}

    def _read_figures(self, view: _View) -> dict[str, tuple[str, bytes]]:
        figures = {f"lane {lane.lane}": ("lane", _encoder.encode(lane)) for lane in self._status.lanes(view)}
        return figures | {"failures": ("failures", _encoder.encode(Failures(self._status.failed(view))))}

    def _end_invalid(self, listeners: tuple[Listener, ...]) -> None:
        """End the streams of revoked keys and of ended sessions."""
        for listener in listeners:
            if not listener.valid() and self._loop is not None:
                self._loop.call_soon_threadsafe(listener.end)


def _encoded(changes: Iterable[Change]) -> list[tuple[str, str, bytes]]:
    return [(change.kind, change.tenant_id, _encoder.encode(change.data)) for change in changes]


def _seen_by(view: _View, events: Iterable[tuple[int, str, bytes]]) -> list[bytes]:
    return [text for _, tenant_id, text in events if None in view or tenant_id in view]


def _new_number(last: int) -> int:
    """A number above the last one, and above those before a restart of the server."""
    return max(last + 1, int(clock.now().timestamp() * 1_000))
