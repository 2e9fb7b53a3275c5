"""Throughput of the workers: totals since the first server, rates of the last minutes, and a day of history.

Workers count in their own memory and report the counts with their heartbeat. A server adds up what was added
since its last look, so a worker that ends, or a server that restarts, takes nothing away from the totals.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.values import Phase
from penstock.errors import PenstockError
from penstock.queue.protocol import Queue
from penstock.service.keys import write_private

FILE = "history.json"
LANES = ("jobs", *map(str, Phase))
KEPT = timedelta(hours=24)
MINUTE_S = 60
RATE_WINDOW_S = 300
LEAST_WINDOW_S = 10
"""Rates are not computed from less."""
LOOK_EVERY_S = 5.0
MOST_WORKERS = 1_000

log = logging.getLogger("penstock.http")


class LaneMinute(msgspec.Struct, array_like=True):
    """One lane in one minute: tasks waiting at the end, their estimated minutes of work, done and failed."""

    waiting: int | None = None
    minutes_waiting: float | None = None
    done: int = 0
    failed: int = 0


class StoredHistory(msgspec.Struct):
    """The file: totals, counts of each worker at the last look, and minutes by their number since 1970."""

    looked_at: datetime
    totals: dict[str, int] = {}
    workers: dict[str, dict[str, int]] = {}
    minutes: dict[int, dict[str, LaneMinute]] = {}


class LaneHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One lane by steps, oldest first; None is unknown."""

    lane: str
    waiting: list[int | None]
    minutes_waiting: list[float | None]
    done: list[int | None]
    failed: list[int | None]


class History(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from"}):
    """Lanes by steps of ``step_s`` seconds, from a time on."""

    step_s: int
    since: datetime
    lanes: list[LaneHistory]


class Throughput:
    """Counts of all workers, as one server saw them. One thread looks; others read."""

    def __init__(self, queue: Queue, waiting: Callable[[], dict[str, int]], state_dir: Path) -> None:
        self._queue = queue
        self._waiting = waiting
        self._path = state_dir / FILE
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stored = self._read()
        self._recent: deque[tuple[float, dict[str, int]]] = deque()
        self._written_minute = 0
        self._failed = False

    def start(self) -> None:
        """Look every few seconds, until ``close``."""
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LOOK_EVERY_S)
            self._write()

    def totals(self) -> dict[str, int]:
        """Counts of all workers since the first look."""
        with self._lock:
            return dict(self._stored.totals)

    def rate(self, lane: str) -> tuple[float, int] | None:
        """Ends a second in a lane, and the seconds of the window; None before there is a window."""
        with self._lock:
            if not self._recent:
                return None
            (first_at, first), (last_at, last) = self._recent[0], self._recent[-1]
        if last_at - first_at < LEAST_WINDOW_S:
            return None
        names = (f"{lane}_done", f"{lane}_failed")
        ended = sum(last.get(name, 0) - first.get(name, 0) for name in names)
        return ended / (last_at - first_at), round(last_at - first_at)

    def history(self, window: timedelta, step: timedelta, now: datetime | None = None) -> History:
        """The lanes over a window that ends now, by steps of whole minutes, at most the window."""
        kept = min(window, KEPT)
        minutes = max(int(min(step, kept).total_seconds()) // MINUTE_S, 1)
        last = int((now or clock.now()).timestamp()) // MINUTE_S
        steps = max(int(kept.total_seconds()) // (minutes * MINUTE_S), 1)
        first = last + 1 - steps * minutes
        with self._lock:
            found = {minute: dict(lanes) for minute, lanes in self._stored.minutes.items() if minute >= first}
        starts = range(first, last + 1, minutes)
        return History(
            step_s=minutes * MINUTE_S,
            since=datetime.fromtimestamp(first * MINUTE_S, tz=clock.now().tzinfo),
            lanes=[
                _lane_history(
                    lane, [[found.get(start + place) for place in range(minutes)] for start in starts]
                )
                for lane in LANES
            ],
        )

    def look(self) -> None:
        """Add the work done since the last call to the current minute."""
        workers = {report.worker_id: report for report in self._queue.workers()}
        waiting = self._waiting()
        now = clock.now()
        with self._lock:
            stored, added = self._stored, dict[str, int]()
            counts: dict[str, dict[str, int]] = {}
            for worker_id, report in workers.items():
                counted = report.info.get("counters") or {}
                counts[worker_id] = counted
                # Work done before the first reading belongs to no minute.
                known = stored.workers.get(worker_id, counted if report.started_at < stored.looked_at else {})
                for name, number in counted.items():
                    added[name] = added.get(name, 0) + max(number - known.get(name, 0), 0)
            stored.workers = dict(list(counts.items())[-MOST_WORKERS:])
            stored.looked_at = now
            stored.totals = {
                name: stored.totals.get(name, 0) + added.get(name, 0) for name in {*stored.totals, *added}
            }
            self._recent.append((clock.elapsed_s(), stored.totals))
            while self._recent[-1][0] - self._recent[0][0] > RATE_WINDOW_S:
                self._recent.popleft()
        self._note(int(now.timestamp()) // MINUTE_S, added, waiting)

    def _note(self, minute: int, added: dict[str, int], waiting: dict[str, int]) -> None:
        rates = {lane: self.rate(lane) for lane in LANES}
        with self._lock:
            lanes = self._stored.minutes.setdefault(minute, {lane: LaneMinute() for lane in LANES})
            for lane, noted in lanes.items():
                noted.waiting = waiting.get(lane)
                noted.done += added.get(f"{lane}_done", 0)
                noted.failed += added.get(f"{lane}_failed", 0)
                rate = rates.get(lane)
                noted.minutes_waiting = 0.0 if noted.waiting == 0 else None
                if noted.waiting and rate is not None and rate[0] > 0:
                    noted.minutes_waiting = round(noted.waiting / rate[0] / 60, 2)
            oldest = minute - int(KEPT.total_seconds()) // MINUTE_S
            self._stored.minutes = {one: found for one, found in self._stored.minutes.items() if one > oldest}
            write = minute != self._written_minute
            self._written_minute = minute
        if write:
            self._write()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
                self._failed = False
            except PenstockError as error:
                if not self._failed:
                    log.warning("the history of the queue has a gap: %s", error)
                self._failed = True
            self._stop.wait(LOOK_EVERY_S)

    def _write(self) -> None:
        with self._lock:
            text = msgspec.json.encode(self._stored)
        try:
            write_private(self._path, text)
        except PenstockError as error:
            log.warning("the history of the queue is not kept: %s", error)

    def _read(self) -> StoredHistory:
        """The stored history; empty if unreadable: nothing depends on the history."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=StoredHistory)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, the history begins again: %s", self._path, error)
        return StoredHistory(looked_at=clock.now())


def _lane_history(lane: str, steps: list[list[dict[str, LaneMinute] | None]]) -> LaneHistory:
    found = [[one[lane] for one in minutes if one is not None and lane in one] for minutes in steps]
    return LaneHistory(
        lane=lane,
        waiting=[each[-1].waiting if each else None for each in found],
        minutes_waiting=[each[-1].minutes_waiting if each else None for each in found],
        done=[sum(one.done for one in each) if each else None for each in found],
        failed=[sum(one.failed for one in each) if each else None for each in found],
    )
