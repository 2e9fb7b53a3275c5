"""Limits on a Redis server: a hash of limits, and sorted sets of rows waiting or with a slot."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.limits import Limit
from penstock.queue.limit_rows import KEYS_AT_ONCE
from penstock.queue.protocol import CASCADE_BATCH
from penstock.queue.redis import codec
from penstock.queue.redis.server import Server
from penstock.queue.rules.limits import ADMITTED_AT_ONCE
from penstock.queue.rules.rows import storable


class RedisLimits:
    """The part of the queue for limits, see ``LimitStore``, and for results with a time to live."""

    _server: Server
    _admitted_after = ""
    """Position of the search for rows that wait for limits."""

    def limits(self) -> list[Limit]:
        found = self._server.call("HGETALL", self._server.key("limits"))
        return sorted((_limit(key, body) for key, body in found.items()), key=lambda limit: limit.key)

    def put_limit(self, limit: Limit, *, now: datetime | None = None) -> bool:
        stored = (limit.concurrent or 0, limit.starts or 0, limit.period_s or 0, 0)
        if not self._run_limits("put_limit", (limit.key, stored), now):
            return False
        while self._run_limits("recall", limit.key, now):
            pass
        self._admit_all([limit.key], now)
        return True

    def drop_limit(self, key: str, *, now: datetime | None = None) -> bool:
        dropped = storable([key]) and bool(self._server.call("HDEL", self._server.key("limits"), key))
        if dropped:
            self._admit_all([key], now)
        return dropped

    def admit(self, *, now: datetime | None = None) -> int:
        start = f"({self._admitted_after}" if self._admitted_after else "-"
        limiters = self._server.key("limiters")
        found = self._server.call("ZRANGEBYLEX", limiters, start, "+", "LIMIT", 0, KEYS_AT_ONCE)
        keys = [key.decode() for key in found]
        self._admitted_after = keys[-1] if len(keys) == KEYS_AT_ONCE else ""
        return self._admit_all(keys, now)

    def _admit_all(self, keys: list[str], now: datetime | None) -> int:
        """Release rows of these keys, key by key in scripts of a bounded length."""
        seen = 0
        for key in keys:
            found = ADMITTED_AT_ONCE
            while found == ADMITTED_AT_ONCE:
                found = self._run_limits("admit", key, now)
                seen += found
        return seen

    def slots_of(self, key: str) -> int:
        if not storable([key]):
            return 0
        return min(int(self._server.call("ZCARD", self._server.key(f"admitted:{key}"))), ADMITTED_AT_ONCE)

    def expire_results(self, *, now: datetime | None = None, limit: int = CASCADE_BATCH) -> int:
        return self._run_limits("expire_results", limit, now)

    def _run_limits(self, script: str, arguments: object, now: datetime | None) -> int:
        return int(self._server.run(script, codec.encode(arguments), codec.micros(now)))


def _limit(key: bytes, body: bytes) -> Limit:
    concurrent, starts, period_s, next_at = msgspec.msgpack.decode(body)
    return Limit(
        key=key.decode(),
        concurrent=concurrent or None,
        starts=starts or None,
        period_s=period_s or None,
        next_at=codec.moment(next_at),
    )
