"""Limits by key: how many jobs of a key run at once, and how many start in a period.

A job with a limit key is held (``Held.LIMIT``) until its limit allows a start. ``limit_at`` is that start: as
long as it is set, the row has one of the slots. Slots are counted from rows; there is no counter.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from penstock.queue.job import Changes, Held, Job, Status

AHEAD = timedelta(seconds=2)
"""Starts of a rate are given to rows up to this time ahead: none is lost between two rounds of upkeep."""

MOST_AT_ONCE = 1_000_000
"""Largest number of concurrent jobs, and of starts in a period."""

_LONGEST_PERIOD_S = 30 * 86_400
KEY_LENGTH = 200

_UNITS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_UNITS |= {"d": 86_400, "day": 86_400}
_NAMES = {86_400: "day", 3600: "hour", 60: "min", 1: "s"}
_RATE = r"([0-9]{1,9})\s*/\s*([0-9]{0,9})\s*([a-z]+)"
_MICROSECOND = timedelta(microseconds=1)


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored limit. ``starts`` in ``period_s`` seconds are its rate."""

    key: str
    concurrent: int | None = None
    starts: int | None = None
    period_s: int | None = None
    next_at: datetime | None = None
    """Earliest start of the next job of a rate."""

    @property
    def interval(self) -> timedelta | None:
        """Time between two starts: a rate is spread evenly over its period."""
        if self.starts is None or self.period_s is None:
            return None
        return -(-self.period_s * 1_000_000 // self.starts) * _MICROSECOND

    @property
    def rate(self) -> str | None:
        """The rate as a person writes it."""
        if self.starts is None or self.period_s is None:
            return None
        unit = next(each for each in _NAMES if self.period_s % each == 0)
        return f"{self.starts}/{self.period_s // unit if self.period_s != unit else ''}{_NAMES[unit]}"

    @property
    def most_unclaimed(self) -> int:
        """Largest number of released, unclaimed rows: workers back from a pause start only these at once."""
        interval = self.interval
        return MOST_AT_ONCE if interval is None else max(1, -(-AHEAD // interval))

    def same(self, other: Limit | None) -> bool:
        """Check whether another limit allows as much."""
        return other is not None and msgspec.structs.replace(other, next_at=self.next_at) == self


def parse_rate(text: str) -> tuple[int, int] | None:
    """Starts and seconds of a rate such as ``60/min``, ``5/s`` or ``100/15min``; None for other text."""
    found = re.fullmatch(_RATE, text.strip().lower())
    unit = _UNITS.get(found[3].removesuffix("s") or "s") if found else None
    if found is None or unit is None:
        return None
    starts, period_s = int(found[1]), int(found[2] or 1) * unit
    return (starts, period_s) if 1 <= starts <= MOST_AT_ONCE and 1 <= period_s <= _LONGEST_PERIOD_S else None


def next_starts(
    limit: Limit | None, admitted: int, unclaimed: int, now: datetime, most: int
) -> list[datetime]:
    """Times at which the next rows of a key may start, at most ``most``; now or a little ahead.

    ``admitted``: rows with a slot. ``unclaimed``: those of them that no worker has claimed.
    """
    if limit is None:
        return [now] * most
    free = most if limit.concurrent is None else min(most, limit.concurrent - admitted)
    interval = limit.interval
    if interval is None:
        return [now] * max(free, 0)
    free = min(free, limit.most_unclaimed - unclaimed)
    at = max(now, limit.next_at or now)
    if at > now + AHEAD + interval:
        # Stored before the clock was set back, or at a slower rate.
        at = now
    found: list[datetime] = []
    while len(found) < free and at <= now + AHEAD:
        found.append(at)
        at += interval
    return found


def after_start(limit: Limit, last: datetime) -> Limit:
    """The limit after a start."""
    interval = limit.interval
    return limit if interval is None else msgspec.structs.replace(limit, next_at=last + interval)


def gated(job: Job, changes: Changes) -> Changes:
    """The changes of a row with a limit key: claimable only with a start given by the limit.

    The start, and with it the slot, is lost with the claim, and when the row is held for another reason.
    """
    after = msgspec.structs.replace(job, **changes)
    pending = after.status is Status.PENDING
    if after.limit_at is not None:
        waits = pending and job.status is Status.PENDING and after.held in (None, Held.TIME)
        if waits or after.lease_until is not None:
            return changes
        changes = changes | {"limit_at": None}
    if pending and after.held is None:
        changes = changes | {"held": Held.LIMIT, "turn": min(after.turn, 0)}
    return changes


def touches(before: Job, after: Job) -> bool:
    """Check whether a changed row gave up a slot, or began to wait for one."""
    lost = before.limit_at is not None and after.limit_at is None
    return lost or (after.held is Held.LIMIT and before.held is not Held.LIMIT)


KEYS_AT_ONCE = 100
"""Keys with waiting rows that one call of ``admit`` looks at; the next call continues after them."""

encode_limit = msgspec.json.Encoder().encode


def decode_limit(body: bytes | str) -> Limit:
    # A decoder made here would evaluate the annotations in each command.
    return msgspec.json.decode(body, type=Limit)
