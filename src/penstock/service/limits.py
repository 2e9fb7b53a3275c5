"""Use cases about limits: set, list, show, remove."""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from penstock.errors import InvalidLimit, LimitNotFound
from penstock.queue.job import Held, JobQuery
from penstock.queue.limits import KEY_LENGTH, MOST_AT_ONCE, Limit, parse_rate
from penstock.queue.protocol import Queue

_MOST_COUNTED = 10_000
"""``waiting`` of a record counts up to this number."""
_MOST_LIMITS = 10_000
_TENANT_PART = 100
"""Most characters of a tenant in the key of its own limit."""


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A limit for programs. ``slots``: jobs that run or are released; ``waiting``: up to 10,000.

    ``next_at``: earliest start of the next job of a rate.
    """

    key: str
    concurrent: int | None
    rate: str | None
    slots: int
    waiting: int
    next_at: datetime | None


class Limits:
    """The limits of one queue, for jobs of all tenants.

    app.limits.set("embeddings", rate="60/min", concurrent=4)
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def set(self, key: str, *, concurrent: int | None = None, rate: str | None = None) -> LimitRecord:
        """Set the limit of a key. The same limit again changes nothing.

        ``concurrent``: jobs that may run at once. ``rate``: starts in a period, evenly spread: ``60/min``.
        """
        limit = _new_limit(key, concurrent, rate)
        stored = self._queue.limits()
        if len(stored) >= _MOST_LIMITS and all(one.key != key for one in stored):
            raise InvalidLimit(f"there are {_MOST_LIMITS:,} limits already", remedy="Remove some of them.")
        self._queue.put_limit(limit)
        return self.show(key)

    def list(self) -> list[LimitRecord]:
        """List the limits by key."""
        return [self._record(limit) for limit in self._queue.limits()]

    def show(self, key: str) -> LimitRecord:
        """Show the limit of a key, with the number of its jobs that have a slot or wait."""
        return self._record(self._get(key))

    def remove(self, key: str) -> None:
        """Remove a limit. Jobs that wait for it can start."""
        self._get(key)
        self._queue.drop_limit(key)

    def _get(self, key: str) -> Limit:
        found = next((limit for limit in self._queue.limits() if limit.key == key), None)
        if found is None:
            raise LimitNotFound(f"there is no limit with the key {str(key)[:80]!r}")
        return found

    def _record(self, limit: Limit) -> LimitRecord:
        waiting = self._queue.count(JobQuery(limit_key=limit.key, held=Held.LIMIT), cap=_MOST_COUNTED)
        return LimitRecord(
            key=limit.key,
            concurrent=limit.concurrent,
            rate=limit.rate,
            slots=self._queue.slots_of(limit.key),
            waiting=sum(waiting.values()),
            next_at=limit.next_at,
        )


def checked_key(key: object) -> str:
    """The key of a limit; refuses one that cannot stand in a URL."""
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH or not key.isprintable():
        raise InvalidLimit(
            f"limit: the key must be 1 to {KEY_LENGTH} printable characters, got {str(key)[:80]!a}",
            remedy="Use a short name, such as embeddings.",
        )
    if key in (".", "..") or any(each in key for each in "/ ?#%"):
        raise InvalidLimit(
            f"limit: the key must not contain spaces or any of / ? # %, nor be . or .., got {key[:80]!a}",
            remedy="Use a short name, such as embeddings.",
        )
    return key


def tenant_limit(tenant_id: str, key: str) -> str:
    """The key of a tenant's own limit, such as ``acme:gpu``: no other tenant's jobs count for it.

    The part of the tenant has no colon, so that two tenants never have the same key.
    """
    own = "".join(
        one if one.isascii() and (one.isalnum() or one in "._-") else f"~{ord(one):x}~" for one in tenant_id
    )
    if len(own) > _TENANT_PART:
        own = f"{own[: _TENANT_PART - 18]}~~{hashlib.sha256(tenant_id.encode()).hexdigest()[:16]}"
    return checked_key(f"{own}:{checked_key(key)}")


def _new_limit(key: str, concurrent: int | None, rate: str | None) -> Limit:
    """Check the fields of a limit."""
    if concurrent is None and rate is None:
        raise InvalidLimit("a limit needs concurrent, rate, or both")
    whole = isinstance(concurrent, int) and not isinstance(concurrent, bool)
    if concurrent is not None and not (whole and 1 <= concurrent <= MOST_AT_ONCE):
        raise InvalidLimit(f"concurrent: expected 1 to {MOST_AT_ONCE:,}, got {str(concurrent)[:80]!r}")
    parsed = parse_rate(rate) if isinstance(rate, str) else None
    if rate is not None and parsed is None:
        raise InvalidLimit(
            f"rate: {str(rate)[:80]!r} is not a number of starts in a period",
            remedy="Write 60/min, 5/s, 1000/hour or 100/15min; the longest period is 30 days.",
        )
    starts, period_s = parsed or (None, None)
    return Limit(key=checked_key(key), concurrent=concurrent, starts=starts, period_s=period_s)
