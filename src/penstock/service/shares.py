"""Shares of what a server has a limited number of: open streams, uploads, requests.

One key, and one machine, may have a part of all of it. Without these parts the first sender who takes
everything locks out all others, and is not even hindered by it.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from penstock import clock
from penstock.errors import RateLimited, TooManyAtOnce
from penstock.vocabulary import how_many

_MOST_KEYS = 10_000
MOST_PEERS = 10_000
FREE = 10
"""Refused keys of a peer that are answered and logged at once. One a second is forgotten."""
STEP_S, LONGEST_S = 0.05, 1.0
"""Delay of the answer for each further one, and the longest."""
TOLD_EVERY_S = 10.0
"""Time between two lines about a peer with many refused keys."""


class Taker(msgspec.Struct, frozen=True):
    """Who takes a share: the name of the key, and the address of the machine.

    ``key`` None: a server without keys, which belongs to one person. ``peer`` None: this machine itself, or a
    proxy that names no other one. For None only the total counts.
    """

    key: str | None = None
    peer: str | None = None


NOBODY = Taker()


class Shares:
    """The number in use, in total, of each key and of each machine. Threads may share one.

    ``refusal`` has the words for what is counted, such as "streams of events are open".
    """

    def __init__(
        self,
        refusal: type[TooManyAtOnce],
        *,
        total: int | None = None,
        per_key: int | None = None,
        per_peer: int | None = None,
    ) -> None:
        self._refusal = refusal
        self._most = {"total": total, "key": per_key, "peer": per_peer}
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, str]] = Counter()

    def take(self, taker: Taker) -> None:
        """Count one more; raise the refusal, which names what is used up, if there are too many."""
        with self._lock:
            for kind, name in _counts(taker):
                most = self._most[kind]
                if most is not None and self._taken[kind, name] >= most:
                    raise self._refusal.of(kind, name, most)
            self._taken.update(_counts(taker))

    def give_back(self, taker: Taker) -> None:
        """Count one less."""
        with self._lock:
            for count in _counts(taker):
                self._taken[count] -= 1
                if not self._taken[count]:
                    del self._taken[count]

    @contextmanager
    def held(self, taker: Taker) -> Iterator[None]:
        """Hold one for a while."""
        self.take(taker)
        try:
            yield
        finally:
            self.give_back(taker)


def _counts(taker: Taker) -> list[tuple[str, str]]:
    """List the counts of a sender. Those of the key come first: their message is more useful."""
    found = [("key", taker.key), ("peer", taker.peer), ("total", "")]
    return [(kind, name) for kind, name in found if name is not None]


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
                if len(self._buckets) >= _MOST_KEYS:
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
    """Refused keys and sessions by peer, whose answers are delayed. Used by one event loop."""

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
