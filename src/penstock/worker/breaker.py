"""Circuit breakers: while a service is down, jobs wait for the service instead of spending retries.

closed: calls go through. open: calls are refused until the probe is due. half-open: one call goes through and
decides. Each process has its own breakers and learns of an outage from at most three of its own jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from penstock.errors import ServiceUnavailable

OPENS_AFTER = 3
FIRST_PROBE_S = 10.0
LONGEST_PROBE_S = 300.0
STUMBLE_S = 1.0
"""Delay of a job after a failure that did not open the breaker yet."""

State: TypeAlias = Literal["closed", "open", "half-open"]


class BreakerOpen(ServiceUnavailable):
    """The breaker is open: the service was not called."""


class Breaker(msgspec.Struct, frozen=True):
    """State of one service. The caller passes the time, in seconds of a monotonic clock."""

    failures: int = 0
    probe_at: float = 0.0
    pause_s: float = 0.0
    probing_until: float = 0.0
    """Until then a probe is running, or was lost together with its job."""

    def state(self, now: float) -> State:
        if self.failures < OPENS_AFTER:
            return "closed"
        return "open" if now < self.probe_at else "half-open"

    def allows(self, now: float) -> bool:
        state = self.state(now)
        return state == "closed" or (state == "half-open" and now >= self.probing_until)

    def entered(self, now: float) -> Breaker:
        """The breaker after an allowed call began."""
        if self.state(now) == "closed":
            return self
        return msgspec.structs.replace(self, probing_until=now + self.pause_s)

    def failed(self, now: float) -> Breaker:
        """The breaker after a failed call. Calls begun before the breaker opened count as the same outage."""
        failures = self.failures + 1
        if self.state(now) == "open":
            return self
        if failures < OPENS_AFTER:
            return msgspec.structs.replace(self, failures=failures)
        pause = min(self.pause_s * 2, LONGEST_PROBE_S) if self.pause_s else FIRST_PROBE_S
        return Breaker(failures=failures, probe_at=now + pause, pause_s=pause)

    def undecided(self) -> Breaker:
        """The breaker after a probe failed for another reason; the next call is a probe again."""
        return msgspec.structs.replace(self, probing_until=0.0)

    def wait_s(self, now: float) -> float:
        """Seconds until a call makes sense."""
        if self.state(now) == "closed":
            return STUMBLE_S * self.failures
        return max(self.probe_at - now, self.probing_until - now, STUMBLE_S)


class Breakers:
    """The breakers of all services used by this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Breaker] = {}
        self._inside: set[tuple[int, str]] = set()
        """Thread and service of the calls being made."""
        self._lock = threading.Lock()

    @contextmanager
    def calling(self, service: str) -> Iterator[None]:
        """Guard calls to a service: refuse them while the breaker is open, close the breaker on success.

        Failures are counted by ``delay``, which also sees errors raised outside of this block.
        """
        call = threading.get_ident(), service
        if call in self._inside:
            yield
            return
        with self._lock:
            breaker, now = self._known.get(service, Breaker()), self._clock()
            if not breaker.allows(now):
                raise BreakerOpen(service)
            self._known[service] = breaker.entered(now)
            self._inside.add(call)
        try:
            yield
        except ServiceUnavailable:
            raise
        except BaseException:
            with self._lock:
                self._known[service] = self._known.get(service, Breaker()).undecided()
            raise
        else:
            with self._lock:
                # A service that is not remembered counts as up.
                self._known.pop(service, None)
        finally:
            with self._lock:
                self._inside.discard(call)

    def delay(self, error: ServiceUnavailable) -> timedelta:
        """Count the failure; return the delay of the job."""
        with self._lock:
            breaker, now = self._known.get(error.service, Breaker()), self._clock()
            if not isinstance(error, BreakerOpen):
                breaker = self._known[error.service] = breaker.failed(now)
        wait = timedelta(milliseconds=round(1000 * breaker.wait_s(now)))
        return max(wait, error.retry_after or wait)

    def states(self) -> dict[str, State]:
        """States of all services with recent failures."""
        now = self._clock()
        with self._lock:
            known = dict(self._known)
        return {service: breaker.state(now) for service, breaker in known.items()}
