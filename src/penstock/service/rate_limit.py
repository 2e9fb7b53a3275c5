"""Rates of a server: a bucket of requests for each key, and the delay of peers whose keys are refused."""

from __future__ import annotations

import ipaddress
import math
import threading

import msgspec

from penstock import clock
from penstock.errors import RateLimited
from penstock.vocabulary import how_many

MOST_KEYS = 10_000
MOST_PEERS = 10_000
FREE = 10
"""Refused keys of a peer that are answered and logged at once. One a second is forgotten."""
STEP_S, LONGEST_S = 0.05, 1.0
"""Delay of the answer for each further one, and the longest."""
TOLD_EVERY_S = 10.0
"""Time between two lines about a peer with many refused keys."""


class RateLimit:
    """At most ``per_minute`` requests of one key in a minute; None is no limit.

    ``counted`` and ``remedy``: words of the refusal, where other acts than requests are counted.
    """

    def __init__(
        self, per_minute: int | None, *, counted: str = "request", remedy: str | None = None
    ) -> None:
        self._per_minute = per_minute
        self._counted = counted
        self._remedy = remedy
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        """Requests left, and the time of the count, by key."""

    def count(self, key: str) -> None:
        """Count a request; raise ``RateLimited`` if there were too many."""
        if self._per_minute is None:
            return
        now, per_second = clock.elapsed_s(), self._per_minute / 60
        with self._lock:
            left, at = self._buckets.get(key, (float(self._per_minute), now))
            left = min(left + (now - at) * per_second, float(self._per_minute))
            if left >= 1:
                if len(self._buckets) >= MOST_KEYS:
                    self._buckets.clear()
                self._buckets[key] = left - 1, now
                return
        wait = math.ceil((1 - left) / per_second)
        limit = how_many(self._per_minute, self._counted)
        raise RateLimited(
            f"the key {key!r} sent more than {limit} in a minute", retry_after=wait, remedy=self._remedy
        )


class _Peer(msgspec.Struct, frozen=True):
    refused: float
    at: float
    untold: int
    told_at: float


class RefusedKeys:
    """Refused keys and sessions by peer. Used by one event loop."""

    def __init__(self) -> None:
        self._seen: dict[str, _Peer] = {}

    def count(self, address: str) -> tuple[float, int | None]:
        """Count a refusal. Returns the seconds to wait before the answer, and the refusals to log.

        These are the number since the last line; None: no line now.
        """
        now, name = clock.elapsed_s(), _network(address)
        seen = self._seen.pop(name, _Peer(0.0, now, 0, -math.inf))
        refused = max(seen.refused - (now - seen.at), 0.0) + 1
        untold = seen.untold + 1
        tells = refused <= FREE or now - seen.told_at >= TOLD_EVERY_S
        while len(self._seen) >= MOST_PEERS:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = _Peer(refused, now, 0 if tells else untold, now if tells else seen.told_at)
        return min(max(refused - FREE, 0.0) * STEP_S, LONGEST_S), untold if tells else None


def _network(address: str) -> str:
    """The peer of an address: one sender may have a whole network of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
