"""Rate limit of a server: a bucket of requests for each key, which fills up again with time."""

from __future__ import annotations

import math
import threading

from penstock import clock
from penstock.errors import RateLimited
from penstock.vocabulary import how_many

MOST_KEYS = 10_000


class RateLimit:
    """At most ``per_minute`` requests of one key in a minute; None is no limit."""

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
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
        limit = how_many(self._per_minute, "request")
        raise RateLimited(f"the key {key!r} sent more than {limit} in a minute", retry_after=wait)
